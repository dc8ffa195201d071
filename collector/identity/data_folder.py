"""The collector's data folder on the disk, with its lock and the name of the instance."""

import contextlib
import fcntl
import os
import uuid
from pathlib import Path


class InUse(Exception):
    """The error when another process uses the data folder. Its text names that process."""


class DataFolder:
    """The collector's data folder: its lock, which only one collector can hold, and the instance
    name.
    """

    def __init__(self, path: str):
        self._path = Path(path)
        self._lock: int | None = None

    def lock(self) -> None:
        """Lock the folder until the process ends.

        Raises InUse if another collector has the lock.
        """
        self._path.mkdir(parents=True, exist_ok=True)
        path = self._path / "collector.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise InUse(f"{self._path} is in use by the collector with pid {holder}") from error
        # The process id only serves the message of InUse, so a full disk does not matter.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = descriptor

    def unlock(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def stored_instance(self) -> str | None:
        """Return the instance name that the first start has made; None before the first start."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return (self._path / "instance").read_text().strip() or None
        return None

    def instance(self) -> str:
        """Return the instance name. At the first start, create a name and fsync it."""
        found = self.stored_instance()
        if found is not None:
            return found
        name = str(uuid.uuid4())
        temporary = self._path / "instance.new"
        with temporary.open("w") as out:
            out.write(f"{name}\n")
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(self._path / "instance")
        folder = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return name
