"""The one seam to the file system: `Disk`, its files, and the real one, `OsDisk`.

Floor: storage. The only file of the broker that opens, writes, renames or deletes. Every method
raises `DiskError` for whatever the operating system refuses; a missing file is a refusal too. All
calls return when the page cache has the bytes; only `datasync`, `sync_folder` and
`replace(…, is_durable=True)` wait for the device. Paths are texts, files are written and read by
position, so no call depends on the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class DiskFile(Protocol):
    """An open file. It closes with its last reference, so whoever reads or flushes is safe."""

    path: str
    fd: int
    """For sendfile and poll; only a file of the real disk has a descriptor that can be used."""

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all of the buffers at `position`, or raise; part of them may be there then."""

    def read(self, size_bytes: int, position: int) -> bytes:
        """The bytes at `position`, fewer than asked for only at the end of the file."""

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; the count is smaller only at the end of the file."""

    def truncate(self, size_bytes: int) -> None: ...

    def size_bytes(self) -> int: ...

    def datasync(self) -> None:
        """Wait until the file's data is on the device. Meant for a thread."""


class FolderLock(Protocol):
    """A folder held against other processes, until `release` or the end of the process."""

    def release(self) -> None: ...


class Disk(Protocol):
    """What the storage floor needs of a file system."""

    def open(self, path: str, *, create: bool = False) -> DiskFile: ...

    def read_all(self, path: str) -> bytes: ...

    def replace(self, path: str, data: bytes, *, is_durable: bool) -> None:
        """Put a whole small file in place of the old one; readers see the old or the new."""

    def exists(self, path: str) -> bool: ...

    def size_bytes(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def list_folder(self, path: str) -> list[str]:
        """The names in a folder, sorted."""

    def make_folder(self, path: str) -> None:
        """Make a folder with mode 0700, and its parents; one that exists is left alone."""

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def remove_folder(self, path: str) -> None:
        """Remove a folder with the files in it."""

    def sync_folder(self, path: str) -> None:
        """Wait until the folder's entries are on the device: names made, renamed and removed."""

    def lock(self, path: str) -> FolderLock:
        """Take the lock file; FolderError when another process has it."""


class FileRegion:
    """A stretch of a file that holds whole batches: what a fetch answer sends.

    It keeps its file open, so it stays readable when the segment is dropped meanwhile.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: DiskFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    @property
    def fd(self) -> int:
        return self.file.fd

    def read(self) -> bytes:
        """The bytes themselves, by one positioned read."""
        return self.file.read(self.length, self.position)
