"""The two sparse indexes of one segment: in memory while they are used, and in their files.

Floor: storage. The files are an aid for the next start, so failing to write them fails nothing. The
time index is written first: a short offset index betrays itself at the next start (`adoption`), a
short time index behind a whole one does not. For the same reason what is closed is synced.
"""

from __future__ import annotations

from broker.storage.disk import Disk, DiskFile
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from broker.storage.offset_index import OffsetIndex
from broker.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from broker.storage.time_index import TimeIndex

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
        """None while it is in its file alone; `read_offset_index` brings it back."""
        self.time_index: TimeIndex | None = TimeIndex()
        """The same, by `read_time_index`."""
        self._offsets_written = 0
        self._times_written = 0
        self.is_unsynced = False
        """Whether something was written that a power cut could still take."""

    @property
    def is_loaded(self) -> bool:
        return self.offset_index is not None or self.time_index is not None

    def unload(self) -> None:
        """Let go of what is complete in its file."""
        if self.offset_index is not None and self._offsets_written == len(self.offset_index):
            self.offset_index = None
        if self.time_index is not None and self._times_written == len(self.time_index):
            self.time_index = None

    def read_offset_index(self, size_bytes: int) -> OffsetIndex:
        """Take the file of a segment of this size; CorruptionError when it cannot be that, and
        DiskError when there is no descriptor to open it with."""
        path = self._offset_index_path
        try:
            index = OffsetIndex.decode(self._disk.read_all(path), size_bytes)
        except (ValueError, DiskError) as error:
            raise _judged(path, error) from error
        self.offset_index, self._offsets_written = index, len(index)
        return index

    def read_time_index(self) -> TimeIndex:
        """Take the file; CorruptionError when it is missing or no time index."""
        path = self._time_index_path
        try:
            index = TimeIndex.decode(self._disk.read_all(path))
        except (ValueError, DiskError) as error:
            raise _judged(path, error) from error
        self.time_index, self._times_written = index, len(index)
        return index

    def unwritten_count(self) -> int:
        """How many entries of the offset index are not in its file yet."""
        index = self.offset_index
        return 0 if index is None else len(index) - self._offsets_written

    def write(self) -> None:
        """Bring the files up to date, as far as the disk lets us."""
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
            # They are rebuilt from the batches when they are missing or short.
            return

    def _write(
        self, path: str, index: OffsetIndex | TimeIndex, written_count: int, entry_bytes: int
    ) -> None:
        file = self._disk.open(path, create=True)
        file.write([index.encode(written_count)], written_count * entry_bytes)
        file.truncate(len(index) * entry_bytes)

    def written(self) -> None:
        """The files hold what is in memory; whoever made the segment has written them."""
        assert self.offset_index is not None and self.time_index is not None
        self._offsets_written = len(self.offset_index)
        self._times_written = len(self.time_index)

    def unsynced_files(self) -> list[DiskFile]:
        """The files that must be synced before a start may believe them, in order of writing."""
        if not self.is_unsynced:
            return []
        paths = self._time_index_path, self._offset_index_path
        return [self._disk.open(path) for path in paths if self._disk.exists(path)]

    def sync(self) -> None:
        """Wait until what was written is on the disk; DiskError when that cannot be told."""
        for file in self.unsynced_files():
            file.datasync()
        self.is_unsynced = False

    def compare_files(self) -> None:
        """See whether the files hold just what walking has found; if not, write them anew."""
        assert self.offset_index is not None and self.time_index is not None
        try:
            is_same = (
                self._disk.read_all(self._offset_index_path) == self.offset_index.encode()
                and self._disk.read_all(self._time_index_path) == self.time_index.encode()
            )
        except DiskError:
            is_same = False
        # Files that are right may still be of a process that was killed before it synced them.
        self.is_unsynced = True
        if is_same:
            self.written()
        else:
            self._offsets_written = self._times_written = 0
            self.write()

    def were_cut(self) -> None:
        """Entries were taken back in memory; the files follow when they are written next."""
        assert self.offset_index is not None and self.time_index is not None
        self._offsets_written = min(self._offsets_written, len(self.offset_index))
        self._times_written = min(self._times_written, len(self.time_index))


def _judged(path: str, error: ValueError | DiskError) -> CorruptionError | DiskError:
    """What is wrong with an index file: one that cannot be opened for want of a descriptor may be
    as it should, and need not be made anew from all batches."""
    if isinstance(error, DiskError) and error.is_short:
        return error
    return CorruptionError(path, 0, str(error))
