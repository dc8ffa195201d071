"""The errors of storage: damaged data, a failing disk, a wrong folder.

This module has only data classes. Requests are refused with an `ApiError` of `protocol`. Three
errors are not the client's fault. A `CorruptionError` takes one partition offline. A `DiskError`
makes the current write fail. After a failed flush the process must stop, because a repeated flush
can succeed although the data was not written. A `FolderError` means that the broker must not start
in this folder.
"""

from __future__ import annotations

import errno
import os

from protocol.errors import ApiError, ErrorCode

FLUSH_OPERATIONS = ("fdatasync", "sync folder")

GONE = frozenset({errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE})
"""The error numbers of a device or file system that failed while the broker was running."""

SHORT = frozenset({errno.EMFILE, errno.ENFILE})
"""The error numbers of a process or a machine that has no file descriptor left."""


class CorruptionError(Exception):
    """The stored data differs from the written data. The files are kept as they are."""

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
        """True if the disk is full: a later write can succeed, and nothing is broken."""
        return self.number in (errno.ENOSPC, errno.EDQUOT)

    @property
    def is_gone(self) -> bool:
        """True if the disk itself has failed, so that later writes will fail too."""
        return self.number in GONE

    @property
    def is_short(self) -> bool:
        """True if the process had no free file descriptor. A retry can succeed, and the data can be
        intact.

        This includes a folder that could not be opened for an fsync. Any other failed fsync is
        final.
        """
        return self.number in SHORT

    @property
    def is_flush(self) -> bool:
        """True if a flush failed, so that no data written since the last successful flush can be
        trusted.

        If a folder could not be opened for lack of descriptors, no fsync was attempted.
        """
        return self.operation in FLUSH_OPERATIONS and not self.is_short

    @property
    def is_final(self) -> bool:
        """True if the process must stop, because its writes can no longer be trusted or will fail.

        A read error of one sector is not final, because the other sectors can be intact.
        """
        return self.is_flush or (self.is_gone and self.operation != "read")


def is_damage(error: Exception) -> bool:
    """Return True if a read has shown that stored data was changed or lost."""
    if isinstance(error, DiskError):
        return error.operation == "read" and error.number == errno.EIO
    return isinstance(error, CorruptionError)


class FolderError(Exception):
    """The data folder belongs to another broker or is in use; the broker must not start."""

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
    """The header of the batch is valid, but its records must be checked too, which takes time.

    This is not a refusal. Raised before anything has changed.
    """
