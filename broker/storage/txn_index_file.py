"""The aborted transactions of one segment: in memory when they are asked for, and in their file.

Floor: storage. The file follows what is in memory with the flushes (`producer_files`); until it
has, the entries stay. `broker/storage/txn_index` knows what it looks like. A segment without
aborted transactions has no file.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.storage import txn_index
from broker.storage.disk import Disk
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.txn_index import AbortedEntry


class TxnIndexFile:
    """The transaction index of the segment that begins at `base_offset`."""

    __slots__ = ("_base_offset", "_disk", "_entries", "_written_count", "count", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._disk = disk
        self._base_offset = base_offset
        self._entries: list[AbortedEntry] | None = []
        self._written_count = 0
        self.path = path
        self.count = 0

    @property
    def is_loaded(self) -> bool:
        """Whether it takes memory."""
        return self._entries is not None and self.count > 0

    def unload(self) -> None:
        """Let go of the entries if the file has them all."""
        if self._written_count == self.count:
            self._entries = None

    def adopt(self, end_offset: int) -> None:
        """Take the file as it is; CorruptionError when it cannot be that of a segment ending so."""
        self._entries = self._read(end_offset)
        self.count = self._written_count = len(self._entries)

    def recall(self, below_offset: int, end_offset: int) -> None:
        """Take those below an offset from the file; CorruptionError when it is damaged."""
        recalled = [one for one in self._read(end_offset) if one.last_offset < below_offset]
        self._entries = [*recalled, *(self._entries or ())]
        self.count = len(self._entries)

    def entries(self, end_offset: int) -> Sequence[AbortedEntry]:
        """All of them, in the order of the markers; `end_offset` is where the segment ends."""
        if self._entries is None:
            self._entries = self._read(end_offset) if self.count else []
        return self._entries

    def add(self, entry: AbortedEntry) -> None:
        """Note one whose marker has been written; the file follows with the next flush."""
        self.entries(entry.last_offset)
        assert self._entries is not None
        self._entries.append(entry)
        self.count += 1

    def unwritten(self) -> tuple[int, bytes] | None:
        """What the file lacks and at which byte; None when it is complete."""
        if self._written_count == self.count:
            return None
        assert self._entries is not None, "what is not in the file stays in memory"
        position = self._written_count * txn_index.ENTRY_BYTES
        return position, txn_index.encode(self._entries[self._written_count :])

    def file_reaches(self, size_bytes: int) -> None:
        """The file holds so many bytes, on the disk."""
        self._written_count = max(self._written_count, size_bytes // txn_index.ENTRY_BYTES)

    def written(self) -> None:
        """The file holds everything; whoever made the segment has written it."""
        self._written_count = self.count

    def replace_file(self) -> None:
        """Make the file what walking has found, durably; without room the next flush does it."""
        data = txn_index.encode(self._entries or ())
        is_there = self._disk.exists(self.path)
        is_same = self._disk.read_all(self.path) == data if is_there else not data
        try:
            if not is_same and data:
                self._disk.replace(self.path, data, is_durable=True)
            elif not is_same:
                self._disk.unlink(self.path)
        except DiskError as error:
            if not error.is_full:
                raise
            self._written_count = 0
        else:
            self._written_count = self.count

    def _read(self, end_offset: int) -> list[AbortedEntry]:
        if not self._disk.exists(self.path):
            return []
        data = self._disk.read_all(self.path)
        try:
            return txn_index.decode(data, self._base_offset, end_offset)
        except ValueError as error:
            raise CorruptionError(self.path, 0, str(error)) from error
