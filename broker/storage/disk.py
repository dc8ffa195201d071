"""The only interface to the file system: `Disk`, its files, and the real disk, `OsDisk`.

No other module of the broker opens, writes, renames or deletes files. Every method raises
`DiskError` if the operating system refuses the call, for example because a file is missing. Calls
return when the bytes are in the page cache; only `datasync`, `sync_folder`, `make_folder` and
`replace(…, is_durable=True)` wait for the device. Paths are strings. Files are read and written by
position, so no call depends on an earlier call.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from broker.storage.errors import DiskError, FolderError

Buffer = bytes | bytearray | memoryview

SYNC_THREADS = 16
"""The number of fsyncs that run in parallel, because the file system's journal commits them
together."""

IOV_MAX = 1024
"""The largest number of buffers that one writev call accepts on Linux."""


class DiskFile(Protocol):
    """An open file.

    It is closed with the last reference to this object, so a read in progress is safe.
    """

    path: str
    fd: int
    """The file descriptor for sendfile and poll.

    Only a file of the real disk has a usable descriptor.
    """

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers at `position`. If DiskError is raised, some bytes can have been
        written."""

    def read(self, size_bytes: int, position: int) -> bytes:
        """Return the bytes at `position`.

        The result is shorter than `size_bytes` only at the end of the file.
        """

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` with the bytes at `position`. Return their number, which is smaller than
        the buffer only at the end of the file.
        """

    def truncate(self, size_bytes: int) -> None: ...

    def size_bytes(self) -> int: ...

    def datasync(self) -> None:
        """Wait until the file's data is on the device. Call it in a thread."""


class FolderLock(Protocol):
    """A folder locked against other processes, until `release` or the end of the process."""

    def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The size of a disk, and the part of it that this process can still use, in bytes."""

    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """The operations of a file system that storage uses."""

    def open(self, path: str, *, create: bool = False) -> DiskFile: ...

    def read_all(self, path: str) -> bytes: ...

    def replace(self, path: str, data: bytes, *, is_durable: bool) -> None:
        """Replace a small file atomically: readers see either the old or the new content."""

    def exists(self, path: str) -> bool: ...

    def is_folder(self, path: str) -> bool: ...

    def size_bytes(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def list_folder(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""

    def make_folder(self, path: str, *, is_durable: bool = True) -> None:
        """Create a folder with mode 0700, and its parents. An existing folder is unchanged."""

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def remove_folder(self, path: str) -> None:
        """Remove a folder with the files in it."""

    def sync_folder(self, path: str) -> None:
        """Wait until the folder's entries (created, renamed, removed names) are on the device."""

    def sync_many(self, files: Sequence[DiskFile], folders: Sequence[str]) -> None:
        """Fsync files, then folders. Many fsyncs run in parallel, so the device can combine
        them."""

    def lock(self, path: str) -> FolderLock:
        """Take the lock file. Raises FolderError if another process holds it."""

    def space(self, path: str) -> DiskSpace | None:
        """Return the space of the disk with this folder; None if it is unknown."""

    def boot_id(self) -> str:
        """Return the id of the kernel's boot, which identifies its page cache; empty if unknown."""


class FileRegion:
    """A range of a file with whole batches: the bytes of a fetch answer.

    It keeps its file open, so it stays readable if the segment is dropped in the meantime.
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
        """Read the bytes with one positioned read."""
        return self.file.read(self.length, self.position)


class OsFile:
    """A file of the real disk."""

    __slots__ = ("fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    def __del__(self) -> None:
        # The last reference can be a fetch answer that is still being sent, long after the segment
        # was dropped. So the destructor closes the descriptor.
        os.close(self.fd)

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        try:
            if len(buffers) == 1:
                written = os.pwrite(self.fd, buffers[0], position)
                if written == len(buffers[0]):
                    return
            else:
                written = os.pwritev(self.fd, buffers[:IOV_MAX], position)
            self._write_rest(buffers, position, written)
        except OSError as error:
            raise _disk_error(self.path, "write", error) from error

    def _write_rest(self, buffers: Sequence[Buffer], position: int, written: int) -> None:
        # On a full disk the first call writes fewer bytes, and only the next call returns ENOSPC.
        # So write the remaining bytes with another call.
        for buffer in buffers:
            if written >= len(buffer):
                written -= len(buffer)
                position += len(buffer)
                continue
            rest = memoryview(buffer)[written:]
            position += written
            written = 0
            while rest:
                count = os.pwrite(self.fd, rest, position)
                rest = rest[count:]
                position += count

    def read(self, size_bytes: int, position: int) -> bytes:
        try:
            data = os.pread(self.fd, size_bytes, position)
            while len(data) < size_bytes:
                more = os.pread(self.fd, size_bytes - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise _disk_error(self.path, "read", error) from error
        return data

    def read_into(self, buffer: memoryview, position: int) -> int:
        filled = 0
        try:
            while filled < len(buffer):
                count = os.preadv(self.fd, [buffer[filled:]], position + filled)
                if not count:
                    break
                filled += count
        except OSError as error:
            raise _disk_error(self.path, "read", error) from error
        return filled

    def truncate(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self.fd, size_bytes)
        except OSError as error:
            raise _disk_error(self.path, "truncate", error) from error

    def size_bytes(self) -> int:
        try:
            return os.fstat(self.fd).st_size
        except OSError as error:
            raise _disk_error(self.path, "stat", error) from error

    def datasync(self) -> None:
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            raise _disk_error(self.path, "fdatasync", error) from error


class OsLock:
    """A lock file of the real disk, held by flock, so it ends with its process."""

    def __init__(self, file: OsFile) -> None:
        self._file: OsFile | None = file

    def release(self) -> None:
        self._file = None


class OsDisk:
    """The file system of the machine."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        try:
            return OsFile(path, os.open(path, flags, 0o600))
        except OSError as error:
            raise _disk_error(path, "open", error) from error

    def read_all(self, path: str) -> bytes:
        file = self.open(path)
        return file.read(file.size_bytes(), 0)

    def replace(self, path: str, data: bytes, *, is_durable: bool) -> None:
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.write([data], 0)
        if is_durable:
            file.datasync()
        try:
            Path(temporary).replace(path)
        except OSError as error:
            raise _disk_error(path, "replace", error) from error
        if is_durable:
            self.sync_folder(str(Path(path).parent))

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def is_folder(self, path: str) -> bool:
        return Path(path).is_dir()

    def size_bytes(self, path: str) -> int:
        return self._stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return self._stat(path).st_mtime_ns // 1_000_000

    def list_folder(self, path: str) -> list[str]:
        try:
            return sorted(entry.name for entry in Path(path).iterdir())
        except OSError as error:
            raise _disk_error(path, "list", error) from error

    def make_folder(self, path: str, *, is_durable: bool = True) -> None:
        folder = Path(path)
        missing = [one for one in (folder, *folder.parents) if not one.exists()]
        try:
            for one in reversed(missing):
                one.mkdir(mode=0o700, exist_ok=True)
                if is_durable:
                    self.sync_folder(str(one.parent))
        except OSError as error:
            raise _disk_error(path, "make folder", error) from error

    def rename(self, source: str, target: str) -> None:
        try:
            Path(source).rename(target)
        except OSError as error:
            raise _disk_error(source, "rename", error) from error

    def unlink(self, path: str) -> None:
        try:
            Path(path).unlink()
        except OSError as error:
            raise _disk_error(path, "unlink", error) from error

    def remove_folder(self, path: str) -> None:
        for name in self.list_folder(path):
            self.unlink(f"{path}/{name}")
        try:
            Path(path).rmdir()
        except OSError as error:
            raise _disk_error(path, "remove folder", error) from error

    def sync_folder(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise _disk_error(path, "sync folder", error) from error

    def sync_many(self, files: Sequence[DiskFile], folders: Sequence[str]) -> None:
        if len(files) + len(folders) < SYNC_THREADS:
            for file in files:
                file.datasync()
            for path in folders:
                self.sync_folder(path)
            return
        with ThreadPoolExecutor(SYNC_THREADS, "sync") as pool:
            # `list` waits for all results and raises the first error.
            list(pool.map(lambda file: file.datasync(), files))
            list(pool.map(self.sync_folder, folders))

    def lock(self, path: str) -> OsLock:
        file = self.open(path, create=True)
        try:
            fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            folder = str(Path(path).parent)
            raise FolderError(
                folder,
                (
                    "another broker process uses this data folder: stop it, or give this broker a "
                    "folder of its own"
                ),
            ) from None
        except OSError as error:
            raise _disk_error(path, "lock", error) from error
        return OsLock(file)

    def space(self, path: str) -> DiskSpace | None:
        try:
            found = os.statvfs(path)
        except OSError:
            return None
        return DiskSpace(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)

    def boot_id(self) -> str:
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""

    def _stat(self, path: str) -> os.stat_result:
        try:
            return Path(path).stat()
        except OSError as error:
            raise _disk_error(path, "stat", error) from error


def _disk_error(path: str, operation: str, error: OSError) -> DiskError:
    return DiskError(path, operation, error.errno or errno.EIO)
