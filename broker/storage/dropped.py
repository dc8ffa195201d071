"""Removes files that are out of service.

The files were renamed when they went out of service. Unlinking waits for the device, so it is done
in a thread.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from broker.storage.disk import Disk, DiskFile
from broker.storage.errors import DiskError


class DroppedFiles:
    """Files and folders that are out of service and already renamed. `perform` removes them.

    Call `perform` at `due_ms` or later. It also closes the open files, because closing a large
    unlinked file takes milliseconds.
    """

    __slots__ = ("_disk", "_files", "_folders", "_held", "due_ms")

    def __init__(
        self,
        disk: Disk,
        files: Sequence[str] = (),
        folders: Sequence[str] = (),
        held: Sequence[DiskFile] = (),
        due_ms: int = 0,
    ) -> None:
        self._disk = disk
        self._files = files
        self._folders = folders
        self._held = held
        self.due_ms = due_ms

    def perform(self) -> None:
        for path in self._files:
            unlink_if_there(self._disk, path)
        for path in self._folders:
            if self._disk.exists(path):
                self._disk.remove_folder(path)
        self._held = ()


def unlink_if_there(disk: Disk, path: str) -> None:
    """Unlink a file. A missing file is not an error."""
    try:
        disk.unlink(path)
    except DiskError as error:
        if error.number != errno.ENOENT:
            raise
