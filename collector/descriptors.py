"""Raise the limit on the number of files that this process can open."""

from protocol.descriptors import raise_descriptor_limit

OTHERS_MAX = 256
"""The file descriptors reserved for sockets, watches, logs and files that are opened briefly."""


def room_for(open_files: int) -> int:
    """Raise the limit of the process if needed. Return how many log files can be open at once."""
    limit = raise_descriptor_limit(open_files + OTHERS_MAX)
    return min(open_files, max(1, limit - OTHERS_MAX))
