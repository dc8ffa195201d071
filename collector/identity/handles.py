"""Opens files and verifies their identity, and removes or moves finished files.

The module accesses the disk by synchronous calls that take little time.
"""

import itertools
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path

from collector.identity.sightings import OpenStat
from collector.identity.statx import Statx, owner_of
from collector.text.fingerprint import FileId

_STATX = Statx()
"""The object that calls statx for opened files. Only one thread uses it.

Walkers in other threads have their own.
"""


class Vanished(Exception):
    """The error when a name is gone, or belongs to another file than the expected one."""


class Unreadable(Exception):
    """The error when a file exists but cannot be read.

    Its text gives the reason, owner and mode.
    """


class Handle:
    """An open file whose identity was verified."""

    __slots__ = ("_descriptor", "file", "path")

    def __init__(self, descriptor: int, path: str, file: FileId):
        self._descriptor = descriptor
        self.path = path
        self.file = file

    def read(self, offset: int, length: int) -> bytes:
        """Read up to `length` bytes at `offset`; fewer only at the end of the file.

        Raises Unreadable.
        """
        try:
            data = os.pread(self._descriptor, length, offset)
            while data and len(data) < length:
                more = os.pread(self._descriptor, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise Unreadable(f"{error.strerror} at byte {offset}") from error
        return data

    def look(self) -> OpenStat:
        """Return the file's size, modification time and number of names. Raises Unreadable."""
        try:
            found = os.fstat(self._descriptor)
        except OSError as error:
            # On a network file system, or in /proc, fstat fails once the file is gone.
            raise Unreadable(f"{error.strerror}") from error
        return OpenStat(found.st_size, found.st_mtime_ns, found.st_nlink)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class Handles:
    """Open files by generation.

    When full, it closes the least recently used file that is not pinned.
    """

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._open: OrderedDict[str, Handle] = OrderedDict()
        self._pinned: set[str] = set()
        self._held: dict[FileId, Handle] = {}
        """Files that are open although their generations are not known yet."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[tuple[str, Handle]]:
        return iter(list(self._open.items()))

    @property
    def is_full(self) -> bool:
        """Tell whether opening one more file would close another one."""
        return len(self._open) >= self._capacity

    def get(self, name: str) -> Handle | None:
        """Return the open handle and mark it as recently used; None if the file is not open."""
        handle = self._open.get(name)
        if handle is not None:
            self._open.move_to_end(name)
        return handle

    def hold(self, path: str, file: FileId, birth_ns: int | None) -> bool:
        """Open a file whose generation is unknown, so that it can be read even if it is deleted.

        Return False if there is no room, or if the file cannot be opened. The caller does not ask
        for a file that a generation has open (`by_file`).
        """
        if file in self._held:
            return True
        if len(self._held) + len(self._open) >= self._capacity:
            return False
        try:
            self._held[file] = open_file(path, file, birth_ns)
        except (Vanished, Unreadable):
            return False
        return True

    def adopt(self, name: str, file: FileId) -> None:
        """Give a generation the handle that is held for its file, if there is one."""
        handle = self._held.pop(file, None)
        if handle is not None and name not in self._open:
            self._open[name] = handle
        elif handle is not None:
            handle.close()

    def close_held(self) -> None:
        """Close the held files that no generation has adopted."""
        for handle in self._held.values():
            handle.close()
        self._held.clear()

    def by_file(self) -> dict[FileId, Handle]:
        """Return all open handles by file."""
        return self._held | {handle.file: handle for handle in self._open.values()}

    def open(self, name: str, path: str, file: FileId, birth_ns: int | None = None) -> Handle:
        """Open `path` for a generation. Raises Vanished or Unreadable."""
        handle = open_file(path, file, birth_ns)
        self.close(name)
        self._open[name] = handle
        excess = len(self._open) - self._capacity
        if excess > 0:
            free = (key for key in self._open if key not in self._pinned and key != name)
            for other in list(itertools.islice(free, excess)):
                self._open.pop(other).close()
        return handle

    def pin(self, name: str) -> None:
        """Keep a handle open even when space is needed, because its file can no longer be opened by
        name."""
        if name in self._open:
            self._pinned.add(name)

    def unpin(self, name: str) -> None:
        """Allow closing a handle when space is needed, because its file can be opened by name."""
        self._pinned.discard(name)

    def close(self, name: str) -> None:
        """Close the handle of a generation, if it is open."""
        handle = self._open.pop(name, None)
        self._pinned.discard(name)
        if handle is not None:
            handle.close()

    def keep(self, files: Mapping[str, FileId]) -> None:
        """Close all handles except those of the given files of the given generations.

        The remaining handles are unpinned.
        """
        for name, handle in list(self._open.items()):
            if files.get(name) != handle.file:
                self.close(name)
        self._pinned.clear()

    def close_all(self) -> None:
        """Close all handles."""
        self.close_held()
        for name in list(self._open):
            self.close(name)


def open_file(path: str, file: FileId, birth_ns: int | None = None) -> Handle:
    """Open a file and verify that it is `file`. Raises Vanished or Unreadable.

    The inode may belong to another file by now. So the times of birth are compared if both are
    known.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Vanished(path) from error
    except OSError as error:
        raise Unreadable(f"{error.strerror}{owner_of(path)}") from error
    found = os.fstat(descriptor)
    is_same = FileId(found.st_dev, found.st_ino) == file
    if is_same and birth_ns is not None:
        is_same = _STATX.birth_ns(descriptor) in (birth_ns, None)
    if not is_same:
        os.close(descriptor)
        raise Vanished(path)
    return Handle(descriptor, path, file)


def remove_file(path: str, file: FileId) -> str | None:
    """Remove a file that has only one name. Return the reason if it was not removed."""
    refusal = _refusal(path, file)
    if refusal is None:
        try:
            Path(path).unlink()
        except OSError as error:
            return f"not removed: {error.strerror}{owner_of(path)}"
    return refusal


def move_file(path: str, file: FileId, target: Path) -> str | None:
    """Move a file that has only one name. Return the reason if it was not moved.

    If the target exists, `.1`, `.2` and so on is appended to its name. The move is a link followed
    by an unlink. After a crash between the two steps the file has both names, and only the unlink
    is repeated.
    """
    refusal = _refusal(path, file, target)
    if refusal is not None:
        return refusal
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for name in _names(target):
            try:
                os.link(path, name)
            except FileExistsError:
                if not _is_name_of(name, file):
                    continue
            break
        Path(path).unlink()
    except OSError as error:
        return f"not moved to {target}: {error.strerror}{owner_of(path)}"
    return None


def _names(target: Path) -> Iterator[Path]:
    """Yield the possible names of a moved file, the preferred name first."""
    return itertools.chain([target], (Path(f"{target}.{n}") for n in itertools.count(1)))


def is_at(path: str, file: FileId) -> bool:
    """Tell whether this name, or the name to which it links, still belongs to the file."""
    try:
        found = Path(path).stat()
    except OSError:
        return False
    return FileId(found.st_dev, found.st_ino) == file


def _is_name_of(path: Path, file: FileId) -> bool:
    found = path.lstat()
    return FileId(found.st_dev, found.st_ino) == file


def _is_moved_by_half(file: FileId, target: Path) -> bool:
    """Tell whether one of the existing target names already belongs to this file."""
    taken = itertools.takewhile(os.path.lexists, _names(target))
    return any(_is_name_of(name, file) for name in taken)


def _refusal(path: str, file: FileId, target: Path | None = None) -> str | None:
    """Return why the name must not be removed; None if it can be removed."""
    try:
        found = Path(path).lstat()
        is_alone = found.st_nlink == 1
        if found.st_nlink == 2 and target is not None:
            is_alone = _is_moved_by_half(file, target)
    except OSError as error:
        return f"{error.strerror}"
    if not stat.S_ISREG(found.st_mode) or not is_alone:
        return "kept, because the file has more than one name"
    return (
        None
        if FileId(found.st_dev, found.st_ino) == file
        else "kept, because another file has this name now"
    )
