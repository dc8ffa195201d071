"""The two sparse indexes of one segment: in memory while they are used, and in their files.

The files only speed up the next start, so write errors are ignored. The time index is written
first: the next start detects a short offset index (`adoption`), but not a short time index together
with a complete offset index. The indexes of closed segments are fsynced, so that a power cut leaves
no short time index either.
"""

from __future__ import annotations

from broker.storage.disk import Disk, DiskFile
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex

INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"


class IndexFiles:
    """The offset index and the time index of the segment whose files begin with `stem`."""

    __slots__ = (
        "_disk",
        "_offset_index_path",
        "_offsets_written",
        "_time_index_path",
        "_times_written",
        "is_unsynced",
        "offset_index",
        "time_index",
    )

    def __init__(self, disk: Disk, stem: str) -> None:
        self._disk = disk
        self._offset_index_path = stem + INDEX_SUFFIX
        self._time_index_path = stem + TIME_INDEX_SUFFIX
        self.offset_index: OffsetIndex | None = OffsetIndex()
        """The offset index; None while only its file has the entries.

        `read_offset_index` loads it.
        """
        self.time_index: TimeIndex | None = TimeIndex()
        """The time index; None while only its file has the entries. `read_time_index` loads it."""
        self._offsets_written = 0
        self._times_written = 0
        self.is_unsynced = False
        """True if entries were written that a power cut can still remove."""

    @property
    def is_loaded(self) -> bool:
        return self.offset_index is not None or self.time_index is not None

    def unload(self) -> None:
        """Free the indexes from memory whose files are complete."""
        if self.offset_index is not None and self._offsets_written == len(self.offset_index):
            self.offset_index = None
        if self.time_index is not None and self._times_written == len(self.time_index):
            self.time_index = None

    def read_offset_index(self, size_bytes: int) -> OffsetIndex:
        """Load the index of a segment of this size. Raises CorruptionError if the file cannot be
        the index of this segment, and DiskError if no file descriptor is free to open it."""
        path = self._offset_index_path
        try:
            index = OffsetIndex.decode(self._disk.read_all(path), size_bytes)
        except (ValueError, DiskError) as error:
            raise _judged(path, error) from error
        self.offset_index, self._offsets_written = index, len(index)
        return index

    def read_time_index(self) -> TimeIndex:
        """Load the time index from its file.

        Raises CorruptionError if the file is missing or not a time index.
        """
        path = self._time_index_path
        try:
            index = TimeIndex.decode(self._disk.read_all(path))
        except (ValueError, DiskError) as error:
            raise _judged(path, error) from error
        self.time_index, self._times_written = index, len(index)
        return index

    def unwritten_count(self) -> int:
        """Return how many entries of the offset index are not yet in its file."""
        index = self.offset_index
        return 0 if index is None else len(index.offsets) - self._offsets_written

    def write(self) -> None:
        """Write the missing entries to the index files. A disk error is ignored."""
        index, time_index = self.offset_index, self.time_index
        if index is None or time_index is None:
            return
        if len(index) or len(time_index):
            self.is_unsynced = True
        try:
            written = self._times_written
            self._write(self._time_index_path, time_index, written, TIME_ENTRY_BYTES)
            self._times_written = len(time_index)
            written = self._offsets_written
            self._write(self._offset_index_path, index, written, OFFSET_ENTRY_BYTES)
            self._offsets_written = len(index)
        except DiskError:
            # Missing or short indexes are rebuilt from the batches.
            return

    def _write(
        self, path: str, index: OffsetIndex | TimeIndex, written_count: int, entry_bytes: int
    ) -> None:
        file = self._disk.open(path, create=True)
        file.write([index.encode(written_count)], written_count * entry_bytes)
        file.truncate(len(index) * entry_bytes)

    def written(self) -> None:
        """Record that the files are complete, because the cleaner or recovery has written them."""
        assert self.offset_index is not None and self.time_index is not None
        self._offsets_written = len(self.offset_index)
        self._times_written = len(self.time_index)

    def unsynced_files(self) -> list[DiskFile]:
        """Return the index files to fsync before a start can trust them, in the order of
        writing."""
        if not self.is_unsynced:
            return []
        paths = self._time_index_path, self._offset_index_path
        return [self._disk.open(path) for path in paths if self._disk.exists(path)]

    def sync(self) -> None:
        """Wait until the written entries are durable. Raises DiskError if this is not certain."""
        for file in self.unsynced_files():
            file.datasync()
        self.is_unsynced = False

    def compare_files(self) -> None:
        """Compare the index files with the result of the recovery scan; rewrite them if they
        differ."""
        assert self.offset_index is not None and self.time_index is not None
        try:
            is_same = (
                self._disk.read_all(self._offset_index_path) == self.offset_index.encode()
                and self._disk.read_all(self._time_index_path) == self.time_index.encode()
            )
        except DiskError:
            is_same = False
        # The files are correct, but the process that wrote them can have been killed before it
        # fsynced them. So fsync them again.
        self.is_unsynced = True
        if is_same:
            self.written()
        else:
            self._offsets_written = self._times_written = 0
            self.write()

    def were_truncated(self) -> None:
        """Record that entries were removed in memory. The next write shortens the files."""
        assert self.offset_index is not None and self.time_index is not None
        self._offsets_written = min(self._offsets_written, len(self.offset_index))
        self._times_written = min(self._times_written, len(self.time_index))


def _judged(path: str, error: ValueError | DiskError) -> CorruptionError | DiskError:
    """Return the error to raise for an index file. A DiskError for lack of file descriptors is
    returned unchanged, because the file can be correct and need not be rebuilt from all batches."""
    if isinstance(error, DiskError) and error.is_short:
        return error
    return CorruptionError(path, 0, str(error))
