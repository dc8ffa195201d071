"""Holds the files of the inputs open while the stored positions are not known yet.

Brokers can be away when a collector starts. The lines of a file that is rotated away and deleted
before the brokers return would be lost. So the collector scans the folders, opens the files, and
stores each scan that found something new. Once the positions are known, it judges these scans in
order, as if it had run all the time.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from collector.identity.files import FolderScan
from collector.identity.handles import Handle, Handles, Unreadable, is_at
from collector.identity.registry import Registry
from collector.identity.sightings import Seen
from collector.text.fingerprint import FileId

SCANS_MAX = 100
"""The most scans that are stored. Files that only later scans find are not held."""
SIGHTINGS_MAX = 200_000
"""The most files of all stored scans together, because each file takes memory in each scan. The
first scan is stored in any case."""


class HeldFiles:
    """The scans before the positions were known, and the files that they found, which are open."""

    def __init__(self, handles: Handles):
        self._handles = handles
        self._scans: list[FolderScan] = []
        self._files: set[FileId] = set()

    def note(self, scan: FolderScan) -> None:
        """Open the new files of a scan, and store the scan if at least one could be opened."""
        fresh = [seen for seen in scan.seen if seen.file not in self._files]
        if not fresh or self._is_full(len(scan.seen)):
            return
        # The files that were written last are the most likely to have unsent lines.
        fresh.sort(key=lambda seen: -seen.mtime_ns)
        opened = self._handles.by_file()
        held = [
            one
            for one in fresh
            if one.file in opened or self._handles.hold(one.path, one.file, one.birth_ns)
        ]
        self._files.update(one.file for one in held)
        if held:
            self._scans.append(scan)

    def _is_full(self, count: int) -> bool:
        """Return True if no further scan with this number of files can be stored."""
        stored = sum(len(scan.seen) for scan in self._scans)
        is_large = bool(self._scans) and stored + count > SIGHTINGS_MAX
        return is_large or len(self._scans) >= SCANS_MAX

    def replay(self, registry: Registry, judge: Callable[[FolderScan], object]) -> None:
        """Judge the stored scans in order. Close the files that no generation reads.

        A scan whose files all have their names is left out: the next scan finds them too. The sizes
        in a stored scan are out of date. A smaller file would look as if it had lost lines, so they
        are replaced by the present ones.
        """
        # Most files are in many of the scans, so look for each name only once.
        has_name = cache(is_at)
        for scan in self._scans:
            if all(has_name(one.path, one.file) for one in scan.seen):
                continue
            opened = self._handles.by_file()
            judge(replace(scan, seen=tuple(_now(one, opened.get(one.file)) for one in scan.seen)))
            for generation in registry.generations.values():
                if not generation.state.has_ended:
                    self._handles.adopt(generation.name, generation.file)
        self._handles.close_held()
        self._scans.clear()
        self._files.clear()


def _now(seen: Seen, handle: Handle | None) -> Seen:
    """Return a sighting with the present size and time of its open file."""
    if handle is None:
        return seen
    try:
        found = handle.look()
    except Unreadable:
        return seen
    return replace(seen, size=found.size, mtime_ns=found.mtime_ns)
