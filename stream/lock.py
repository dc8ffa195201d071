"""One driver works on a data folder: the lock that says so."""

import fcntl
import os
from pathlib import Path


class AlreadyRunning(Exception):
    """Another stream of this data folder is alive."""


def take_lock(path: Path) -> int:
    """Hold the data folder's lock as long as the descriptor is open; raises AlreadyRunning.

    It lies outside of the checkpoint, because that may be deleted while a driver lives.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise AlreadyRunning(f"another stream holds {path}") from None
    return descriptor
