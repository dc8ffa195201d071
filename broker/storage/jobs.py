"""Work on files that waits for the device, packed for a thread.

Floor: storage. Each job is made in the loop from the state of that moment; `perform()` touches
files and nothing else, so a thread may run it while the loop goes on. It raises DiskError.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.storage.claim import FolderClaim
from broker.storage.disk import Disk, DiskFile
from broker.storage.errors import DiskError

if TYPE_CHECKING:
    from broker.storage.producer_files import ProducerFilesJob
    from broker.storage.segment import Segment


class FlushTarget:
    """Everything of one log that was written but not on the disk when the target was taken.

    After `perform`, back in the loop, give it to `log.flushed`. When `perform` raises, the process
    must stop: the kernel may have dropped the pages, and a second flush would succeed over a hole.
    """

    __slots__ = (
        "_claim",
        "_disk",
        "_files",
        "_folder",
        "closed",
        "end_offset",
        "producer_files",
        "roll_count",
        "truncation_count",
    )

    def __init__(
        self,
        disk: Disk,
        claim: FolderClaim,
        files: Sequence[DiskFile],
        closed: Sequence[Segment],
        folder: str | None,
        end_offset: int,
        roll_count: int,
        truncation_count: int,
        producer_files: ProducerFilesJob | None = None,
    ) -> None:
        self._disk = disk
        self._claim = claim
        self._files = files
        self._folder = folder
        self.closed = closed
        """The segments whose index files are among the files."""
        self.end_offset = end_offset
        self.roll_count = roll_count
        self.truncation_count = truncation_count
        self.producer_files = producer_files

    def perform(self) -> None:
        for file in self._files:
            file.datasync()
        # From here on by path, and a deleted log's path may be a namesake's.
        with self._claim.held() as is_ours:
            # They speak of batches that must not be lost when they are not.
            if is_ours and self.producer_files is not None:
                self.producer_files.perform()
            # The name of a segment made since the last flush must last as long as its content.
            if is_ours and self._folder is not None:
                self._disk.sync_folder(self._folder)


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
