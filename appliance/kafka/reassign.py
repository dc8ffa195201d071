"""Asks a cluster for the places of its replicas, and starts, follows and cancels reassignments.

The module `move_plan` makes the plan and is pure. The brokers carry out a reassignment without
further commands. So every function here can be called again, and none has to run until a
reassignment ends.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from appliance.kafka.move_plan import PlacedPartition
from appliance.kafka.reassignment_files import Folders, Targets
from appliance.kafka.topics import views
from appliance.output import CommandError, Exit, size_text
from protocol.client.admin_types import ConfigResource
from protocol.client.cluster import Cluster
from protocol.client.config_admin import describe_configs
from protocol.client.log_admin import LogDir, describe_log_dirs
from protocol.client.metadata import BrokerInfo
from protocol.client.reassignment_admin import (
    Reassignment,
    alter_reassignments,
    list_reassignments,
)
from protocol.client.topic_details import PartitionDetails, TopicDetails, describe_topics
from protocol.copy_progress import CopyEstimate, CopyProgress, CopySample
from protocol.errors import ApiError
from protocol.reassignment import original_replicas, target_replicas
from protocol.types import TopicPartition

CORDON = "cordoned.log.dirs"

SLICE_MAX = 500
"""The largest number of partitions in one request, so that the controller can answer other requests
in between."""

FAULTS_SHOWN_MAX = 10
POLL_S = 1.0
SAMPLE_S = 3.0
"""The time in seconds between two measurements of copies."""
IDLE_POLLS_MAX = 5
"""The number of polls without any move after which all brokers are assumed to have the newest
metadata."""

ROOM_MIN_BYTES = 1 << 30
"""The least number of bytes that must stay free on a broker after a move, in addition to a tenth of
the copied bytes."""


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


@dataclass(frozen=True, slots=True)
class ReplicaFolders:
    """The folders of each broker, and the folder of each replica."""

    paths: Mapping[int, Sequence[str]]
    replicas: Folders


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The sizes of replicas, and the free space of brokers, all in bytes."""

    replicas: Mapping[tuple[TopicPartition, int], int]
    """The size of each replica, by partition and broker."""
    largest: Mapping[TopicPartition, int]
    """The size of the largest replica of each partition."""
    usable: Mapping[int, int | None]
    """The free space of each broker; None if the broker does not report it."""

    def missing(self, tp: TopicPartition, broker: int) -> int:
        """Return the number of bytes that a broker lacks of a partition. The broker can have a part
        of the replica already."""
        return max(0, self.largest.get(tp, 0) - self.replicas.get((tp, broker), 0))


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


async def log_dirs(cluster: Cluster, brokers: Collection[int]) -> dict[int, tuple[LogDir, ...]]:
    """Return the log folders of these brokers. A broker that does not answer is left out."""
    answers = await describe_log_dirs(cluster, sorted(brokers))
    return {node_id: found for node_id, found in answers.items() if isinstance(found, tuple)}


async def disk_use(cluster: Cluster, brokers: Collection[int]) -> DiskUse:
    """Ask these brokers for the sizes of their replicas, and for their free space.

    A broker that does not answer is left out.
    """
    replicas: dict[tuple[TopicPartition, int], int] = {}
    largest: dict[TopicPartition, int] = {}
    usable: dict[int, int | None] = {}
    for node_id, folders in (await log_dirs(cluster, brokers)).items():
        for folder in folders:
            usable[node_id] = folder.usable_bytes
            for one in folder.replicas:
                replicas[one.tp, node_id] = one.size_bytes
                largest[one.tp] = max(largest.get(one.tp, 0), one.size_bytes)
    return DiskUse(replicas, largest, usable)


async def folders_of(cluster: Cluster, brokers: Collection[int]) -> ReplicaFolders:
    """Ask for the folders of these brokers, and of their replicas.

    A broker that does not answer is left out.
    """
    replicas: dict[tuple[TopicPartition, int], str] = {}
    paths: dict[int, list[str]] = {}
    for node_id, folders in (await log_dirs(cluster, brokers)).items():
        paths[node_id] = [folder.path for folder in folders]
        replicas |= {
            (one.tp, node_id): folder.path for folder in folders for one in folder.replicas
        }
    return ReplicaFolders(paths, replicas)


