"""A disk in memory that shows all faults of a real disk: the double of `broker/storage/disk`.

Unsynced data is uncertain: `crash` keeps some of it, tears some of it and loses the rest. This
holds for contents of files and for names. `fail_at` makes one call fail, by its number, and
`capacity_bytes` limits the space. `calls` counts every call, so a test can let each one fail in
turn.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from broker.storage.disk import Buffer, DiskFile, DiskSpace
from broker.storage.errors import DiskError, FolderError


@dataclass(eq=False)
class Inode:
    """One file: its readable bytes, the bytes that survive a power cut, and the changes that are
    not synced yet."""

    modified_ms: int
    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes | int]] = field(default_factory=list)
    """The pending changes: a position and the bytes written there, or -1 and a new size."""
    used_bytes: int = 0
    """The space that the file takes on the disk. A range that was only extended takes no space."""

    def change(self, position: int, data: bytes | int) -> None:
        self.pending.append((position, data))
        _apply(self.content, position, data)
        if isinstance(data, int):
            self.used_bytes = min(self.used_bytes, data)
        else:
            self.used_bytes = max(self.used_bytes, position + len(data))

    def sync(self) -> None:
        self.durable = bytes(self.content)
        self.pending.clear()

    def crash(self, chance: random.Random) -> None:
        kept = bytearray(self.durable)
        in_order = chance.random() < 0.5
        stop = chance.randint(0, len(self.pending))
        for number, (position, data) in enumerate(self.pending):
            is_kept = number < stop if in_order else chance.random() < 0.5
            if is_kept:
                _apply(kept, position, data)
            elif isinstance(data, bytes) and chance.random() < 0.5:
                _apply(kept, position, data[: chance.randint(0, len(data))])
        self.content = kept
        self.used_bytes = min(self.used_bytes, len(kept))
        self.sync()


def _apply(content: bytearray, position: int, data: bytes | int) -> None:
    """Write bytes at a position. If `data` is a number, truncate or extend to that size instead."""
    if isinstance(data, int):
        del content[data:]
        content.extend(bytes(data - len(content)))
    elif data:
        content.extend(bytes(max(position - len(content), 0)))
        content[position : position + len(data)] = data


NameChange = tuple[str, str | None, "Inode | Folder | None"]
"""(name, None, node) creates, (name, None, None) removes, and (name, other, None) renames."""


@dataclass(eq=False)
class Folder:
    """A folder: its visible names, the names that survive a power cut, and the changes that are
    not synced yet."""

    names: dict[str, Inode | Folder] = field(default_factory=dict)
    durable: dict[str, Inode | Folder] = field(default_factory=dict)
    pending: list[NameChange] = field(default_factory=list)

    def change(self, change: NameChange) -> None:
        self.pending.append(change)
        _rename(self.names, change)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.pending.clear()

    def crash(self, chance: random.Random) -> None:
        # Unsynced changes to one folder survive in order, so keep a random number from the front.
        kept = dict(self.durable)
        for change in self.pending[: chance.randint(0, len(self.pending))]:
            _rename(kept, change)
        self.names = kept
        self.sync()
        for node in self.names.values():
            node.crash(chance)


def _rename(names: dict[str, Inode | Folder], change: NameChange) -> None:
    name, other, node = change
    if node is not None:
        names[name] = node
    elif other is None:
        names.pop(name, None)
    else:
        names[other] = names.pop(name)


class SimFile:
    """An open file of the simulated disk. It stays usable after its name was deleted."""

    fd = -1

    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        data = b"".join(buffers)
        try:
            self._disk.step(self.path, "write")
        except DiskError:
            # A failed write can have written a part of the data.
            self._inode.change(position, data[: len(data) // 2])
            raise
        room = self._disk.room_bytes() + max(self._inode.used_bytes - position, 0)
        self._inode.change(position, data[:room])
        self._inode.modified_ms = self._disk.now_ms
        if room < len(data):
            raise DiskError(self.path, "write", errno.ENOSPC)

    def read(self, size_bytes: int, position: int) -> bytes:
        self._disk.step(self.path, "read")
        return bytes(self._inode.content[position : position + size_bytes])

    def read_into(self, buffer: memoryview, position: int) -> int:
        data = self.read(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def truncate(self, size_bytes: int) -> None:
        self._disk.step(self.path, "truncate")
        if size_bytes != len(self._inode.content):
            self._inode.change(-1, size_bytes)

    def size_bytes(self) -> int:
        self._disk.step(self.path, "stat")
        return len(self._inode.content)

    def datasync(self) -> None:
        self._disk.step(self.path, "fdatasync")
        self._inode.sync()


class SimLock:
    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class SimDisk:
    """A file system whose root is `/`."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.now_ms = 0
        """The modification time that written files get."""
        self.boots = 1
        """The number of starts of the machine."""
        self.calls = 0
        self.fail_at: int | None = None
        """The call that fails, counted from 1."""
        self.fails_on = False
        """True if every call from `fail_at` on fails."""
        self.refuses: Callable[[str, str], bool] | None = None
        """Returns True for a path and an operation if the call must fail."""
        self.refusal = errno.ENOSPC
        """The error number of such a call."""
        self.capacity_bytes = capacity_bytes
        self.locked: set[str] = set()
        self._root = Folder()

    # Methods for tests.

    def crash(self, chance: random.Random) -> None:
        """Cut the power. Unsynced data survives in part or not at all."""
        self._root.crash(chance)
        self.locked.clear()
        self.boots += 1

    def step(self, path: str, operation: str) -> None:
        self.calls += 1
        if self.fail_at is not None and (
            self.calls == self.fail_at or (self.fails_on and self.calls > self.fail_at)
        ):
            raise DiskError(path, operation, errno.EIO)
        if self.refuses is not None and self.refuses(path, operation):
            raise DiskError(path, operation, self.refusal)

    def room_bytes(self) -> int:
        if self.capacity_bytes is None:
            return 2**62
        return max(self.capacity_bytes - self.used_bytes(), 0)

    def used_bytes(self) -> int:
        return _total(self._root)

    def contents(self, path: str) -> bytearray:
        """Return the readable bytes of a file. A test can change them to simulate damage."""
        inode = self._file(path, "open")
        return inode.content

    # The interface of `broker/storage/disk`.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.step(path, "open")
        folder, name = self._parent(path, "open")
        if name not in folder.names and create:
            folder.change((name, None, Inode(self.now_ms)))
        return SimFile(self, path, self._file(path, "open"))

    def read_all(self, path: str) -> bytes:
        self.step(path, "open")
        self.step(path, "read")
        return bytes(self._file(path, "open").content)

    def replace(self, path: str, data: bytes, *, is_durable: bool) -> None:
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.write([data], 0)
        if is_durable:
            file.datasync()
        self.rename(temporary, path)
        if is_durable:
            self.sync_folder(path.rpartition("/")[0])

    def exists(self, path: str) -> bool:
        try:
            folder, name = self._parent(path, "stat")
        except DiskError:
            return False
        return name in folder.names

    def is_folder(self, path: str) -> bool:
        return self.exists(path) and isinstance(self._node(path, "stat"), Folder)

    def size_bytes(self, path: str) -> int:
        self.step(path, "stat")
        return len(self._file(path, "stat").content)

    def modified_ms(self, path: str) -> int:
        self.step(path, "stat")
        return self._file(path, "stat").modified_ms

    def list_folder(self, path: str) -> list[str]:
        self.step(path, "list")
        return sorted(self._folder(path, "list").names)

    def make_folder(self, path: str, *, is_durable: bool = True) -> None:
        self.step(path, "make folder")
        folder = self._root
        for name in path.strip("/").split("/"):
            if name not in folder.names:
                folder.change((name, None, Folder()))
                if is_durable:
                    folder.sync()
            child = folder.names[name]
            assert isinstance(child, Folder)
            folder = child

    def rename(self, source: str, target: str) -> None:
        self.step(source, "rename")
        folder, name = self._parent(source, "rename")
        other_folder, other = self._parent(target, "rename")
        assert folder is other_folder, "renames stay within one folder"
        if name not in folder.names:
            raise DiskError(source, "rename", errno.ENOENT)
        folder.change((name, other, None))

    def unlink(self, path: str) -> None:
        self.step(path, "unlink")
        self._file(path, "unlink")
        folder, name = self._parent(path, "unlink")
        folder.change((name, None, None))

    def remove_folder(self, path: str) -> None:
        for name in self.list_folder(path):
            self.unlink(f"{path}/{name}")
        self.step(path, "remove folder")
        folder, name = self._parent(path, "remove folder")
        folder.change((name, None, None))

    def sync_folder(self, path: str) -> None:
        self.step(path, "sync folder")
        self._folder(path, "sync folder").sync()

    def sync_many(self, files: Sequence[DiskFile], folders: Sequence[str]) -> None:
        for file in files:
            file.datasync()
        for path in folders:
            self.sync_folder(path)

    def lock(self, path: str) -> SimLock:
        self.open(path, create=True)
        if path in self.locked:
            folder = path.rpartition("/")[0]
            raise FolderError(folder, "another broker process uses this data folder")
        self.locked.add(path)
        return SimLock(self, path)

    def space(self, path: str) -> DiskSpace | None:
        room_bytes = self.room_bytes()
        return DiskSpace(self.capacity_bytes or room_bytes, room_bytes)

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    def _parent(self, path: str, operation: str) -> tuple[Folder, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        return self._folder(above, operation), name

    def _folder(self, path: str, operation: str) -> Folder:
        node = self._node(path, operation)
        if not isinstance(node, Folder):
            raise DiskError(path, operation, errno.ENOTDIR)
        return node

    def _file(self, path: str, operation: str) -> Inode:
        node = self._node(path, operation)
        if not isinstance(node, Inode):
            raise DiskError(path, operation, errno.EISDIR)
        return node

    def _node(self, path: str, operation: str) -> Inode | Folder:
        node: Inode | Folder = self._root
        for name in path.strip("/").split("/") if path.strip("/") else ():
            if not isinstance(node, Folder) or name not in node.names:
                raise DiskError(path, operation, errno.ENOENT)
            node = node.names[name]
        return node


def _total(folder: Folder) -> int:
    return sum(
        _total(node) if isinstance(node, Folder) else node.used_bytes
        for node in folder.names.values()
    )
