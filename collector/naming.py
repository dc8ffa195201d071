"""Matches a file with the text that the user typed for it.

Pure.
"""

from fnmatch import fnmatch


def is_meant(path: str | None, wanted: str) -> bool:
    """Tell whether `wanted` is a file's path, the end of it, or a matching glob."""
    if path is None:
        return False
    return path == wanted or path.endswith(f"/{wanted}") or fnmatch(path, wanted)
