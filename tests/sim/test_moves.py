"""Partitions are reassigned among three whole brokers, from one seed. Targets are random, and
reassignments are cancelled or replaced. In the meantime `min.insync.replicas` changes, brokers and
links fail, and clients continue."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from broker.cluster.liveness_driver import BALANCE_MS
from broker.controller import controller as controllers
from broker.controller.outcome import ControllerDecision
from broker.metadata.partition_image import PartitionImage
from broker.world import Address
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
from protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.types import NO_NODE
from tests.sim.clients import (
    ANSWER_MS_MAX,
    Asking,
    Client,
    Script,
    batch_of,
    settled,
    topic_made,
    written,
)
from tests.sim.many_lives import live, parts_of
from tests.sim.test_three_brokers import PARTITIONS, TOPIC, Life
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import HOST_PORT, WholeCluster

NODES = (1, 2, 3)
SPARE = "spare"
NO_LEADER = ErrorCode.INVALID_REPLICATION_FACTOR
"""The error if all brokers for a new partition are out of service."""
LIVES = 20
LIVES_IN_ONE = 10
REFUSALS = (
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    # None of the replicas that would remain is in sync.
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    # The topic was deleted in the meantime.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def moved(partition: int, target: list[int] | None, topic: str = TOPIC) -> Asking:
    """Reassign a partition, or cancel a reassignment. Retry until the controller has decided. If a
    response is lost, the controller can decide twice. Return the error code."""
    one = ReassignablePartition(partition_index=partition, replicas=target)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=ANSWER_MS_MAX, topics=[ReassignableTopic(name=topic, partitions=[one])]
    )
    answer = yield from settled(
        request, lambda answer: answer.responses[0].partitions[0].error_code, *REFUSALS
    )
    return answer.responses[0].partitions[0].error_code


def grown(count: int) -> Asking:
    """Add partitions to the topic until it has `count` partitions."""
    topic = CreatePartitionsTopic(name=TOPIC, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=ANSWER_MS_MAX)
    yield from settled(
        request,
        lambda answer: answer.results[0].error_code,
        ErrorCode.INVALID_PARTITIONS,
        NO_LEADER,
    )


def moved_and_deleted(target: list[int]) -> Asking:
    """Create a topic, start to reassign its partition, and delete the topic."""
    topic = CreatableTopic(name=SPARE, num_partitions=1, replication_factor=2)
    made = CreateTopicsRequest(topics=[topic], timeout_ms=ANSWER_MS_MAX)
    yield from settled(
        made,
        lambda answer: answer.topics[0].error_code,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        NO_LEADER,
    )
    yield from moved(0, target, SPARE)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=SPARE)], timeout_ms=ANSWER_MS_MAX)
    yield from settled(
        request,
        lambda answer: answer.responses[0].error_code,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


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
    """Check that the replica sets of a partition are consistent during a reassignment (I15)."""
    replicas, adding, removing = one.replicas, one.adding_replicas, one.removing_replicas
    assert len(set(replicas)) == len(replicas) == len(one.directories)
    assert set(adding) <= set(one.target_replicas)
    assert not set(adding) & set(removing)
    assert one.original_replicas
    assert {*one.in_sync_replicas, *one.eligible_leader_replicas} <= set(replicas)
    assert one.leader == NO_NODE or one.leader in one.in_sync_replicas


def nothing_is_completed(*_: Any) -> ControllerDecision[None]:
    return ControllerDecision([], None)


class Stage:
    """Three brokers in service, with methods that run a client and read the state."""

    def __init__(self, seed: str) -> None:
        cluster = self.cluster = WholeCluster(seed)
        for node in cluster.nodes:
            node.start()
        cluster.run_until(lambda: is_in_service(cluster), 60_000, "all are in service")
        active = cluster.active()
        assert active is not None
        self.controller = active
        self._numbers = count()

    def done(self, script: Script, node_id: int | None = None) -> None:
        """Let a client run a script against one broker, by default the controller. Wait until the
        script ends."""
        asked = self.controller.node_id if node_id is None else node_id
        brokers = {node.node_id: Address(node.host, HOST_PORT) for node in self.cluster.nodes}
        host = f"c{next(self._numbers)}"
        client = Client(self.cluster.network, host, brokers, script, lambda _: asked)
        self.cluster.run_until(lambda: client.is_done, 60_000, "the client has its answer")

    def seen(self, number: int = 0) -> PartitionImage:
        """Return the controller's image of a partition."""
        one: PartitionImage = self.controller.metadata.image.topics[TOPIC].partitions[number]
        return one

    def logs(self) -> dict[int, Any]:
        """Return the logs of partition 0 by broker, for the brokers that are its replicas."""
        return {
            node.node_id: one.log
            for node in self.cluster.running
            for one in node.broker.parts.replicas  # type: ignore[union-attr]
            if (one.topic, one.index) == (TOPIC, 0) and node.node_id in self.seen().replicas
        }


