"""Walks the input folders, and returns every matching name with the stat of its file.

It is synchronous, so the agent runs a scan in a thread.
"""

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os.path import realpath
from pathlib import Path
from typing import Protocol

from collector.identity.discovery import NextSegments, Pattern
from collector.identity.sightings import Seen
from collector.identity.statx import Statx, owner_of
from collector.text.fingerprint import FileId


@dataclass(frozen=True, slots=True)
class FolderScan:
    """All matching names that one scan found.

    `is_complete` is False if a folder could not be read.
    """

    seen: tuple[Seen, ...]
    problems: tuple[str, ...]
    is_complete: bool
    passed: tuple[str, ...] = ()
    """The symbolic links that were not followed, each with the reason. They are not problems."""


_Look = tuple[int, int, int, int, int]
"""The fields of a stat of which at least one changes whenever the file changes."""


class _Stat(Protocol):
    """The method of `os.DirEntry` that a walk uses: it returns a file's stat and follows links."""

    def stat(self) -> os.stat_result: ...


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder that a walk enters for one pattern. `real` is its path without symbolic links."""

    pattern: Pattern
    path: str
    real: str
    below: str
    segments: NextSegments


@dataclass(frozen=True, slots=True)
class _Walk:
    """The state of one scan: the files found, by path, and the folders that could not be read.

    `links` are folders behind symbolic links that the scan must still enter. `entered` are the
    folders that it has entered already.
    """

    found: dict[str, tuple[_Look, Seen]] = field(default_factory=dict)
    problems: dict[str, None] = field(default_factory=dict)
    passed: dict[str, None] = field(default_factory=dict)
    links: deque[_Folder] = field(default_factory=deque)
    entered: set[tuple[int, str, NextSegments]] = field(default_factory=set)
    linked: dict[str, bool] = field(default_factory=dict)
    """Folders that were entered through a link. The value is True if names in subfolders can
    match a pattern.
    """


class Walker:
    """Finds every matching name. The first pattern that matches a name gets the file."""

    def __init__(self, patterns: Sequence[Pattern]):
        self._patterns = patterns
        self._statx = Statx()
        self._last: dict[str, tuple[_Look, Seen]] = {}
        self._linked: dict[str, bool] = {}

    def scan(self) -> FolderScan:
        """Walk all roots first, then the folders behind symbolic links.

        So a file is reported under its real name if a pattern matches that name, and under the name
        of the link otherwise.
        """
        walk = _Walk()
        for pattern in self._patterns:
            root = pattern.root
            if pattern.segments:
                self._walk(_Folder(pattern, root, realpath(root), "", pattern.outset), walk)
            else:
                self._add(pattern, root, Path(root), walk, None)
        files = {seen.file for _, seen in walk.found.values()} if walk.links else set()
        while walk.links:
            folder = walk.links.popleft()
            walk.linked[folder.path] = folder.pattern.goes_deeper(folder.segments)
            self._walk(folder, walk, files)
        self._last, self._linked = walk.found, walk.linked
        seen = tuple(seen for _, seen in walk.found.values())
        return FolderScan(seen, tuple(walk.problems), not walk.problems, tuple(walk.passed))

    def roots(self) -> dict[str, tuple[FileId, bool]]:
        """Return the existing folders to watch: the identity of each, and whether to watch
        subfolders."""
        wanted: dict[str, bool] = {}
        for pattern in self._patterns:
            path, recursive = pattern.root, pattern.depth != 1
            if not pattern.segments:
                path, recursive = path.rpartition("/")[0] or "/", False
            wanted[path] = wanted.get(path, False) or recursive
        wanted |= self._linked
        found: dict[str, tuple[FileId, bool]] = {}
        for path, recursive in wanted.items():
            with contextlib.suppress(OSError):
                folder = Path(path).stat()
                if stat.S_ISDIR(folder.st_mode):
                    found[path] = FileId(folder.st_dev, folder.st_ino), recursive
        return found

    def _walk(self, top: _Folder, walk: _Walk, files: set[FileId] | None = None) -> None:
        pattern = top.pattern
        folders = [top]
        while folders:
            folder = folders.pop()
            key = id(pattern), folder.real, folder.segments
            if files is not None and key in walk.entered:
                continue
            walk.entered.add(key)
            for entry in _entries(folder.path, walk):
                if pattern.excludes(entry.name):
                    continue
                name = f"{folder.below}{entry.name}"
                is_link = entry.is_symlink()
                if not _is_folder(entry):
                    if pattern.matches(name):
                        self._add(pattern, entry.path, entry, walk, files, is_link=is_link)
                    continue
                segments = pattern.below(folder.segments, entry.name)
                if not segments:
                    continue
                real = realpath(entry.path) if is_link else f"{folder.real}/{entry.name}"
                inner = _Folder(pattern, entry.path, real, f"{name}/", segments)
                if not is_link:
                    folders.append(inner)
                elif _leads_upwards(inner, folder):
                    walk.passed[
                        f"{entry.path}: not followed, because this link leads to a folder above it"
                    ] = None
                else:
                    walk.links.append(inner)

    def _add(
        self,
        pattern: Pattern,
        path: str,
        entry: _Stat,
        walk: _Walk,
        files: set[FileId] | None,
        *,
        is_link: bool = False,
    ) -> None:
        """Add a file to the scan. `files`, if given, are files already found under another name."""
        if path in walk.found:
            return
        try:
            found = entry.stat()
            if not stat.S_ISREG(found.st_mode):
                return
            # The stat is equal to that of the last scan, so reuse the result of that scan. statx,
            # which also reads the time of birth, costs three times as much.
            look = (found.st_ino, found.st_dev, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if files is not None:
                file = FileId(found.st_dev, found.st_ino)
                if file in files:
                    return
                files.add(file)
            last = self._last.get(path)
            if last is not None and last[0] == look:
                walk.found[path] = last
                return
            seen = self._statx.seen(path, pattern.input_index)
        except (FileNotFoundError, NotADirectoryError):
            if is_link:
                walk.passed[
                    f"{path}: this link leads nowhere; in a container, mount the folder that it"
                    " leads to"
                ] = None
            return
        except OSError as error:
            # A symbolic link that leads to itself leads to no file, like a dangling link.
            if error.errno != errno.ELOOP:
                walk.problems[f"{path}: {error.strerror}"] = None
            return
        if seen is not None:
            walk.found[path] = (look, seen)


def _entries(folder: str, walk: _Walk) -> Iterable["os.DirEntry[str]"]:
    """Return a folder's entries sorted by name; none if the folder is gone or unreadable."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        walk.problems[f"{folder}: {error.strerror}{owner_of(folder)}"] = None
        return ()


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """Tell whether a name is a folder or a link to a folder."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _leads_upwards(link: _Folder, folder: _Folder) -> bool:
    """Tell whether a link leads to a folder that contains the link, by its real or its own path."""
    above = f"{link.real.rstrip('/')}/"
    return f"{folder.real}/".startswith(above) or f"{folder.path}/".startswith(above)
