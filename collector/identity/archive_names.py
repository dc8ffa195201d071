"""The names that rotations give to what a file was.

Floor: ground of the room. Pure. Of `x.log` these are `x.log.N`, `x.log-DATE`, `x-DATE.log` and
`x.N.log` (N digits, DATE eight or more), all of them and `x.log` itself also with the ending of a
compressor. A name without extension has the first two forms. Such a name alone makes a file wait
for a moment; it proves nothing.
"""

import re

COMPRESSED_ENDINGS = (".gz", ".zst", ".bz2", ".xz")

_NUMBERED = re.compile(r"(.+)(?:\.\d+|-\d{8,})")
_INSIDE = re.compile(r"(.+)(?:\.\d+|-\d{8,})(\.[^./\d][^./]*)")


def originals(path: str) -> tuple[str, ...]:
    """The paths that `path` would be an archive of."""
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
