"""Find paths in the documentation whose files or folders no longer exist."""

import re
from collections.abc import Iterable, Iterator, Mapping

PATH = re.compile(r"`([a-z_]+/[\w/.-]*\w)/?`")
"""Matches `ROOM/…`, or `FOLDER/…` on a page about one room. The file ending can be missing."""


def gone(pages: Mapping[str, str], files: Iterable[str]) -> Iterator[str]:
    """Yield page, line and path for each path in the documentation that does not exist."""
    there: set[str] = set()
    folders: set[str] = set()
    for file in files:
        parts = file.split("/")
        ends = [*parts[:-1], parts[-1].split(".")[0]]
        folders |= set(parts[:-1])
        for first in range(len(parts)):
            there.add("/".join(parts[first:]))
            there |= {"/".join(ends[first:last]) for last in range(first + 1, len(parts) + 1)}
    for page, text in pages.items():
        for number, line in enumerate(text.splitlines(), 1):
            for name in PATH.findall(line):
                # The text after a dot can be a name inside the file, so the part before the dot
                # suffices.
                if name.split("/")[0] in folders and not {name, name.split(".")[0]} & there:
                    yield f"{page}:{number}: {name}"
