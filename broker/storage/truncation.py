"""Taking the end of a log away, or all of it, so that no power cut brings any of it back.

Floor: storage. The loop decides (`begin_truncation`, `begin_reset`): from then on every
checkpoint that is taken holds the lowered offsets. A thread does what waits for the device, in
this order: the lowered checkpoint, for a log that ends below its recovery point is damaged; what a
cleaning has left half done; the segments from the last one down, so that what a power cut leaves is
the beginning of the log; the cut; then everything is synced, whatever was vouched for, and the log
is opened anew. Back in the loop `Log.truncated` takes that over.

Keep this order: the recovery point is lowered on the disk before the log is truncated, never after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.storage import recovery
from broker.storage.disk import Disk
from broker.storage.dropped import unlink_if_there
from broker.storage.gap_mark import GapMark, gap_mark_path
from broker.storage.log import Log
from broker.storage.node_checkpoints import Checkpoint
from broker.storage.producer_files import snapshot_offsets, snapshot_path
from broker.storage.segment import Segment
from broker.storage.swap import discard_swaps

NO_SNAPSHOT = -1
"""A `snapshot_limit` that no snapshot is at or below."""

NOTHING_VOUCHED_FOR = -1
"""A `recovery_point` that is below every log's start."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The files that change, and how the log is to be opened afterwards."""

    folder: str
    unlinked: tuple[str, ...]
    """Files of the segments that go, those of the last one first."""
    shortened: tuple[str, int] | None
    """The log file that stays in part, and its new size; None when no segment stays."""
    snapshot_limit: int
    """Producer snapshots above this offset tell of what is cut."""
    rules: recovery.LoadRules
    marks_gaps: bool = False
    """Whether the gap mark must be on the disk first: the cut is in what a cleaning has left."""


def begin_truncation(log: Log, offset: int, now_ms: int) -> Cut | None:
    """Decide to keep only what lies below `offset`; a batch that spans it goes as a whole.

    None when there is nothing to cut; else what holds from here on is said by `Log.begin_cut`.
    Raises DiskError or CorruptionError where the place cannot be found, and the log serves on. A
    log that begins above `offset` is started anew there: what is in front of its start is gone
    already, and an end below the start would be no log at all.
    """
    if offset >= log.log_end_offset:
        return None
    if offset < log.log_start_offset:
        return begin_reset(log, offset, now_ms)
    row = list(log.segments)
    # One that begins at the end stays, empty: the one before it may have been cleaned, and is not
    # walked as if its gaps were torn.
    count = max(1, sum(segment.base_offset <= offset for segment in row))
    last = row[count - 1]
    # What cannot be read is not cut: until here nothing has been decided.
    shortened = last.log_path, last.locate(offset)
    log.begin_cut()
    # Offsets may be missing above the recovery point that follows: no torn tail, and no damage.
    marks_gaps = not log.has_gap_mark and last.base_offset < log.cleaned_offset
    log.has_gap_mark = log.has_gap_mark or marks_gaps
    # Where the last whole batch ends is known once the log is opened anew.
    log.recovery_point = min(log.recovery_point, last.base_offset)
    log.high_watermark = min(log.high_watermark, offset)
    log.cleaned_offset = min(log.cleaned_offset, offset)
    log.leader_epochs.truncate_from_end(offset)
    unlinked = _paths(row[count:])
    return Cut(log.folder, unlinked, shortened, offset, _rules(log, now_ms), marks_gaps)


def begin_reset(log: Log, offset: int, now_ms: int) -> Cut:
    """Decide to drop everything and go on at `offset`."""
    log.begin_cut()
    log.log_start_offset = log.high_watermark = offset
    # Nothing is vouched for: a start drops what it finds, wherever that begins.
    log.recovery_point = NOTHING_VOUCHED_FOR
    log.cleaned_offset = -1
    log.has_gap_mark = False
    log.leader_epochs.truncate_from_end(0)
    return Cut(log.folder, _paths(list(log.segments)), None, NO_SNAPSHOT, _rules(log, now_ms))


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
    """One truncation or reset. `perform` may be called again after a DiskError that is not final;
    until it has succeeded the log is of no use."""

    __slots__ = ("_checkpoint", "_cut", "_disk")

    def __init__(self, disk: Disk, cut: Cut, checkpoint: Checkpoint) -> None:
        """`checkpoint` was taken after the decision."""
        self._disk = disk
        self._cut = cut
        self._checkpoint = checkpoint

    def perform(self) -> recovery.Loaded:
        """Do it, in the thread that writes checkpoints; what it gives is for `Log.truncated`."""
        disk, cut = self._disk, self._cut
        if cut.marks_gaps:
            GapMark(disk, cut.folder).perform()
        self._checkpoint.perform()
        discard_swaps(disk, cut.folder)
        for path in cut.unlinked:
            unlink_if_there(disk, path)
        for offset in snapshot_offsets(disk, cut.folder):
            if offset > cut.snapshot_limit:
                unlink_if_there(disk, snapshot_path(cut.folder, offset))
        if cut.shortened is None:
            unlink_if_there(disk, gap_mark_path(cut.folder))
        else:
            path, size_bytes = cut.shortened
            file = disk.open(path)
            file.truncate(size_bytes)
            file.datasync()
        disk.sync_folder(cut.folder)
        loaded = recovery.load(disk, cut.folder, cut.rules)
        # Opening removes what no longer fits; it must not come back beside what is written next.
        disk.sync_folder(cut.folder)
        return loaded
