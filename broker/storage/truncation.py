"""Truncates a log, or resets it completely, so that no power cut restores the removed data.

The event loop plans the truncation (`begin_truncation`, `begin_reset`). From then on every new
checkpoint contains the lowered offsets. A thread then does the steps that wait for the device, in
this order:

1. Write the lowered checkpoint, because a log that ends below its recovery point is damaged.
2. Remove the files that an unfinished cleaning left.
3. Unlink segments from the last one down, so that a power cut leaves the beginning of the log.
4. Shorten the last segment that stays.
5. Fsync all files and load the log again.

After that `Log.truncated` applies the result in the event loop. Keep this order: the recovery point
must be lowered on the disk before the log is truncated, and never after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.storage import recovery
from broker.storage.disk import Disk
from broker.storage.dropped import unlink_if_there
from broker.storage.gap_mark import GapMark, gap_mark_path
from broker.storage.log import Log
from broker.storage.node_checkpoints import CheckpointJob
from broker.storage.producer_files import snapshot_offsets, snapshot_path
from broker.storage.segment import Segment
from broker.storage.swap import discard_swaps

NO_SNAPSHOT = -1
"""The `snapshot_limit` at which all producer snapshots are removed."""

NOTHING_VOUCHED_FOR = -1
"""The `recovery_point` of a log without durable data. It is below every log start offset."""


@dataclass(frozen=True, slots=True)
class TruncationPlan:
    """The files that a truncation changes, and the rules for loading the log afterwards."""

    folder: str
    unlinked: tuple[str, ...]
    """The files of the segments to remove, those of the last segment first."""
    shortened: tuple[str, int] | None
    """The log file of which only the beginning stays, and its new size in bytes; None if no segment
    stays."""
    snapshot_limit: int
    """Producer snapshots above this offset include truncated batches."""
    rules: recovery.LoadRules
    marks_gaps: bool = False
    """True if the gap mark must be durable before the truncation, because the log is truncated in a
    cleaned part."""


def begin_truncation(log: Log, offset: int, now_ms: int) -> TruncationPlan | None:
    """Decide to keep only what is below `offset`. A batch that spans `offset` is removed whole.

    Returns None if there is nothing to truncate. Otherwise the rules of `Log.prepare_truncation`
    apply from here on. Raises DiskError or CorruptionError if the position of `offset` cannot be
    read; the log then stays in service. A log that begins above `offset` is reset to `offset`,
    because the records before its start are already deleted, and a log cannot end below its start.
    """
    if offset >= log.log_end_offset:
        return None
    if offset < log.log_start_offset:
        return begin_reset(log, offset, now_ms)
    row = list(log.segments)
    # A segment that begins at the new end stays, although it becomes empty. Without it, the
    # previous segment would become the active one. That segment can have been cleaned, and gaps in
    # an active segment look like a torn tail.
    count = max(1, sum(segment.base_offset <= offset for segment in row))
    last = row[count - 1]
    # Raise the error of a log that cannot be read before anything is changed.
    shortened = last.log_path, last.locate(offset)
    log.prepare_truncation()
    # Cleaning can have left gaps above the new recovery point. The gap mark tells recovery that
    # they are neither a torn tail nor damage.
    marks_gaps = not log.has_gap_mark and last.base_offset < log.cleaned_offset
    log.has_gap_mark = log.has_gap_mark or marks_gaps
    # The end of the last whole batch becomes known only when the log is loaded again.
    log.recovery_point = min(log.recovery_point, last.base_offset)
    log.high_watermark = min(log.high_watermark, offset)
    log.cleaned_offset = min(log.cleaned_offset, offset)
    log.leader_epochs.truncate_from_end(offset)
    unlinked = _paths(row[count:])
    return TruncationPlan(log.folder, unlinked, shortened, offset, _rules(log, now_ms), marks_gaps)


def begin_reset(log: Log, offset: int, now_ms: int) -> TruncationPlan:
    """Let the log continue empty at `offset`. The returned plan deletes all its files."""
    log.prepare_truncation()
    log.log_start_offset = log.high_watermark = offset
    # No data is durable any more, so a start drops all segments that it finds.
    log.recovery_point = NOTHING_VOUCHED_FOR
    log.cleaned_offset = -1
    log.has_gap_mark = False
    log.leader_epochs.truncate_from_end(0)
    return TruncationPlan(
        log.folder, _paths(list(log.segments)), None, NO_SNAPSHOT, _rules(log, now_ms)
    )


def _paths(segments: Sequence[Segment]) -> tuple[str, ...]:
    return tuple(path for segment in reversed(segments) for path in segment.paths())


def _rules(log: Log, now_ms: int) -> recovery.LoadRules:
    return recovery.LoadRules(
        log_start_offset=log.log_start_offset,
        recovery_point=log.recovery_point,
        epochs=tuple(log.leader_epochs.entries),
        interval_bytes=log.config.index_interval_bytes,
        expiration_ms=log.producer_state.expiration_ms,
        producer_count_max=log.producer_state.count_max,
        is_clean=False,
        now_ms=now_ms,
        has_gaps=log.cleaned_offset >= 0,
        has_gap_mark=log.has_gap_mark,
    )


class Truncation:
    """One truncation or reset. After a DiskError that is not final, `perform` can be called again.
    Until it has succeeded, the log cannot be used.
    """

    __slots__ = ("_checkpoint", "_disk", "_plan")

    def __init__(self, disk: Disk, plan: TruncationPlan, checkpoint: CheckpointJob) -> None:
        """`checkpoint` must have been taken after the decision."""
        self._disk = disk
        self._plan = plan
        self._checkpoint = checkpoint

    def perform(self) -> recovery.LoadedLog:
        """Truncate the files. Call this in the thread that writes checkpoints, and pass the result
        to `Log.truncated`.
        """
        disk, plan = self._disk, self._plan
        if plan.marks_gaps:
            GapMark(disk, plan.folder).perform()
        self._checkpoint.perform()
        discard_swaps(disk, plan.folder)
        for path in plan.unlinked:
            unlink_if_there(disk, path)
        for offset in snapshot_offsets(disk, plan.folder):
            if offset > plan.snapshot_limit:
                unlink_if_there(disk, snapshot_path(plan.folder, offset))
        if plan.shortened is None:
            unlink_if_there(disk, gap_mark_path(plan.folder))
        else:
            path, size_bytes = plan.shortened
            file = disk.open(path)
            file.truncate(size_bytes)
            file.datasync()
        disk.sync_folder(plan.folder)
        loaded = recovery.load(disk, plan.folder, plan.rules)
        # Loading removes files that no longer fit. Sync the folder, so that a power cut does not
        # bring them back after later writes.
        disk.sync_folder(plan.folder)
        return loaded
