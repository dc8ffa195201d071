"""Find files in the mill's watched folder that no input matches.

They are reported, because a user put them there to be processed. Files that an input leaves out
with `exclude` are not reported, nor names that every input leaves out.
"""

import fnmatch
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePath

from collector.config.input_section import DEFAULT_EXCLUDE
from collector.identity.discovery import HOME_PREFIX, Pattern

ENTRIES_MAX = 10_000
"""The most names that one search examines."""

_EXCLUDED = re.compile("|".join(map(fnmatch.translate, DEFAULT_EXCLUDE)))


def unmatched_files(home: str, patterns: Sequence[Pattern]) -> tuple[str, ...]:
    """Return the sorted paths of files that no input matches, without folders behind links."""
    found: list[str] = []
    folders = [f"{home}/{HOME_PREFIX.rstrip('/')}"]
    entries = 0
    while folders and entries < ENTRIES_MAX:
        with suppress(OSError), os.scandir(folders.pop()) as listed:
            for entry in listed:
                entries += 1
                if _EXCLUDED.match(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file() and not _is_known(entry.path, patterns):
                    found.append(entry.path)
    return tuple(sorted(found))


def _is_known(path: str, patterns: Sequence[Pattern]) -> bool:
    """Tell whether an input matches a path, or would match it without its `exclude`."""
    for pattern in patterns:
        root = f"{pattern.root.rstrip('/')}/"
        if not pattern.segments:
            # The name of a rotated file begins with the name of the file that the input names.
            if PurePath(path).name.startswith(PurePath(pattern.root).name):
                return True
        elif path.startswith(root) and pattern.matches(path.removeprefix(root)):
            return True
    return False