def check_folders(wanted: Folders, found: ReplicaFolders) -> None:
    """Raise CommandError for a plan that names a folder which its broker does not have."""
    for (tp, broker), folder in sorted(wanted.items()):
        paths = found.paths.get(broker, [])
        if paths and folder not in paths:
            raise CommandError(
                f"{tp}: broker {broker} has no folder {folder}; it has {', '.join(paths)}. "
                "Expected any",
                Exit.NOT_FOUND,
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


def check_room(targets: Targets, found: ClusterReplicas, disks: DiskUse) -> list[str]:
    """Return a sentence for each broker whose disk is too small for the copies of a plan.

    The copies of reassignments in progress are included, because they need space too. Bytes that
    are already copied are not included.
    """
    needed = Counter[int]()
    for tp, partition in found.partitions():
        target = targets.get(tp, found.future(tp, partition))
        for broker in target:
            if broker not in partition.in_sync_replicas:
                needed[broker] += disks.missing(tp, broker)
    for tp, moving in found.moving.items():
        if tp.topic not in found.topics:
            for broker in moving.adding:
                needed[broker] += disks.missing(tp, broker)
    short = []
    for broker, bytes_to_copy in sorted(needed.items()):
        wanted = bytes_to_copy + bytes_to_copy // 10 + ROOM_MIN_BYTES
        free = disks.usable.get(broker)
        if free is not None and bytes_to_copy and free < wanted:
            short.append(
                f"broker {broker} has {size_text(free)} free and needs {size_text(wanted)}: "
                f"{size_text(bytes_to_copy)} to copy, a tenth of it, and 1 GiB"
            )
    return short


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


class CopyWatch:
    """Measures the copies of a plan while the command follows it."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._next_s = clock_s()
        self._progress = CopyProgress()
        self._copies: frozenset[tuple[TopicPartition, int]] = frozenset()
        self.estimate: CopyEstimate | None = None
        """The present estimate of the copies; None if nothing is copied."""

    async def look(self, cluster: Cluster, found: ClusterReplicas, targets: Targets) -> None:
        """Measure the copies if the next measurement is due."""
        now_s = self._clock_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + SAMPLE_S
        copies = frozenset(
            (tp, broker)
            for tp, moving in found.moving.items()
            if tp in targets and (partition := found.find(tp)) is not None
            for broker in moving.adding
            if broker not in partition.in_sync_replicas
        )
        if copies != self._copies:
            self._copies, self._progress = copies, CopyProgress()
        if not copies:
            self.estimate = None
            return
        disks = await disk_use(cluster, found.brokers)
        sample = CopySample(
            now_s,
            sum(disks.missing(tp, broker) for tp, broker in copies),
            sum(disks.largest.get(tp, 0) for tp, _ in copies),
        )
        self.estimate = self._progress.add(sample)


async def follow(
    cluster: Cluster, targets: Targets, left: Callable[[int, CopyEstimate | None], None]
) -> list[TopicPartition]:
    """Wait until all partitions have their targets. Return the partitions that neither move nor
    have their targets.

    Such partitions were cancelled, or got another target. `left` is called with the number of
    partitions that do not have their targets yet, and with the estimate of their copies. A broker
    can be behind the controller, so its answer is accepted only when it is the same several times.
    """
    open_targets = dict(targets)
    watch = CopyWatch()
    idle_polls = 0
    while True:
        found = await look(cluster, {tp.topic for tp in open_targets})
        states = {tp: found.state(tp, target) for tp, target in open_targets.items()}
        open_targets = {
            tp: targets[tp] for tp, state in states.items() if state is not MoveState.DONE
        }
        await watch.look(cluster, found, open_targets)
        left(len(open_targets), watch.estimate)
        idle_polls = 0 if MoveState.MOVING in states.values() else idle_polls + 1
        if not open_targets or idle_polls == IDLE_POLLS_MAX:
            return sorted(open_targets)
        await asyncio.sleep(POLL_S)


async def look_at_moves(cluster: Cluster) -> ClusterReplicas:
    """Ask for the reassignments in progress, and for their topics."""
    moving = await list_reassignments(cluster)
    return await look(cluster, {tp.topic for tp in moving})


async def look_at_copies(cluster: Cluster) -> tuple[ClusterReplicas, DiskUse]:
    """Ask for the reassignments in progress, and for the sizes of their replicas."""
    found = await look_at_moves(cluster)
    return found, await disk_use(cluster, found.brokers if found.moving else ())


async def look_for_cancel(cluster: Cluster) -> tuple[ClusterReplicas, dict[str, int | None]]:
    """Ask for the reassignments in progress, and for `min.insync.replicas` of their topics."""
    found = await look_at_moves(cluster)
    described = await views(cluster, sorted(found.topics))
    return found, {topic.name: topic.min_isr for topic in described}
