"""Match a file with what the user typed.

Room: ground of the room. Pure.
"""

from fnmatch import fnmatch


def is_meant(path: str | None, wanted: str) -> bool:
    """Tell whether `wanted` is a file's path, the end of it, or a matching glob."""
    if path is None:
        return False
    return path == wanted or path.endswith(f"/{wanted}") or fnmatch(path, wanted)
