"""Open files, each known to be the one that was asked for; and names taken away for good.

Floor: above `statx`. Touches the disk: synchronous and short.
"""

import itertools
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path

from collector.identity.sightings import Held
from collector.identity.statx import Statx, owner_of
from collector.text.fingerprint import FileId

_STATX = Statx()
"""For files that are opened, all in one thread; a walker, which may have another, has its own."""


class Vanished(Exception):
    """The name is gone or shows another file than the one that was judged."""


class Unreadable(Exception):
    """The file is there and cannot be read; the text says why, with owner and mode."""


class Handle:
    """An open file, known to be the one that was asked for."""

    __slots__ = ("_descriptor", "file", "path")

    def __init__(self, descriptor: int, path: str, file: FileId):
        self._descriptor = descriptor
        self.path = path
        self.file = file

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes at `offset`; fewer only at the end. Raises Unreadable."""
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

    def look(self) -> Held:
        """The file's size, time of change and number of names. Raises Unreadable."""
        try:
            found = os.fstat(self._descriptor)
        except OSError as error:
            # Of a file system on a network, or of a process: it is no more.
            raise Unreadable(f"{error.strerror}") from error
        return Held(found.st_size, found.st_mtime_ns, found.st_nlink)

    def close(self) -> None:
        """Let the file go."""
        os.close(self._descriptor)


class Handles:
    """Open files by generation, the least recently used closed first; pinned ones stay."""

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._open: OrderedDict[str, Handle] = OrderedDict()
        self._pinned: set[str] = set()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[tuple[str, Handle]]:
        return iter(list(self._open.items()))

    @property
    def is_full(self) -> bool:
        """Whether one more is opened only at the cost of another."""
        return len(self._open) >= self._capacity

    def get(self, name: str) -> Handle | None:
        """The open handle, now the most recently used; None when it is not open."""
        handle = self._open.get(name)
        if handle is not None:
            self._open.move_to_end(name)
        return handle

    def open(self, name: str, path: str, file: FileId, birth_ns: int | None = None) -> Handle:
        """Open `path` for a generation; raises Vanished or Unreadable."""
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
        """Never close this one for want of room: its file can no longer be opened by name."""
        if name in self._open:
            self._pinned.add(name)

    def unpin(self, name: str) -> None:
        """Its file can be opened by name: this one may be closed again for want of room."""
        self._pinned.discard(name)

    def close(self, name: str) -> None:
        """Close one, if open."""
        handle = self._open.pop(name, None)
        self._pinned.discard(name)
        if handle is not None:
            handle.close()

    def keep(self, files: Mapping[str, FileId]) -> None:
        """Close all but those of these generations that have open the file which each of them is
        by what is stored, and let those be closed again for want of room."""
        for name, handle in list(self._open.items()):
            if files.get(name) != handle.file:
                self.close(name)
        self._pinned.clear()

    def close_all(self) -> None:
        """Close everything."""
        for name in list(self._open):
            self.close(name)


def open_file(path: str, file: FileId, birth_ns: int | None = None) -> Handle:
    """Open a file and make sure it is `file`; raises Vanished or Unreadable.

    Its inode may be another file's by now: that one was born at another time, where both are known.
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
    """Remove a name of a file that has no other; returns why not."""
    refusal = _refusal(path, file)
    if refusal is None:
        try:
            Path(path).unlink()
        except OSError as error:
            return f"not removed: {error.strerror}{owner_of(path)}"
    return refusal


def move_file(path: str, file: FileId, target: Path) -> str | None:
    """Give a file that has one name another one, never over what is there; returns why not.

    Behind a name that is taken stands `.1`, `.2` and so on. A death between the two steps of a
    move has left the file both names: then only the second step is missing.
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
    """What a moved file may be called, the first choice first."""
    return itertools.chain([target], (Path(f"{target}.{n}") for n in itertools.count(1)))


def _is_name_of(path: Path, file: FileId) -> bool:
    found = path.lstat()
    return FileId(found.st_dev, found.st_ino) == file


def _is_moved_by_half(file: FileId, target: Path) -> bool:
    """Whether one of the names that are taken at the target is this very file's."""
    taken = itertools.takewhile(os.path.lexists, _names(target))
    return any(_is_name_of(name, file) for name in taken)


def _refusal(path: str, file: FileId, target: Path | None = None) -> str | None:
    """Why a name is not one to be taken away."""
    try:
        found = Path(path).lstat()
        is_alone = found.st_nlink == 1
        if found.st_nlink == 2 and target is not None:
            is_alone = _is_moved_by_half(file, target)
    except OSError as error:
        return f"{error.strerror}"
    if not stat.S_ISREG(found.st_mode) or not is_alone:
        return "kept: it has more than one name"
    return None if FileId(found.st_dev, found.st_ino) == file else "kept: it is another file by now"
