"""The aborted transactions of one segment: loaded into memory on demand, and their file.

A flush writes new entries to the file (`producer_files`); until then they stay in memory.
`broker/storage/txn_index` defines the file's format. A segment without aborted transactions has no
file.
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
        """True if the entries are in memory."""
        return self._entries is not None and self.count > 0

    def unload(self) -> None:
        """Free the entries from memory if the file has all of them."""
        if self._written_count == self.count:
            self._entries = None

    def adopt(self, end_offset: int) -> None:
        """Load the file. Raises CorruptionError if it cannot belong to a segment with this end."""
        self._entries = self._read(end_offset)
        self.count = self._written_count = len(self._entries)

    def recall(self, below_offset: int, end_offset: int) -> None:
        """Load the entries below an offset. Raises CorruptionError if the file is damaged."""
        recalled = [one for one in self._read(end_offset) if one.last_offset < below_offset]
        self._entries = [*recalled, *(self._entries or ())]
        self.count = len(self._entries)

    def entries(self, end_offset: int) -> Sequence[AbortedEntry]:
        """Return all entries in the order of the markers; `end_offset` is the segment's end."""
        if self._entries is None:
            self._entries = self._read(end_offset) if self.count else []
        return self._entries

    def add(self, entry: AbortedEntry) -> None:
        """Add an entry whose marker has been written. The next flush writes it to the file."""
        self.entries(entry.last_offset)
        assert self._entries is not None
        self._entries.append(entry)
        self.count += 1

    def unwritten(self) -> tuple[int, bytes] | None:
        """Return the entries that the file lacks, with their byte position; None if the file is
        complete."""
        if self._written_count == self.count:
            return None
        assert self._entries is not None, "what is not in the file stays in memory"
        position = self._written_count * txn_index.ENTRY_BYTES
        return position, txn_index.encode(self._entries[self._written_count :])

    def file_reaches(self, size_bytes: int) -> None:
        """Record that the first `size_bytes` bytes of the file are durable."""
        self._written_count = max(self._written_count, size_bytes // txn_index.ENTRY_BYTES)

    def written(self) -> None:
        """Record that the file has every entry. The cleaner that made the segment wrote them."""
        self._written_count = self.count

    def replace_file(self) -> None:
        """Write durably what the recovery scan found. On a full disk the next flush writes it."""
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
