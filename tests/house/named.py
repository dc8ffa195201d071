"""Files and folders that pages name, which can be moved without the pages being updated."""

import re
from collections.abc import Iterable, Iterator, Mapping

PATH = re.compile(r"`([a-z_]+/[\w/.-]*\w)/?`")
"""`ROOM/…`, or `FOLDER/…` where it is said which room is meant; with or without an ending."""


def gone(pages: Mapping[str, str], files: Iterable[str]) -> Iterator[str]:
    """Return a sentence for each path in the documentation that does not exist in this folder."""
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
                # Behind a point may stand what is in the file.
                if name.split("/")[0] in folders and not {name, name.split(".")[0]} & there:
                    yield f"{page}:{number}: {name}"
