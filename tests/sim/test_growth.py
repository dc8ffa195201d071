"""A simulated cluster of one broker becomes one of three, by the plan of `millrace cluster grow`.

Faults happen on the way: the power is cut after each record of the growth, and in random lives
brokers die and links break. The cluster must always end grown, with every acknowledged record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from appliance.kafka.growth_plan import GrowthGoal, GrowthState, steps_to_grow
from appliance.kafka.membership_steps import (
    AddReplicas,
    GiveVote,
    MembershipStep,
    SpreadLeaders,
)
from appliance.kafka.reassign import ClusterReplicas
from protocol.client.metadata import BrokerInfo
from protocol.client.quorum_admin import QuorumInfo, quorum_in
from protocol.client.reassignment_admin import Reassignment
from protocol.client.topic_details import PartitionDetails, TopicDetails
from protocol.errors import ApiError
from protocol.messages.elections import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from protocol.messages.voters import AddRaftVoterRequest, DescribeQuorumResponse
from protocol.types import TopicPartition
from protocol.wire.schema import Message
from tests.sim.clients import ANSWER_MS_MAX, Client, Script, topic_made
from tests.sim.many_lives import live, parts_of
from tests.sim.test_newcomers import THE_LOG, newcomer
from tests.sim.test_three_brokers import (
    END_MS_MAX,
    PARTITIONS,
    READY_MS_MAX,
    SETTINGS,
    TOPIC,
    Life,
)
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import WholeBroker, WholeCluster

NODES = (1, 2, 3)
GOAL = GrowthGoal(NODES, {}, 3, {}, 2)
LIVES = 20
LIVES_IN_ONE = 10
LOOK_MS = 50
"""The time between two looks of the command."""
RECORDS_MIN = 10
"""At least so many records of the metadata log belong to the growth."""


def state_of(node: WholeBroker, quorum: QuorumInfo) -> GrowthState:
    """Return what one broker knows about the growth. It can be behind the controller."""
    image = node.metadata.image
    moving: dict[TopicPartition, Reassignment] = {}
    topics = {}
    for name, topic in image.topics.items():
        partitions = []
        for number, one in enumerate(topic.partitions):
            partitions.append(
                PartitionDetails(
                    number, one.leader, 0, one.replicas, one.in_sync_replicas, (), (), ()
                )
            )
            if one.is_moving:
                moving[TopicPartition(name, number)] = Reassignment(
                    one.replicas, one.adding_replicas, one.removing_replicas
                )
        topics[name] = TopicDetails(name, topic.topic_id, False, tuple(partitions))
    live_brokers = {
        one: BrokerInfo(one, f"n{one}", 1)
        for one, broker in sorted(image.brokers.items())
        if not broker.is_fenced
    }
    return GrowthState(ClusterReplicas(live_brokers, topics, moving), frozenset(), quorum, {}, GOAL)


def known_quorum(answer: DescribeQuorumResponse | None) -> QuorumInfo | None:
    """Return the quorum of an answer; None without an answer, or if it has an error."""
    try:
        return None if answer is None else quorum_in(answer)
    except ApiError:
        return None


def request_of(step: MembershipStep) -> Message | None:
    """Return the request of a step; None for a step that waits."""
    match step:
        case GiveVote(node_id, directory_id):
            return AddRaftVoterRequest(
                cluster_id=None,
                timeout_ms=ANSWER_MS_MAX,
                voter_id=node_id,
                voter_directory_id=directory_id,
                listeners=[],
            )
        case AddReplicas(targets):
            partitions = [
                ReassignablePartition(partition_index=tp.partition, replicas=list(target))
                for tp, target in targets.items()
            ]
            return AlterPartitionReassignmentsRequest(
                timeout_ms=ANSWER_MS_MAX,
                topics=[ReassignableTopic(name=TOPIC, partitions=partitions)],
            )
        case SpreadLeaders(tps):
            numbers = TopicPartitions(topic=TOPIC, partitions=[tp.partition for tp in tps])
            return ElectLeadersRequest(
                election_type=0, topic_partitions=[numbers], timeout_ms=ANSWER_MS_MAX
            )
        case _:
            return None


class GrowthLife(Life):
    """A run in which one broker becomes three."""

    copies = 1

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.cluster = WholeCluster(seed, 1, SETTINGS)
        self.leader_of_epoch: dict[int, int] = {}
        self.growth: Client | None = None
        self.first_offset = 0
        """The end of the metadata log before the growth."""

    def begin(self) -> None:
        cluster = self.cluster
        (one,) = cluster.nodes
        one.start()
        cluster.run_until(lambda: one.is_ready, READY_MS_MAX, "alone in service")
        making = self.client(topic_made(TOPIC, PARTITIONS, replication_factor=1), None)
        cluster.run_until(lambda: making.is_done, END_MS_MAX, "the topic is made")
        one.stop()
        cluster.run_until(lambda: one.broker is None, READY_MS_MAX, "stopped")
        one.configure(NODES)
        one.start()
        for node_id in NODES[1:]:
            newcomer(cluster, node_id, NODES)
        cluster.run_until(lambda: is_in_service(cluster), READY_MS_MAX, "all in service")
        self.first_offset = one.metadata.image.end_offset
        self.growth = self.client(self._grows(), None)

    def _grows(self) -> Script:
        """Do as the command does: look, take the first step, and look again."""
        while True:
            quorum = known_quorum((yield THE_LOG))
            known = [
                node
                for node in self.cluster.running
                if node.metadata is not None and TOPIC in node.metadata.image.topics
            ]
            if quorum is not None and known:
                steps = steps_to_grow(state_of(self.chance.choice(known), quorum))
                if not steps and self.is_grown():
                    return
                request = request_of(steps[0]) if steps else None
                if request is not None:
                    # A refusal is no fault. The next look finds the same step.
                    yield request
            yield LOOK_MS

    def is_grown(self) -> bool:
        """Return True if the controller knows three voters and three replicas of each partition."""
        active = self.cluster.active()
        if active is None:
            return False
        voters = sorted(key.node_id for key in active.metadata.quorum.voters)
        image = active.metadata.image
        return voters == list(NODES) and all(
            sorted(one.in_sync_replicas) == list(NODES) for one in image.topics[TOPIC].partitions
        )

    def check_leaders(self) -> None:
        """Check that no epoch of the quorum has two leaders (I19)."""
        for node in self.cluster.running:
            if node.metadata is not None and node.metadata.quorum.role_name == "leader":
                epoch = node.metadata.quorum.quorum.replica.epoch
                assert self.leader_of_epoch.setdefault(epoch, node.node_id) == node.node_id

    def misbehave(self) -> None:
        self.check_leaders()
        super().misbehave()

    def mend(self) -> None:
        super().mend()
        growth = self.growth
        assert growth is not None
        self.cluster.run_until(lambda: growth.is_done, END_MS_MAX, "the cluster has grown")
        self.check_leaders()

    def is_whole(self) -> bool:
        return super().is_whole() and self.is_grown()


class CutLife(GrowthLife):
    """A growth in which the power is cut once, after a number of records of the metadata log."""

    def __init__(self, records: int, chosen: Callable[[WholeCluster], list[WholeBroker]]) -> None:
        super().__init__(f"the power is cut after record {records}")
        self.records = records
        self._chosen = chosen
        self.is_cut = False

    def suffer(self) -> None:
        cluster, growth = self.cluster, self.growth
        assert growth is not None
        for _ in range(END_MS_MAX):
            active = cluster.active()
            if active is not None:
                self.check_leaders()
                written = active.metadata.image.end_offset - self.first_offset
                if written >= self.records and not growth.is_done:
                    self.is_cut = True
                    for node in self._chosen(cluster):
                        node.cut_power(self.chance)
                    cluster.run_for(self.chance.randint(0, 2_000))
                    return
            if growth.is_done:
                return
            cluster.run_for(1)
        raise AssertionError("the cluster has not grown")


def all_of(cluster: WholeCluster) -> list[WholeBroker]:
    return cluster.running


def first_broker(cluster: WholeCluster) -> list[WholeBroker]:
    return [node for node in cluster.running if node.node_id == 1]


def newcomers(cluster: WholeCluster) -> list[WholeBroker]:
    return [node for node in cluster.running if node.node_id != 1]


def lives_until_grown(
    chosen: Callable[[WholeCluster], list[WholeBroker]],
) -> Iterator[CutLife]:
    """Yield a life for each record of the growth after which the power can be cut."""
    records = 0
    while True:
        life = CutLife(records, chosen)
        life.run()
        yield life
        if not life.is_cut:
            return
        records += 1


@pytest.mark.parametrize("chosen", [all_of, first_broker, newcomers], ids=lambda one: one.__name__)
def test_the_power_is_cut_after_each_record_of_a_growth(
    chosen: Callable[[WholeCluster], list[WholeBroker]],
) -> None:
    cut = sum(life.is_cut for life in lives_until_grown(chosen))
    assert cut >= RECORDS_MIN


@pytest.mark.parametrize("first", range(0, LIVES, LIVES_IN_ONE))
def test_a_cluster_grows_whatever_fails_on_the_way(first: int) -> None:
    live("growth", (first, LIVES_IN_ONE), lambda seed: GrowthLife(seed).run())


@pytest.mark.slow
@pytest.mark.parametrize("part", parts_of(1_000), ids=str)
def test_a_great_many_lives(part: tuple[int, int]) -> None:
    live("growth, many lives", part, lambda seed: GrowthLife(seed).run())