def an_election_makes_a_move_complete() -> None:
    """The only replica of the target is elected from the ELR, and no further record follows.

    The record of the election cannot complete the reassignment, because the replica was not in sync
    before. So the controller must look for complete reassignments itself.
    """
    stage = Stage("completed late")
    cluster, seen = stage.cluster, stage.seen
    stage.done(topic_made(TOPIC, 3, replication_factor=2, min_insync_replicas="1"))
    number = next(
        number for number in range(3) if stage.controller.node_id not in seen(number).replicas
    )
    leader, other = (cluster.nodes[one - 1] for one in seen(number).replicas)
    cluster.network.cut(leader.host, other.host)
    cluster.network.cut(other.host, leader.host)
    # The follower is cut off, so the leader acknowledges this record only after the follower is
    # out of the ISR.
    stage.done(written(TOPIC, number, batch_of(b"value", (-1, -1, -1)), None), leader.node_id)
    cluster.run_until(
        lambda: seen(number).in_sync_replicas == (leader.node_id,), 30_000, "the follower is out"
    )
    leader.kill()
    cluster.run_until(lambda: seen(number).leader == NO_NODE, 30_000, "the leader is fenced")
    assert seen(number).eligible_leader_replicas == (leader.node_id,)
    stage.done(moved(number, [leader.node_id]))
    assert seen(number).is_moving
    leader.start()
    cluster.run_until(lambda: seen(number).leader == leader.node_id, 30_000, "it leads again")
    cluster.run_until(lambda: not seen(number).is_moving, 3 * BALANCE_MS, "the move is complete")
    assert seen(number).replicas == (leader.node_id,)


def test_guard_66_the_controller_looks_for_moves_that_are_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    an_election_makes_a_move_complete()
    monkeypatch.setattr(controllers, "complete_reassignments", nothing_is_completed)
    with pytest.raises(AssertionError, match="the move is complete"):
        an_election_makes_a_move_complete()


def test_trap_10_no_broker_names_fewer_partitions_or_no_leader_while_a_topic_changes() -> None:
    """The topic gets more replicas and more partitions at the same time. No broker's metadata may
    show fewer partitions, or one without a leader, in the meantime."""
    stage = Stage("never fewer")
    nodes = stage.cluster.nodes
    stage.done(topic_made(TOPIC, 3, replication_factor=1))
    for sequence in range(20):
        batch = batch_of(b"%d" % sequence, (-1, -1, -1))
        stage.done(written(TOPIC, 0, batch, None), stage.seen().leader)
    known = [0] * len(nodes)

    def is_grown() -> bool:
        for place, node in enumerate(nodes):
            partitions = node.metadata.image.topics[TOPIC].partitions
            assert len(partitions) >= known[place]
            assert all(one.leader != NO_NODE for one in partitions)
            known[place] = len(partitions)
        return known == [6, 6, 6] and len(stage.seen().in_sync_replicas) == 3

    is_grown()
    first = stage.seen().replicas[0]
    stage.done(moved(0, [first, *(one for one in NODES if one != first)]))
    is_grown()
    stage.done(grown(6))
    stage.cluster.run_until(is_grown, 30_000, "three replicas, six partitions")
    # The new partitions have one replica each, like the others.
    assert {len(stage.seen(number).replicas) for number in range(1, 6)} == {1}


def test_trap_39_records_are_deleted_while_their_partition_moves() -> None:
    """The new replica must start at the leader's log start offset, which moves during the
    reassignment."""
    stage = Stage("deleted while it moves")
    stage.done(topic_made(TOPIC, 1, replication_factor=2, min_insync_replicas="1"))
    before = stage.seen().replicas
    for sequence in range(10):
        batch = batch_of(b"%d" % sequence, (-1, -1, -1))
        stage.done(written(TOPIC, 0, batch, None), stage.seen().leader)
    (added,) = (one for one in NODES if one not in before)
    away = stage.cluster.nodes[added - 1]
    away.freeze()
    stage.done(moved(0, [added, before[0]]), before[0])
    partition = DeleteRecordsPartition(partition_index=0, offset=6)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=TOPIC, partitions=[partition])], timeout_ms=ANSWER_MS_MAX
    )

    def deleted() -> Script:
        yield from settled(request, lambda answer: answer.topics[0].partitions[0].error_code)

    stage.done(deleted(), stage.seen().leader)
    away.thaw()
    stage.cluster.run_until(lambda: not stage.seen().is_moving, 60_000, "the move is complete")
    assert set(stage.seen().replicas) == {added, before[0]}
    ends = {node: (log.log_start_offset, log.log_end_offset) for node, log in stage.logs().items()}
    assert ends == {added: (6, 10), before[0]: (6, 10)}


class MovingLife(Life):
    """A run in which clients also reassign partitions."""

    copies = 2

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.moves = 0
        """The number of reassignments that the controller has accepted."""
        self.orders: list[Any] = []

    def misbehave(self) -> None:
        """Start a random fault, end one, or send a random order."""
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
            case draw if draw < 0.55:
                self.order(grown(PARTITIONS + chance.randint(1, 3)))
            case draw if draw < 0.6:
                self.order(moved_and_deleted(chance.sample(NODES, chance.choice((1, 2, 3)))))
            case _:
                super().misbehave()

    def order(self, script: Script) -> None:
        self.orders.append(self.client(script, None))

    def _moved(self, partition: int, target: list[int] | None) -> Script:
        code = yield from moved(partition, target)
        self.moves += code == ErrorCode.NONE

    def is_whole(self) -> bool:
        """Return True if the cluster is healthy and every reassignment has ended."""
        return super().is_whole() and not self.cluster.nodes[0].metadata.image.moving

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
