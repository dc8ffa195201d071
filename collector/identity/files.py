"""The room's only file that touches the disk: walking, stat, reading, the lock and the name.

Floor: beside `discovery` and `sightings`, whose plain data it takes and gives. Everything here is
synchronous and short, but for `scan`, which the agent runs in a thread.
"""

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import stat
import struct
import sys
import uuid
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from collector.identity.discovery import Pattern
from collector.identity.sightings import Held, Seen
from collector.text.fingerprint import FileId

_STATX_BTIME = 0x800
_STATX_BASIC = 0x7FF
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
# mask, mode, inode, size; birth, change of content; device major and minor (struct statx).
_STATX_HEAD = struct.Struct("<28xH2xQQ")
_STATX_TIME = struct.Struct("<qI")


class InUse(Exception):
    """Another process works on the data folder; the text names it."""


class Vanished(Exception):
    """The name is gone or shows another file than the one that was judged."""


class Unreadable(Exception):
    """The file is there and cannot be read; the text says why, with owner and mode."""


@dataclass(frozen=True, slots=True)
class Scan:
    """All matching names at one time. Not `is_complete` when a folder could not be read."""

    seen: tuple[Seen, ...]
    problems: tuple[str, ...]
    is_complete: bool


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

    def keep(self, names: Collection[str]) -> None:
        """Close all but these, and let those be closed again for want of room."""
        for name in list(self._open):
            if name not in names:
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
        raise Unreadable(f"{error.strerror}{_owner(path)}") from error
    found = os.fstat(descriptor)
    is_same = FileId(found.st_dev, found.st_ino) == file
    if is_same and birth_ns is not None:
        is_same = _OPENED.birth_ns(descriptor) in (birth_ns, None)
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
            return f"not removed: {error.strerror}{_owner(path)}"
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
        return f"not moved to {target}: {error.strerror}{_owner(path)}"
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


def _owner(path: str) -> str:
    try:
        found = Path(path).stat()
    except OSError:
        return ""
    mode = stat.filemode(found.st_mode)
    return f" (owner uid {found.st_uid}, mode {mode}; the collector is uid {os.geteuid()})"


class _Statx:
    """statx by ctypes: the one call that tells when a file was born."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._call = libc.statx if sys.platform == "linux" and hasattr(libc, "statx") else None
        self._buffer = ctypes.create_string_buffer(256)

    def birth_ns(self, descriptor: int) -> int | None:
        """When an open file was born; None where that is not known."""
        if self._call is None:
            return None
        if self._call(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, self._buffer) != 0:
            return None
        return self._birth_ns()

    def _birth_ns(self) -> int | None:
        (given,) = struct.unpack_from("<I", self._buffer, 0)
        birth_s, birth_ns = _STATX_TIME.unpack_from(self._buffer, 80)
        return birth_s * 10**9 + birth_ns if given & _STATX_BTIME else None

    def seen(self, path: str, input_index: int) -> Seen | None:
        """The file under a name, symlinks followed; None when it is not a plain file."""
        if self._call is None:
            return self._plain(path, input_index)
        mask = _STATX_BASIC | _STATX_BTIME
        if self._call(_AT_FDCWD, os.fsencode(path), 0, mask, self._buffer) != 0:
            # Not there, not allowed, or no such call here: the plain way tells which.
            return self._plain(path, input_index)
        raw = self._buffer.raw
        mode, inode, size = _STATX_HEAD.unpack_from(raw, 0)
        if not stat.S_ISREG(mode):
            return None
        changed_s, changed_ns = _STATX_TIME.unpack_from(raw, 112)
        major, minor = struct.unpack_from("<II", raw, 136)
        file = FileId(os.makedev(major, minor), inode)
        changed = changed_s * 10**9 + changed_ns
        return Seen(path, file, size, changed, self._birth_ns(), input_index)

    @staticmethod
    def _plain(path: str, input_index: int) -> Seen | None:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            return None
        file = FileId(found.st_dev, found.st_ino)
        return Seen(path, file, found.st_size, found.st_mtime_ns, None, input_index)


_OPENED = _Statx()
"""For files that are opened, all in one thread; a walker, which may have another, has its own."""

_Look = tuple[int, int, int, int, int]
"""All of a stat that changes when a file does."""


class _Stat(Protocol):
    """Something that can be asked for a file's stat, symlinks followed."""

    def stat(self) -> os.stat_result: ...


