"""Files that are out of service, and their removal.

Floor: storage. They were renamed when they went out of service; unlinking them waits for the device
and is done in a thread.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from broker.storage.disk import Disk, DiskFile
from broker.storage.errors import DiskError


class DroppedFiles:
    """Files and folders that are out of service, renamed already; `perform` removes them.

    To be performed at `due_ms` or later. It also lets go of the descriptors, for closing a large
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
    """Unlink a file; one that is gone already is as good."""
    try:
        disk.unlink(path)
    except DiskError as error:
        if error.number != errno.ENOENT:
            raise
