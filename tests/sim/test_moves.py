"""Three whole brokers between which replicas move, from one seed: random targets, cancellations,
other targets and new minimums, while brokers and their links fail and clients go on."""

from __future__ import annotations

from typing import Any

import pytest

from broker.metadata.image import PartitionImage
from protocol.errors import ErrorCode
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.elections import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from protocol.types import NO_NODE
from tests.sim.clients import ANSWER_MS_MAX, Asking, Script, settled
from tests.sim.many_lives import live, parts_of
from tests.sim.test_three_brokers import PARTITIONS, TOPIC, Life

NODES = (1, 2, 3)
LIVES = 20
LIVES_IN_ONE = 10
REFUSALS = (
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    # None of the replicas that would stay is in sync.
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
)


def moved(partition: int, target: list[int] | None) -> Asking:
    """Move a partition, or cancel, until the controller has decided. An answer may be lost, so the
    request can be carried out twice. Returns the error code."""
    one = ReassignablePartition(partition_index=partition, replicas=target)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=ANSWER_MS_MAX, topics=[ReassignableTopic(name=TOPIC, partitions=[one])]
    )
    answer = yield from settled(
        request, lambda answer: answer.responses[0].partitions[0].error_code, *REFUSALS
    )
    return answer.responses[0].partitions[0].error_code


def min_isr_set(value: int) -> Asking:
    config = AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(value))
    resource = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    yield from settled(request, lambda answer: answer.responses[0].error_code)


def preferred_elected(partition: int) -> Asking:
    request = ElectLeadersRequest(
        election_type=0,
        topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[partition])],
        timeout_ms=ANSWER_MS_MAX,
    )
    yield from settled(
        request,
        lambda answer: (
            answer.error_code or answer.replica_election_results[0].partition_result[0].error_code
        ),
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    )


def check_moving(one: PartitionImage) -> None:
    """I15: the sets of a partition fit together, whatever moves."""
    replicas, adding, removing = one.replicas, one.adding_replicas, one.removing_replicas
    assert len(set(replicas)) == len(replicas) == len(one.directories)
    assert set(adding) <= set(one.target_replicas)
    assert not set(adding) & set(removing)
    assert one.original_replicas
    assert {*one.in_sync_replicas, *one.eligible_leader_replicas} <= set(replicas)
    assert one.leader == NO_NODE or one.leader in one.in_sync_replicas


class MovingLife(Life):
    """A life in which partitions move as well."""

    copies = 2

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.moves = 0
        """The moves that the controller has accepted."""
        self.orders: list[Any] = []

    def misbehave(self) -> None:
        """One fault or order, or the end of a fault."""
        chance = self.chance
        partition = chance.randrange(PARTITIONS)
        self.check()
        match chance.random():
            case draw if draw < 0.35:
                target = chance.sample(NODES, chance.choice((1, 2, 2, 3)))
                self.order(self._moved(partition, target))
            case draw if draw < 0.42:
                self.order(self._moved(partition, None))
            case draw if draw < 0.46:
                self.order(min_isr_set(chance.choice((1, 2, 2, 3))))
            case draw if draw < 0.52:
                self.order(preferred_elected(partition))
            case _:
                super().misbehave()

    def order(self, script: Script) -> None:
        self.orders.append(self.client(script, None))

    def _moved(self, partition: int, target: list[int] | None) -> Script:
        code = yield from moved(partition, target)
        self.moves += code == ErrorCode.NONE

    def check(self) -> None:
        for node in self.cluster.running:
            if node.metadata is None or TOPIC not in node.metadata.image.topics:
                continue
            for one in node.metadata.image.topics[TOPIC].partitions:
                check_moving(one)

    def mend(self) -> None:
        super().mend()
        self.cluster.run_until(
            lambda: all(one.is_done for one in self.orders), 120_000, "all orders are decided"
        )
        self.check()


@pytest.mark.parametrize("first", range(0, LIVES, LIVES_IN_ONE))
def test_acknowledged_records_stay_wherever_their_replicas_move(first: int) -> None:
    moves = 0

    def run(seed: str) -> None:
        nonlocal moves
        life = MovingLife(seed)
        life.run()
        moves += life.moves

    live("moves", (first, LIVES_IN_ONE), run)
    assert moves > LIVES_IN_ONE, "replicas have moved"


@pytest.mark.slow
@pytest.mark.parametrize("part", parts_of(2_000), ids=str)
def test_a_great_many_lives(part: tuple[int, int]) -> None:
    live("moves, many lives", part, lambda seed: MovingLife(seed).run())
