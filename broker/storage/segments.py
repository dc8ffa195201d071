"""The segments of one log: finds the segment with an offset, writes the active one, keeps some
open.

There is always at least one segment, and the last is active. If a roll fails, the list of segments
stays as it was, and left-over files are removed before the next write.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from broker.storage import txn_index
from broker.storage.disk import Disk, DiskFile, FileRegion
from broker.storage.dropped import unlink_if_there
from broker.storage.errors import DiskError
from broker.storage.outcomes import NO_SEGMENT, ReadResult, StagedBatch
from broker.storage.segment import DELETED_SUFFIX, Segment, SegmentState
from broker.storage.txn_index import AbortedEntry, AbortedRange

WARM_SEGMENTS_MAX = 3
"""The number of closed segments per log that keep a file descriptor and indexes in memory. The most
recently used ones are kept.

The number suffices for readers at three different offsets. It is small, because the indexes of 1
GiB take 5 MiB, and a log that rolls keeps this many even if no reader needs them.
"""


class SegmentsState(NamedTuple):
    """The state of the segment list, to return to after a failed write."""

    segment_count: int
    closed_bytes: int
    active: SegmentState


class Segments:
    """The segments of a log, oldest first."""

    __slots__ = (
        "_base_offsets",
        "_disk",
        "_folder",
        "_repairs",
        "_row",
        "_unsynced",
        "_warm",
        "active",
        "closed_bytes",
        "roll_count",
        "stretches",
    )

    def __init__(self, disk: Disk, folder: str, row: list[Segment]) -> None:
        self._disk = disk
        self._folder = folder
        self._row = row
        self._base_offsets = [segment.base_offset for segment in row]
        self._warm: list[Segment] = []
        """Closed segments that stay loaded, the last used one at the end."""
        self._repairs: dict[str, int] = {}
        """The files left by a failed write: the size to truncate each file to, or -1 to remove
        it."""
        self._unsynced: list[Segment] = []
        """Closed segments whose files must still be fsynced."""
        self.active = row[-1]
        self.closed_bytes = sum(segment.size_bytes for segment in row[:-1])
        self.roll_count = 0
        self.stretches = False
        """True if files are extended ahead of writes, which is faster when every write is
        fsynced."""

    def __len__(self) -> int:
        return len(self._row)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._row)

    @property
    def start_offset(self) -> int:
        return self._base_offsets[0]

    @property
    def last_base_offset(self) -> int:
        return self._base_offsets[-1]

    def holding(self, offset: int) -> Segment:
        """Return the segment with this offset, and keep it loaded for the next reads."""
        if offset >= self.active.base_offset:
            return self.active
        segment = self._row[max(bisect_right(self._base_offsets, offset) - 1, 0)]
        self._keep_warm(segment)
        return segment

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, min_one_batch: bool
    ) -> ReadResult:
        """Return whole batches of one segment from `offset`, all below `limit_offset`."""
        segment = self.holding(offset)
        position = segment.locate(offset)
        while position >= segment.size_bytes and segment is not self.active:
            # A cleaning left no batch from this offset to the end of the segment.
            segment, position = self.after(segment), 0
            if segment is not self.active:
                self._keep_warm(segment)
        end = segment.locate(limit_offset)
        readable_bytes = max(end - position, 0)
        if readable_bytes > max_bytes:
            end = segment.whole_batches_end(position, max_bytes, min_one_batch=min_one_batch)
        length = max(end - position, 0)
        return ReadResult(
            FileRegion(segment.file, position, length) if length else None,
            length,
            segment.next_offset,
            readable_bytes,
            segment is not self.active and limit_offset >= segment.next_offset,
        )

    def at(self, offset: int) -> Segment:
        """Return the segment with this offset."""
        return self._row[max(bisect_right(self._base_offsets, offset) - 1, 0)]

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """Return the segment with this offset and all later ones."""
        first = max(bisect_right(self._base_offsets, offset) - 1, 0)
        return (self._row[number] for number in range(first, len(self._row)))

    def base_of(self, number: int) -> int:
        """Return the base offset of the segment with this index."""
        return self._base_offsets[number]

    def closed(self) -> list[Segment]:
        """Return all segments except the active one."""
        return self._row[:-1]

    def after(self, segment: Segment) -> Segment:
        """Return the next segment. Every segment except the active one has a next one."""
        return self._row[bisect_right(self._base_offsets, segment.base_offset)]

    def replace(self, old: Sequence[Segment], new: Segment) -> list[DiskFile]:
        """Replace some closed segments with one new segment.

        Return the old files that are still open.
        """
        first = self._row.index(old[0])
        self._row[first : first + len(old)] = [new]
        self._base_offsets[first : first + len(old)] = [new.base_offset]
        self.closed_bytes += new.size_bytes - sum(segment.size_bytes for segment in old)
        self._warm = [segment for segment in self._warm if segment not in old]
        self._unsynced = [segment for segment in self._unsynced if segment not in old]
        new.unload()
        return [file for segment in old if (file := segment.let_go()) is not None]

    def to_sync(self, offset: int) -> tuple[list[Segment], list[DiskFile]]:
        """Return the closed segments whose index files must be fsynced, before `indexes_synced`;
        and the open files to fsync: those index files, and all segments with data at or above the
        offset.

        Segments that were closed since the last fsync are included. A failed write can have left
        batches in them that were truncated again, and a power cut must not restore these batches.
        """
        closed = list(self._unsynced)
        indexes = [file for segment in closed for file in segment.indexes.unsynced_files()]
        segments = [one for one in closed if one.next_offset <= offset]
        segments += self.from_offset(offset)
        files = [segment.file for segment in segments]
        self.unload_cold(segments)
        return closed, files + indexes

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedRange]:
        """Return every aborted transaction with data in [start, end), by first offset."""
        searched: list[Segment] = []

        def indexes() -> Iterator[Sequence[AbortedEntry]]:
            for segment in self.from_offset(start_offset):
                searched.append(segment)
                yield segment.aborted()

        found = txn_index.overlapping(indexes(), start_offset, end_offset)
        self.unload_cold(searched)
        return found

    def indexes_synced(self, segments: Sequence[Segment]) -> None:
        """Record that the index files of these segments are durable."""
        for segment in segments:
            segment.indexes.is_unsynced = False
        self._unsynced = [one for one in self._unsynced if one.indexes.is_unsynced]

    def unload_cold(self, searched: Iterable[Segment]) -> None:
        """Unload the segments that a search opened, except the active one and the kept ones."""
        for segment in searched:
            if segment is not self.active and segment not in self._warm and segment.is_loaded:
                segment.unload()

    def roll(self, base_offset: int, interval_bytes: int, now_ms: int) -> None:
        """Start a new segment at or above the end. On DiskError nothing has changed."""
        old = self.active
        new = Segment(self._disk, self._folder, base_offset, interval_bytes, now_ms)
        try:
            new.create()
        except DiskError:
            self._repairs[new.log_path] = -1
            raise
        old.close_for_writing()
        self._unsynced.append(old)
        self._row.append(new)
        self._base_offsets.append(new.base_offset)
        self.closed_bytes += old.size_bytes
        self.active = new
        self.roll_count += 1
        self._keep_warm(old)

    def write_run(self, run: Sequence[StagedBatch], now_ms: int) -> None:
        """Append batches with one write call. On DiskError nothing has changed."""
        segment = self.active
        size_bytes = sum([one.size_bytes for one in run])
        try:
            segment.write([one.batch for one in run], size_bytes, stretches=self.stretches)
        except DiskError:
            # The state of the segments includes only written batches, so after the failure this
            # state is restored.
            self._take_back(self._state())
            raise
        segment.written_ms = now_ms
        for one in run:
            segment.take(one.last_offset, one.size_bytes, one.max_timestamp_ms)
        segment.mark_end()

    def write_runs(self, staged: Sequence[StagedBatch], interval_bytes: int, now_ms: int) -> None:
        """Append batches as `write_run` does, and roll to a new segment before each batch that
        needs one.
        """
        before = self._state()
        starts = [number for number, one in enumerate(staged) if one.segment_base != NO_SEGMENT]
        try:
            if starts[0]:
                self.write_run(staged[: starts[0]], now_ms)
            for start, end in zip(starts, [*starts[1:], len(staged)], strict=True):
                self.roll(staged[start].segment_base, interval_bytes, now_ms)
                self.write_run(staged[start:end], now_ms)
        except DiskError:
            self._take_back(before)
            raise

    def _state(self) -> SegmentsState:
        return SegmentsState(len(self._row), self.closed_bytes, self.active.state())

    def _take_back(self, before: SegmentsState) -> None:
        """Return to the state before a failed write.

        Files are truncated and removed immediately. If the disk refuses, `repair` does it later.
        """
        count, self.closed_bytes, state = before
        for segment in self._row[count:]:
            self._repairs.update((path, -1) for path in segment.paths())
        del self._row[count:], self._base_offsets[count:]
        self.active = self._row[-1]
        self._unsynced = [one for one in self._unsynced if one in self._row[:-1]]
        self.active.restore(state)
        self._repairs[self.active.log_path] = self.active.size_bytes
        if self.active in self._warm:
            self._warm.remove(self.active)
        try:
            self.repair()
        except DiskError:
            # `repair` tries again before the next write, because a write must not follow left-over
            # bytes.
            return

    def repair(self) -> None:
        """Remove the bytes that a failed write has left. Raises DiskError while the disk refuses
        this."""
        while self._repairs:
            path, size_bytes = next(iter(self._repairs.items()))
            if size_bytes < 0:
                unlink_if_there(self._disk, path)
            else:
                self._disk.open(path).truncate(size_bytes)
            del self._repairs[path]

    def drop_oldest(self, count: int) -> tuple[list[str], list[DiskFile]]:
        """Take closed segments out of service by renaming their files.

        Returns the new names and the files that are still open. Stops when the disk refuses. The
        log file of a segment is renamed first. After that the segment is out of service even if the
        next renames fail, because the next start removes index files without a log file.
        """
        paths: list[str] = []
        held: list[DiskFile] = []
        for _ in range(min(count, len(self._row) - 1)):
            oldest = self._row[0]
            for number, path in enumerate(oldest.paths()):
                try:
                    self._disk.rename(path, path + DELETED_SUFFIX)
                except DiskError:
                    if not number:
                        return paths, held
                    continue
                paths.append(path + DELETED_SUFFIX)
            del self._row[0], self._base_offsets[0]
            self.closed_bytes -= oldest.size_bytes
            if oldest in self._unsynced:
                self._unsynced.remove(oldest)
            if oldest in self._warm:
                self._warm.remove(oldest)
            if (file := oldest.let_go()) is not None:
                held.append(file)
        return paths, held

    def finish_files(self) -> list[DiskFile]:
        """Finish every file for the start after a clean stop. Returns the files to fsync."""
        files: list[DiskFile] = []
        for segment in self._row:
            segment.finish_files()
            files += segment.indexes.unsynced_files()
        return files

    def _keep_warm(self, segment: Segment) -> None:
        if segment in self._warm:
            self._warm.remove(segment)
        self._warm.append(segment)
        if len(self._warm) > WARM_SEGMENTS_MAX:
            self._warm.pop(0).unload()
