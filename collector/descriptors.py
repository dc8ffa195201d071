"""Raise the limit on the number of files that this process can open."""

import resource

OTHERS_MAX = 256
"""The file descriptors reserved for sockets, watches, logs and files that are opened briefly."""


def room_for(open_files: int) -> int:
    """Raise the limit of the process if needed. Return how many log files can be open at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = open_files + OTHERS_MAX
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(open_files, max(1, soft - OTHERS_MAX))
