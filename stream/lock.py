"""The lock by which only one driver at a time uses a data folder."""

import fcntl
import os
from pathlib import Path


class StreamRunning(Exception):
    """The error when another stream uses this data folder."""


def take_lock(path: Path) -> int:
    """Lock the data folder until the descriptor is closed; raises StreamRunning.

    The lock is a file outside of the checkpoint, because a running driver can delete its
    checkpoint.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StreamRunning(f"another stream holds {path}") from None
    return descriptor
