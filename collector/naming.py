"""Which files a person means, by what was typed.

Floor: ground of the room. Pure.
"""

from fnmatch import fnmatch


def is_meant(path: str | None, wanted: str) -> bool:
    """Whether a file is meant by a path, the end of one, or a glob."""
    if path is None:
        return False
    return path == wanted or path.endswith(f"/{wanted}") or fnmatch(path, wanted)
