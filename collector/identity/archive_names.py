"""The names that log rotation gives to old files.

This module is pure. Archives of `x.log` are named `x.log.N`, `x.log-DATE`, `x-DATE.log` or
`x.N.log` (N: digits, DATE: eight or more digits). These names and `x.log` itself can also have the
ending of a compressor. For a name without extension, only the first two forms exist. Such a name
does not prove that a file is an archive. It only makes a new file wait for a moment, until its
content is known.
"""

import re

COMPRESSED_ENDINGS = (".gz", ".zst", ".bz2", ".xz")

_NUMBERED = re.compile(r"(.+)(?:\.\d+|-\d{8,})")
_INSIDE = re.compile(r"(.+)(?:\.\d+|-\d{8,})(\.[^./\d][^./]*)")


def originals(path: str) -> tuple[str, ...]:
    """Return the paths of the files of which `path` could be an archive."""
    folder, slash, name = path.rpartition("/")
    bare = name
    for ending in COMPRESSED_ENDINGS:
        if name.endswith(ending) and len(name) > len(ending):
            bare = name.removesuffix(ending)
            break
    found = [bare] if bare != name else []
    if (match := _NUMBERED.fullmatch(bare)) is not None:
        found.append(match[1])
    if (match := _INSIDE.fullmatch(bare)) is not None:
        found.append(match[1] + match[2])
    return tuple(f"{folder}{slash}{one}" for one in found)
