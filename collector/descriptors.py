"""How many files this process may hold open.

Floor: ground of the room. Changes a limit of the process.
"""

import resource

OTHERS_MAX = 256
"""Kept for sockets, watches, logs and files that are opened for a moment."""


def room_for(open_files: int) -> int:
    """How many of so many log files may be open at once, the limit raised as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = open_files + OTHERS_MAX
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(open_files, max(1, soft - OTHERS_MAX))
