"""What can be wrong below the log: the data at rest, the disk, the folder.

Floor: storage. Data only. Refusals are `ApiError`s of `protocol`; three are not the client's fault:
a `CorruptionError` takes one partition offline, a `DiskError` fails what was being written (and
after a failed flush the process must stop, for a retry may lie), a `FolderError` means the broker
must not start here at all.
"""

from __future__ import annotations

import errno
import os

from protocol.errors import ApiError, ErrorCode

FLUSH_OPERATIONS = ("fdatasync", "sync folder")

GONE = frozenset({errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE})
"""What a device or a file system answers that has failed under a running broker."""

SHORT = frozenset({errno.EMFILE, errno.ENFILE})
"""The process, or the machine, has no descriptor left."""


class CorruptionError(Exception):
    """Data below the durable floor is not what was written; it is kept as it is."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class DiskError(Exception):
    """The operating system refused an operation on a file."""

    def __init__(self, path: str, operation: str, number: int = errno.EIO) -> None:
        super().__init__(f"{operation} {path}: {os.strerror(number)}")
        self.path = path
        self.operation = operation
        self.number = number

    @property
    def is_full(self) -> bool:
        """Whether the disk had no room: the writer may succeed later, nothing is broken."""
        return self.number in (errno.ENOSPC, errno.EDQUOT)

    @property
    def is_gone(self) -> bool:
        """Whether the disk itself has failed; no later write can be expected to do better."""
        return self.number in GONE

    @property
    def is_short(self) -> bool:
        """Whether there was no descriptor to open something with: it may succeed later, and says
        nothing of what lies on the disk.

        A folder that could not be opened to be synced is such a case: try again. Every other
        failure of a sync is final."""
        return self.number in SHORT

    @property
    def is_flush(self) -> bool:
        """Whether a flush failed, after which nothing that was written can be trusted.

        A folder that could not be opened has not been asked to be synced.
        """
        return self.operation in FLUSH_OPERATIONS and not self.is_short

    @property
    def is_final(self) -> bool:
        """Whether the process must end: nothing it writes can be trusted, or taken, any more.

        One sector that cannot be read says nothing of the others.
        """
        return self.is_flush or (self.is_gone and self.operation != "read")


def is_damage(error: Exception) -> bool:
    """Whether a read has shown that what is at rest is not what was written, or is lost."""
    if isinstance(error, DiskError):
        return error.operation == "read" and error.number == errno.EIO
    return isinstance(error, CorruptionError)


class FolderError(Exception):
    """The data folder belongs to someone else or is in use; the broker must not start."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class InvalidRecords(ApiError):
    """A refusal that names records of the batch: the `record_errors` of a produce answer."""

    def __init__(self, code: ErrorCode, detail: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, detail)
        self.record_errors = record_errors


class RecordsUnseen(Exception):
    """No refusal: the batch is fine so far, but its records have to be looked at, which takes time.

    Raised before anything has changed.
    """
