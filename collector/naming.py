"""Tells whether a text that the user typed names a file."""

from fnmatch import fnmatch


def is_meant(path: str | None, wanted: str) -> bool:
    """Tell whether `wanted` is a file's path, the end of the path, or a glob that matches it."""
    if path is None:
        return False
    return path == wanted or path.endswith(f"/{wanted}") or fnmatch(path, wanted)
