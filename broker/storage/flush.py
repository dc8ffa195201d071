"""One flush of one log, packed for a thread.

Floor: storage. It is made in the loop from the state of that moment; `perform()` touches files and
nothing else, so a thread may run it while the loop goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.storage.claim import FolderClaim
from broker.storage.disk import Disk, DiskFile
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