@dataclass(frozen=True, slots=True)
class _Walk:
    """One scan in the making: the files by path, and the folders and files that refused."""

    found: dict[str, tuple[_Look, Seen]]
    problems: dict[str, None]


class Walker:
    """Finds every name that matches; of several patterns the first one has a name."""

    def __init__(self, patterns: Sequence[Pattern]):
        self._patterns = patterns
        self._statx = _Statx()
        self._last: dict[str, tuple[_Look, Seen]] = {}

    def scan(self) -> Scan:
        """Walk all roots once. Folders behind symlinks are not entered, files are."""
        walk = _Walk({}, {})
        for pattern in self._patterns:
            if pattern.segments:
                self._walk(pattern, walk)
            else:
                self._add(pattern, pattern.root, Path(pattern.root), walk)
        self._last = walk.found
        seen = tuple(seen for _, seen in walk.found.values())
        return Scan(seen, tuple(walk.problems), not walk.problems)

    def roots(self) -> dict[str, tuple[FileId, bool]]:
        """The folders to watch that are there: which one each is, and whether all below counts."""
        wanted: dict[str, bool] = {}
        for pattern in self._patterns:
            path, recursive = pattern.root, pattern.depth != 1
            if not pattern.segments:
                path, recursive = path.rpartition("/")[0] or "/", False
            wanted[path] = wanted.get(path, False) or recursive
        found: dict[str, tuple[FileId, bool]] = {}
        for path, recursive in wanted.items():
            with contextlib.suppress(OSError):
                folder = Path(path).stat()
                if stat.S_ISDIR(folder.st_mode):
                    found[path] = FileId(folder.st_dev, folder.st_ino), recursive
        return found

    def _walk(self, pattern: Pattern, walk: _Walk) -> None:
        folders = [(pattern.root, "", 0)]
        while folders:
            folder, below, level = folders.pop()
            try:
                with os.scandir(folder) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                walk.problems[f"{folder}: {error.strerror}{_owner(folder)}"] = None
                continue
            for entry in entries:
                if pattern.excludes(entry.name):
                    continue
                name = f"{below}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if pattern.enters(level + 1):
                        folders.append((entry.path, f"{name}/", level + 1))
                elif pattern.matches(name):
                    self._add(pattern, entry.path, entry, walk)

    def _add(self, pattern: Pattern, path: str, entry: "_Stat", walk: _Walk) -> None:
        if path in walk.found:
            return
        try:
            found = entry.stat()
            if not stat.S_ISREG(found.st_mode):
                return
            # Nothing about the file has changed: it is what it was at the last scan. statx, which
            # costs three times as much, need not be asked for its birth again.
            look = (found.st_ino, found.st_dev, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            last = self._last.get(path)
            if last is not None and last[0] == look:
                walk.found[path] = last
                return
            seen = self._statx.seen(path, pattern.input_index)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            # A symlink that leads to itself leads to no file, as one that leads nowhere.
            if error.errno != errno.ELOOP:
                walk.problems[f"{path}: {error.strerror}"] = None
            return
        if seen is not None:
            walk.found[path] = (look, seen)


class DataFolder:
    """The collector's own folder: the lock that makes it the only one there, and its name."""

    def __init__(self, path: str):
        self._path = Path(path)
        self._lock: int | None = None

    def lock(self) -> None:
        """Become the only collector of this folder until the process ends; raises InUse."""
        self._path.mkdir(parents=True, exist_ok=True)
        path = self._path / "collector.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise InUse(f"{self._path} is in use by the collector with pid {holder}") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = descriptor

    def unlock(self) -> None:
        """Let another collector have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def stored_instance(self) -> str | None:
        """The instance name made at the first start; None before it."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return (self._path / "instance").read_text().strip() or None
        return None

    def instance(self) -> str:
        """The instance name, made and kept durably when there is none yet."""
        found = self.stored_instance()
        if found is not None:
            return found
        name = str(uuid.uuid4())
        temporary = self._path / "instance.new"
        with temporary.open("w") as out:
            out.write(f"{name}\n")
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(self._path / "instance")
        folder = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return name
