"""Walks the folders: every name that matches, with the stat of its file.

Floor: beside `discovery` and `sightings`, whose plain data it takes and gives. Synchronous; the
agent runs a scan in a thread.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from collector.identity.discovery import Pattern
from collector.identity.sightings import Seen
from collector.identity.statx import Statx, owner_of
from collector.text.fingerprint import FileId


@dataclass(frozen=True, slots=True)
class Scan:
    """All matching names at one time. Not `is_complete` when a folder could not be read."""

    seen: tuple[Seen, ...]
    problems: tuple[str, ...]
    is_complete: bool


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
        self._statx = Statx()
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
                walk.problems[f"{folder}: {error.strerror}{owner_of(folder)}"] = None
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
