"""One segment of a log: a `.log` file of batches and its indexes.

Positions are bytes in the file, offsets are the log's. `next_offset` and `size_bytes` mark the end
of the written batches. Bytes after them are left over from a failed write, or zeros of a file that
was extended ahead of its batches (decision 0012). A closed segment that is not being read has no
open file and no index in memory. The first read loads both.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from broker.storage.disk import Buffer, Disk, DiskFile
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.index_files import INDEX_SUFFIX, TIME_INDEX_SUFFIX, IndexFiles
from broker.storage.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from broker.storage.txn_index import AbortedEntry
from broker.storage.txn_index_file import TxnIndexFile
from broker.storage.walk import BatchWalk
from protocol.wire.records import PLACE, SIZE_BEFORE_LENGTH_ENDS

LOG_SUFFIX = ".log"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

BASE_DIGITS = 20

SCAN_BYTES = 8 * 1024
"""The number of bytes that are read at once in the search for a batch after an index entry."""

MARKS_MAX = 256
"""The largest number of batch positions that are remembered for readers at the end of the log."""

INDEX_WRITE_ENTRIES = 64
"""The number of unwritten index entries that causes a write of the index files."""

AHEAD_BYTES = 256 * 1024
"""The number of bytes by which a file is extended beyond the written data."""


class SegmentState(NamedTuple):
    """The state of a segment, for `restore`."""

    next_offset: int
    size_bytes: int
    first_timestamp_ms: int
    largest_timestamp_ms: int
    largest_timestamp_offset: int
    bytes_since_entry: int
    index_count: int
    time_index_count: int
    untimed_ms: int


class Segment:
    """A segment of a log. Only the last segment, the active one, is written."""

    __slots__ = (
        "_bytes_since_entry",
        "_disk",
        "_file",
        "_file_end",
        "_marks",
        "_stem",
        "base_offset",
        "created_ms",
        "first_timestamp_ms",
        "indexes",
        "interval_bytes",
        "largest_timestamp_ms",
        "largest_timestamp_offset",
        "next_offset",
        "size_bytes",
        "txn_index",
        "untimed_ms",
        "was_walked",
        "written_ms",
    )

    def __init__(
        self, disk: Disk, folder: str, base_offset: int, interval_bytes: int, created_ms: int
    ) -> None:
        self._disk = disk
        self._stem = f"{folder}/{base_offset:0{BASE_DIGITS}d}"
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.interval_bytes = interval_bytes
        self.created_ms = created_ms
        """The time of the segment's creation, or of its last write before a restart.

        The age for the roll of a segment is computed from this time.
        """
        self.written_ms = created_ms
        """The time of the last write."""
        self.untimed_ms = -1
        """The time of the last write of a batch without timestamps; -1 if there was none."""
        self.first_timestamp_ms = -1
        """The largest timestamp of the first batch, for the roll by record time."""
        self.largest_timestamp_ms = -1
        self.largest_timestamp_offset = base_offset
        """The last offset of the first batch with the largest timestamp."""
        self.was_walked = True
        """True if the indexes were built from the batches, not loaded from the index files."""
        self._file: DiskFile | None = None
        self._file_end = 0
        """The size to which the file was extended.

        The file ends at `size_bytes` unless this size is larger.
        """
        self._bytes_since_entry = 0
        self._marks: dict[int, int] = {}
        self.indexes = IndexFiles(disk, self._stem)
        self.txn_index = TxnIndexFile(disk, self._stem + TXN_INDEX_SUFFIX, base_offset)

    @property
    def newest_ms(self) -> int:
        """The timestamp of the newest record, or its arrival time if it has no timestamp.

        After a restart the file's modification time is used for all arrivals, as in Kafka.
        """
        newest_ms = max(self.largest_timestamp_ms, self.untimed_ms)
        return newest_ms if newest_ms >= 0 else self.written_ms

    # Opening and unloading.

    @property
    def log_path(self) -> str:
        return self._stem + LOG_SUFFIX

    def paths(self) -> list[str]:
        """Return the paths of the segment's files and of the snapshot at its start.

        Only the first file always exists.
        """
        return [self._stem + suffix for suffix in (*SUFFIXES, SNAPSHOT_SUFFIX)]

    def create(self) -> None:
        """Create the empty log file. A file that a failed attempt has left is replaced."""
        self._file = self._disk.open(self.log_path, create=True)
        self._file.truncate(0)

    @property
    def file(self) -> DiskFile:
        if self._file is None:
            self._file = self._disk.open(self.log_path)
        return self._file

    @property
    def index(self) -> OffsetIndex:
        index = self.indexes.offset_index
        if index is None:
            try:
                index = self.indexes.read_offset_index(self.size_bytes)
            except CorruptionError:
                index = self._rebuild_indexes().index
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self.indexes.time_index
        if index is None:
            try:
                index = self.indexes.read_time_index()
            except CorruptionError:
                index = self._rebuild_indexes().time_index
        return index

    @property
    def is_loaded(self) -> bool:
        return self._file is not None or self.indexes.is_loaded or self.txn_index.is_loaded

    def unload(self) -> None:
        """Close the file and free the indexes whose files are complete."""
        self._file = None
        self._marks.clear()
        self.indexes.unload()
        self.txn_index.unload()

    def let_go(self) -> DiskFile | None:
        """Return the open file, or None. The file is closed with the caller's last reference."""
        file, self._file = self._file, None
        return file

    def is_index_full(self, limit_bytes: int) -> bool:
        """Return True if one more entry would make an index file exceed `segment.index.bytes`."""
        # The arrays know their lengths without a call of a method, and every write asks for them.
        return (
            len(self.index.offsets) >= limit_bytes // OFFSET_ENTRY_BYTES
            or len(self.time_index.offsets) >= limit_bytes // TIME_ENTRY_BYTES - 1
        )

    def adopt_indexes(self, end_offset: int) -> None:
        """Load the index files instead of reading the batches. The caller must call `adopted` next.

        Raises CorruptionError if a file is missing or cannot belong to this segment.
        """
        self.size_bytes, self.next_offset = self._disk.size_bytes(self.log_path), end_offset
        self.indexes.read_offset_index(self.size_bytes)
        self.indexes.read_time_index()
        self.txn_index.adopt(end_offset)
        self.was_walked = False

    def adopted(
        self,
        next_offset: int,
        first_timestamp_ms: int,
        largest_timestamp_ms: int,
        largest_relative_offset: int,
        bytes_since_entry: int,
        *,
        has_untimed: bool,
    ) -> None:
        """Set the values of a segment with adopted indexes that only its first and last batches
        show."""
        self.next_offset = next_offset
        self.first_timestamp_ms = first_timestamp_ms
        self.largest_timestamp_ms = largest_timestamp_ms
        if largest_timestamp_ms >= 0:
            self.largest_timestamp_offset = self.base_offset + largest_relative_offset
        self._bytes_since_entry = bytes_since_entry
        if has_untimed:
            self.untimed_ms = self.written_ms

    # Writing.

    def write(self, buffers: list[Buffer], size_bytes: int, *, stretches: bool) -> None:
        """Write batches after the last one. The caller must then call `take` for each.

        On DiskError no batch is added. `stretches`: extend the file ahead of the data, because an
        fsync after a write that does not change the file size need not wait for the file system's
        journal.
        """
        end = self.size_bytes + size_bytes
        if stretches and end > self._file_end:
            self.file.truncate(end + AHEAD_BYTES)
            self._file_end = end + AHEAD_BYTES
        self.file.write(buffers, self.size_bytes)

    def shrink_file(self) -> None:
        """Truncate the file to the end of the batches."""
        if self.file.size_bytes() > self.size_bytes:
            self.file.truncate(self.size_bytes)
        self._file_end = 0

    def take(self, last_offset: int, size_bytes: int, max_timestamp_ms: int) -> None:
        """Add the batch at the end to the segment, with an index entry if one is due."""
        relative = last_offset - self.base_offset
        if max_timestamp_ms > self.largest_timestamp_ms:
            self.largest_timestamp_ms = max_timestamp_ms
            self.largest_timestamp_offset = last_offset
        elif max_timestamp_ms < 0:
            self.untimed_ms = self.written_ms
        if not self.size_bytes:
            self.first_timestamp_ms = max_timestamp_ms
        if self._bytes_since_entry > self.interval_bytes:
            self.index.append(relative, self.size_bytes)
            self.finish_time_index()
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes
        self.size_bytes += size_bytes
        self.next_offset = last_offset + 1

    def mark_end(self) -> None:
        """Remember the end as a batch boundary, and write index entries if enough have gathered."""
        if len(self._marks) >= MARKS_MAX:
            self._marks.clear()
        self._marks[self.next_offset] = self.size_bytes
        if self.indexes.unwritten_count() >= INDEX_WRITE_ENTRIES:
            self.indexes.write()

    def finish_time_index(self) -> None:
        """Add the largest timestamp to the time index when no more batches can come."""
        if self.largest_timestamp_ms >= 0:
            relative = self.largest_timestamp_offset - self.base_offset
            self.time_index.append_if_newer(self.largest_timestamp_ms, relative)

    def close_for_writing(self) -> None:
        """Finish the files when the next segment becomes active."""
        self.finish_time_index()
        self.finish_files()

    def finish_files(self) -> None:
        """Write the files in the form that a start after a clean stop expects."""
        self.indexes.write()
        if self._file_end > self.size_bytes:
            # If the disk refuses, the next start truncates the file.
            with suppress(DiskError):
                self.shrink_file()

    def aborted(self) -> Sequence[AbortedEntry]:
        """Return the aborted transactions whose marker is in this segment, in marker order."""
        return self.txn_index.entries(self.next_offset)

    # Rolling back.

    def state(self) -> SegmentState:
        """Return the segment's state, for `restore`."""
        return SegmentState(
            self.next_offset,
            self.size_bytes,
            self.first_timestamp_ms,
            self.largest_timestamp_ms,
            self.largest_timestamp_offset,
            self._bytes_since_entry,
            len(self.index),
            len(self.time_index),
            self.untimed_ms,
        )

    def restore(self, state: SegmentState) -> None:
        """Return to `state`. The caller must truncate the file."""
        self._file_end = 0
        self.next_offset = state.next_offset
        self.size_bytes = state.size_bytes
        self.first_timestamp_ms = state.first_timestamp_ms
        self.largest_timestamp_ms = state.largest_timestamp_ms
        self.largest_timestamp_offset = state.largest_timestamp_offset
        self._bytes_since_entry = state.bytes_since_entry
        self.untimed_ms = state.untimed_ms
        self.index.truncate(state.index_count)
        self.time_index.truncate(state.time_index_count)
        self.indexes.were_truncated()
        self._marks.clear()

    # Searching.

    def locate(self, offset: int) -> int:
        """Return the position of the batch with `offset`, or of the next batch, or the end."""
        if offset >= self.next_offset:
            return self.size_bytes
        marked = self._marks.get(offset)
        if marked is not None:
            return marked
        position = self.index.position_before(offset - self.base_offset)
        file, size_bytes = self.file, self.size_bytes
        while position < size_bytes:
            window = file.read(min(SCAN_BYTES, size_bytes - position), position)
            start, limit = 0, len(window) - PLACE.size
            if limit < 0:
                raise CorruptionError(self.log_path, position, "batches are missing from here on")
            while start <= limit:
                base_offset, length, delta = PLACE.unpack_from(window, start)
                if base_offset + delta >= offset:
                    return position + start
                size = length + SIZE_BEFORE_LENGTH_ENDS
                self._check_extent(position + start, size)
                start += size
            position += start
        return size_bytes

    def whole_batches_end(self, position: int, max_bytes: int, *, min_one_batch: bool) -> int:
        """Return the end of as many whole batches from `position` as fit into `max_bytes`."""
        end = self.index.boundary_at_most(position + max_bytes)
        if end > position:
            return end
        end = position
        while end < self.size_bytes:
            head = self.file.read(PLACE.size, end)
            if len(head) < PLACE.size:
                raise CorruptionError(self.log_path, end, "batches are missing from here on")
            size_bytes = PLACE.unpack(head)[1] + SIZE_BEFORE_LENGTH_ENDS
            self._check_extent(end, size_bytes)
            if end + size_bytes - position > max_bytes:
                if min_one_batch and end == position:
                    end += size_bytes
                break
            end += size_bytes
        return end

    def _check_extent(self, position: int, size_bytes: int) -> None:
        """Check that a batch ends within the segment, because a fetch answer must not announce more
        bytes than the file has.
        """
        if not SIZE_BEFORE_LENGTH_ENDS < size_bytes <= self.size_bytes - position:
            reason = f"a batch cannot have {size_bytes} bytes here"
            raise CorruptionError(self.log_path, position, reason)

    def _rebuild_indexes(self) -> Segment:
        """Rebuild both indexes of a closed segment whose index files were lost while it ran.

        Returns the segment object with which they were built.
        """
        folder = self._stem[: -BASE_DIGITS - 1]
        walked = Segment(self._disk, folder, self.base_offset, self.interval_bytes, 0)
        walk = BatchWalk(self.file, 0, self.size_bytes)
        for header in walk:
            walked.take(header.last_offset, header.size_bytes, header.max_timestamp)
        if walk.fault is not None:
            raise CorruptionError(self.log_path, walk.position, walk.fault)
        walked.close_for_writing()
        self.indexes = walked.indexes
        return walked
