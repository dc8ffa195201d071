"""The copies that reassignments make: which disks have space for them, and how far they are."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from appliance.kafka import reassign
from appliance.kafka.reassign import ClusterReplicas, MoveState, look, look_at_moves
from appliance.kafka.reassignment_files import Folders, Targets
from appliance.output import CommandError, Exit, counted, size_text
from protocol.client.cluster import Cluster
from protocol.client.log_admin import LogDir, describe_log_dirs
from protocol.copy_progress import CopyEstimate, CopyProgress, CopySample
from protocol.types import TopicPartition

SAMPLE_S = 3.0
"""The time in seconds between two measurements of copies."""

IDLE_POLLS_MAX = 5
"""The number of polls without any move after which all brokers are assumed to have the newest
metadata."""

ROOM_MIN_BYTES = 1 << 30
"""The least number of bytes that must stay free on a broker after a move, in addition to a tenth of
the copied bytes."""


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


def copied_text(targets: Targets, found: ClusterReplicas, disks: DiskUse) -> list[str]:
    """Return a sentence for each broker that a plan copies replicas to."""
    copied: dict[int, list[TopicPartition]] = {}
    for tp, target in sorted(targets.items()):
        partition = found.find(tp)
        for one in target:
            if partition is None or one not in partition.in_sync_replicas:
                copied.setdefault(one, []).append(tp)
    return [
        f"will be copied to broker {one}: {counted(len(tps), 'replica')}, "
        f"{size_text(sum(disks.missing(tp, one) for tp in tps))}"
        for one, tps in sorted(copied.items())
    ]


class CopyWatch:
    """Measures the copies of a plan while the command follows it."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._next_s = clock_s()
        self._progress = CopyProgress()
        self._logs: dict[tuple[TopicPartition, int], int] = {}
        """The copies of the last sample, each with the size of its leader's log."""
        self.estimate: CopyEstimate | None = None
        """The present estimate of the copies; None if nothing is copied."""

    async def look(self, cluster: Cluster, found: ClusterReplicas, targets: Targets) -> None:
        """Measure the copies if the next measurement is due."""
        now_s = self._clock_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + SAMPLE_S
        copies = {
            (tp, broker)
            for tp, moving in found.moving.items()
            if tp in targets and (partition := found.find(tp)) is not None
            for broker in moving.adding
            if broker not in partition.in_sync_replicas
        }
        gone = self._logs.keys() - copies
        if self._logs.keys() >= copies and all(_is_complete(one, found, targets) for one in gone):
            self._progress.complete(sum(self._logs.pop(one) for one in gone))
        else:
            self._progress = CopyProgress()
        if not copies:
            self._logs, self.estimate = {}, None
            return
        disks = await disk_use(cluster, found.brokers)
        self._logs = {(tp, broker): disks.largest.get(tp, 0) for tp, broker in copies}
        sample = CopySample(
            now_s,
            sum(disks.missing(tp, broker) for tp, broker in copies),
            sum(self._logs.values()),
        )
        self.estimate = self._progress.add(sample)


def _is_complete(
    copy: tuple[TopicPartition, int], found: ClusterReplicas, targets: Targets
) -> bool:
    """Return whether a replica that is not copied any more is in sync. The plan has only the
    partitions without their targets, so a partition that is not in it is complete."""
    tp, broker = copy
    if tp not in targets:
        return True
    partition = found.find(tp)
    return partition is not None and broker in partition.in_sync_replicas


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
        await asyncio.sleep(reassign.POLL_S)


async def look_at_copies(cluster: Cluster) -> tuple[ClusterReplicas, DiskUse]:
    """Ask for the reassignments in progress, and for the sizes of their replicas."""
    found = await look_at_moves(cluster)
    return found, await disk_use(cluster, found.brokers if found.moving else ())
