"""Asks a cluster for the places of its replicas, and starts, follows and cancels reassignments.

The module `move_plan` makes the plan and is pure. The brokers carry out a reassignment without
further commands. So every function here can be called again, and none has to run until a
reassignment ends.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from appliance.kafka.move_plan import PlacedPartition
from appliance.kafka.reassignment_files import Targets
from appliance.kafka.topics import views
from appliance.output import CommandError, Exit
from protocol.client.admin_types import ConfigResource
from protocol.client.cluster import Cluster
from protocol.client.config_admin import describe_configs
from protocol.client.metadata import BrokerInfo
from protocol.client.reassignment_admin import (
    Reassignment,
    alter_reassignments,
    list_reassignments,
)
from protocol.client.topic_details import PartitionDetails, TopicDetails, describe_topics
from protocol.errors import ApiError
from protocol.reassignment import original_replicas, target_replicas
from protocol.types import TopicPartition

CORDON = "cordoned.log.dirs"

SLICE_MAX = 500
"""The largest number of partitions in one request, so that the controller can answer other requests
in between."""

FAULTS_SHOWN_MAX = 10
NAMED_MAX = 10
"""The most partitions that a sentence names."""

POLL_S = 1.0


class MoveState(StrEnum):
    """The state of one partition of a plan."""

    DONE = "done"
    MOVING = "moving"
    OTHER = "other replicas"
    """The partition does not move, and its replicas differ from those of the plan."""
    MISSING = "no such partition"


@dataclass(frozen=True, slots=True)
class ClusterReplicas:
    """The replicas of topics, the brokers in service, and the reassignments in progress."""

    brokers: Mapping[int, BrokerInfo]
    topics: Mapping[str, TopicDetails]
    moving: Mapping[TopicPartition, Reassignment]

    def only(self, names: Collection[str]) -> "ClusterReplicas":
        """Return a copy that has only these topics, with the same brokers and reassignments."""
        return replace(self, topics={name: self.topics[name] for name in names})

    def find(self, tp: TopicPartition) -> PartitionDetails | None:
        """Return a partition; None if it does not exist."""
        topic = self.topics.get(tp.topic)
        if topic is None or topic.error:
            return None
        partitions = topic.partitions
        # Brokers list partitions in the order of their numbers, so a search is needed only if a
        # partition is missing.
        if tp.partition < len(partitions) and partitions[tp.partition].partition == tp.partition:
            return partitions[tp.partition]
        return next((one for one in partitions if one.partition == tp.partition), None)

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionDetails]]:
        """Yield all partitions."""
        for topic in self.topics.values():
            for one in topic.partitions:
                yield TopicPartition(topic.name, one.partition), one

    def future(self, tp: TopicPartition, partition: PartitionDetails) -> tuple[int, ...]:
        """Return the replicas that a partition has, or will have after its reassignment."""
        moving = self.moving.get(tp)
        if moving is None:
            return partition.replicas
        return target_replicas(moving.replicas, moving.removing)

    def original(self, tp: TopicPartition, partition: PartitionDetails) -> tuple[int, ...]:
        """Return the replicas that have all records now. This is true whether a running
        reassignment completes or is cancelled."""
        moving = self.moving.get(tp)
        return original_replicas(partition.replicas, () if moving is None else moving.adding)

    def state(self, tp: TopicPartition, target: Sequence[int]) -> MoveState:
        """Return the state of a partition with regard to its target."""
        partition = self.find(tp)
        if partition is None:
            return MoveState.MISSING
        if tp in self.moving:
            is_ours = self.future(tp, partition) == tuple(target)
            return MoveState.MOVING if is_ours else MoveState.OTHER
        return MoveState.DONE if partition.replicas == tuple(target) else MoveState.OTHER

    def absence(self, broker: int) -> str:
        """Return a sentence that says that a broker is not in service."""
        return (
            f"broker {broker} is not registered, or not in service; in service are "
            f"{', '.join(map(str, sorted(self.brokers)))}"
        )

    def placed(self) -> list[PlacedPartition]:
        """Return the partitions for a plan, with their replicas after the reassignments in
        progress."""
        return [
            PlacedPartition(tp, self.future(tp, one), frozenset(one.in_sync_replicas))
            for tp, one in self.partitions()
        ]


async def look(cluster: Cluster, names: Collection[str] | None = None) -> ClusterReplicas:
    """Ask for these topics (None: all), with their reassignments in progress. Raises ApiError and
    ClientError."""
    topics = await describe_topics(cluster, names)
    moving = await list_reassignments(cluster)
    current = await cluster.metadata((), refresh=True)
    return ClusterReplicas(current.brokers, topics, moving)


async def cordoned(cluster: Cluster, brokers: Collection[int]) -> frozenset[int]:
    """Return which of these brokers get no new replicas (KIP-1066)."""
    resources = [ConfigResource.broker(one) for one in sorted(brokers)]
    found = await describe_configs(cluster, resources, [CORDON])
    return frozenset(
        int(resource.name)
        for resource, entries in found.items()
        if CORDON in entries and entries[CORDON].value
    )


def check_targets(targets: Targets, found: ClusterReplicas, cordoned: Collection[int] = ()) -> None:
    """Raise CommandError for a plan that does not fit the cluster's topics and brokers.

    A broker that already has the replica, or is getting it, is not a fault. So a plan can be
    executed again while one of its brokers is out of service.
    """
    faults: list[str] = []
    is_missing = False
    for tp, replicas in targets.items():
        partition = found.find(tp)
        if partition is None:
            faults.append(_missing(tp, found))
            is_missing = True
            continue
        new = [one for one in replicas if one not in partition.replicas]
        faults += (f"{tp}: {found.absence(one)}" for one in new if one not in found.brokers)
        faults += (
            f"{tp}: broker {one} is cordoned ({CORDON}), so it gets no new replicas"
            for one in new
            if one in cordoned
        )
    if faults:
        more = len(faults) - FAULTS_SHOWN_MAX
        rest = [f"and {more} more"] if more > 0 else []
        text = "\n".join([*faults[:FAULTS_SHOWN_MAX], *rest])
        raise CommandError(text, Exit.NOT_FOUND if is_missing else Exit.FAILED)


def _missing(tp: TopicPartition, found: ClusterReplicas) -> str:
    topic = found.topics.get(tp.topic)
    if topic is None or topic.error:
        return f"{tp}: topic {tp.topic!r} does not exist"
    return f"{tp}: topic {tp.topic!r} has the partitions 0 to {len(topic.partitions) - 1}"


async def start(
    cluster: Cluster,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    may_resize: bool = True,
) -> dict[TopicPartition, ApiError]:
    """Start reassignments, in several requests if there are many. A target of None cancels a
    reassignment. Return the errors by partition.

    Without `may_resize`, another number of replicas is an error.
    """
    errors: dict[TopicPartition, ApiError] = {}
    ordered = sorted(targets)
    for begin in range(0, len(ordered), SLICE_MAX):
        part = ordered[begin : begin + SLICE_MAX]
        wanted = {tp: targets[tp] for tp in part}
        answers = await alter_reassignments(cluster, wanted, may_resize=may_resize)
        errors |= {tp: error for tp, error in answers.items() if error is not None}
    return errors


def refuse_errors(errors: Mapping[TopicPartition, ApiError]) -> None:
    """Raise CommandError if the controller has refused a partition."""
    if errors:
        raise CommandError("\n".join(f"{tp}: {one.message}" for tp, one in sorted(errors.items())))


async def look_at_moves(cluster: Cluster) -> ClusterReplicas:
    """Ask for the reassignments in progress, and for their topics."""
    moving = await list_reassignments(cluster)
    return await look(cluster, {tp.topic for tp in moving})


async def look_for_cancel(cluster: Cluster) -> tuple[ClusterReplicas, dict[str, int | None]]:
    """Ask for the reassignments in progress, and for `min.insync.replicas` of their topics."""
    found = await look_at_moves(cluster)
    described = await views(cluster, sorted(found.topics))
    return found, {topic.name: topic.min_isr for topic in described}


def named_partitions(tps: Sequence[TopicPartition]) -> str:
    """Return the first partitions of a list, and how many more there are."""
    more = len(tps) - NAMED_MAX
    return ", ".join(map(str, tps[:NAMED_MAX])) + (f" and {more} more" if more > 0 else "")
