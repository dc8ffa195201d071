"""A cluster that does at once what each step of a removal or a growth asks for."""

from dataclasses import dataclass, field

from appliance.kafka.membership_steps import (
    AddReplicas,
    Cordon,
    GiveUpLeaders,
    GiveVote,
    MembershipStep,
    RaiseMinIsr,
    SpreadLeaders,
    StartBroker,
    StartMoves,
    StopBroker,
    TakeVote,
    Uncordon,
    Unregister,
    WaitForMetadata,
    WaitForMoves,
    WaitForReplicas,
    WaitForService,
)
from appliance.kafka.reassign import ClusterReplicas
from protocol.client.broker_admin import RegisteredBroker
from protocol.client.metadata import BrokerInfo
from protocol.client.quorum_admin import QuorumInfo, QuorumReplica
from protocol.client.reassignment_admin import Reassignment
from protocol.client.topic_details import PartitionDetails, TopicDetails
from protocol.types import TopicPartition, Uuid

NOW_MS = 100_000


@dataclass
class ClusterModel:
    """The state of a cluster, and what steps do to it.

    `behind` are observers that do not have all metadata. Waiting for one lets it catch up, and
    waiting for a broker that is away starts it.
    """

    partitions: dict[str, list[list[int]]]
    registered: set[int]
    voters: set[int]
    away: set[int] = field(default_factory=set)
    cordoned: set[int] = field(default_factory=set)
    moving: dict[TopicPartition, Reassignment] = field(default_factory=dict)
    leaders: dict[TopicPartition, int] = field(default_factory=dict)
    factors: dict[str, int] = field(default_factory=dict)
    behind: set[int] = field(default_factory=set)
    min_isrs: dict[str, int] = field(default_factory=dict)
    empty: set[tuple[TopicPartition, int]] = field(default_factory=set)
    """The replicas that a broker with an empty disk has not copied yet."""
    controller: int = 1

    def in_sync(self, tp: TopicPartition) -> tuple[int, ...]:
        moving = self.moving.get(tp)
        adding = () if moving is None else moving.adding
        return tuple(
            one
            for one in self.members(tp)
            if one not in adding and one not in self.away and (tp, one) not in self.empty
        )

    def members(self, tp: TopicPartition) -> list[int]:
        return self.partitions[tp.topic][tp.partition]

    def all_partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(name, number)
            for name, rows in self.partitions.items()
            for number in range(len(rows))
        ]

    def leader(self, tp: TopicPartition) -> int | None:
        in_sync = self.in_sync(tp)
        chosen = self.leaders.get(tp)
        return chosen if chosen in in_sync else next(iter(in_sync), None)

    def replicas(self) -> ClusterReplicas:
        live = self.registered - self.away
        topics = {
            name: TopicDetails(
                name,
                Uuid(int=1),
                False,
                tuple(
                    self._partition(TopicPartition(name, number)) for number in range(len(members))
                ),
            )
            for name, members in self.partitions.items()
        }
        return ClusterReplicas(
            {one: BrokerInfo(one, "h", one) for one in sorted(live)}, topics, dict(self.moving)
        )

    def registrations(self) -> dict[int, RegisteredBroker]:
        return {
            one: RegisteredBroker(one, "h", one, None, one in self.away) for one in self.registered
        }

    def cordoned_in_service(self) -> frozenset[int]:
        return frozenset(self.cordoned & (self.registered - self.away))

    def quorum(self) -> QuorumInfo:
        observers = self.registered - self.away - self.voters
        return QuorumInfo(
            self.controller,
            1,
            10,
            tuple(self._quorum_replica(one) for one in sorted(self.voters)),
            tuple(self._quorum_replica(one) for one in sorted(observers)),
            {},
        )

    def _quorum_replica(self, node_id: int) -> QuorumReplica:
        caught_up_ms = NOW_MS - 60_000 if node_id in self.behind else NOW_MS
        return QuorumReplica(node_id, Uuid(int=node_id), 10, NOW_MS, caught_up_ms)

    def _partition(self, tp: TopicPartition) -> PartitionDetails:
        replicas = tuple(self.partitions[tp.topic][tp.partition])
        in_sync = self.in_sync(tp)
        leader = self.leader(tp)
        return PartitionDetails(tp.partition, leader, 1, replicas, in_sync, (), (), ())

    def take(self, step: MembershipStep) -> None:
        match step:
            case WaitForService(node_id):
                self.registered.add(node_id)
                self.away.discard(node_id)
            case WaitForMetadata(node_id):
                self.behind.discard(node_id)
            case Cordon(node_id):
                self.cordoned.add(node_id)
            case Uncordon(node_id):
                self.cordoned.discard(node_id)
            case StartMoves(targets) | AddReplicas(targets):
                for tp, target in targets.items():
                    self.start(tp, target)
            case GiveUpLeaders(tps) | SpreadLeaders(tps):
                for tp in tps:
                    self.leaders[tp] = self.partitions[tp.topic][tp.partition][0]
            case WaitForMoves(targets) | WaitForReplicas(targets):
                self.complete(min(set(targets) & set(self.moving), default=None))
                copied = min((one for one in self.empty if one[0] in targets), default=None)
                self.empty = {one for one in self.empty if one != copied}
            case RaiseMinIsr(values):
                self.min_isrs |= dict(values)
            case GiveVote() | TakeVote():
                self._change_voters(step)
            case StartBroker(node_id):
                assert node_id not in self.voters, "a voter is not started with an empty disk"
                self.away.discard(node_id)
                self.empty |= {
                    (tp, node_id) for tp in self.all_partitions() if node_id in self.members(tp)
                }
            case StopBroker(node_id):
                assert all(node_id not in one for rows in self.partitions.values() for one in rows)
                assert node_id not in self.voters
                self.away.add(node_id)
            case Unregister(node_id):
                assert node_id in self.away, "the controller refuses a broker in service"
                self.registered.remove(node_id)

    def _change_voters(self, step: GiveVote | TakeVote) -> None:
        assert step.directory_id == Uuid(int=step.node_id)
        if isinstance(step, GiveVote):
            assert step.node_id not in self.behind, "the quorum refuses an observer that is behind"
            self.voters.add(step.node_id)
            return
        self.voters.remove(step.node_id)
        if self.controller == step.node_id:
            self.controller = min(self.voters)

    def start(self, tp: TopicPartition, target: tuple[int, ...]) -> None:
        before = self.moving.get(tp)
        adding = () if before is None else before.adding
        original = [one for one in self.partitions[tp.topic][tp.partition] if one not in adding]
        added = tuple(one for one in target if one not in original)
        removed = tuple(one for one in original if one not in target)
        self.leaders[tp] = self.leader(tp) or -1
        self.partitions[tp.topic][tp.partition] = [*target, *removed]
        if added or removed:
            self.moving[tp] = Reassignment((*target, *removed), added, removed)
        else:
            self.moving.pop(tp, None)

    def complete(self, tp: TopicPartition | None) -> None:
        if tp is None:
            return
        moving = self.moving.pop(tp)
        self.partitions[tp.topic][tp.partition] = [
            one for one in moving.replicas if one not in moving.removing
        ]
