"""One flush of one log, prepared for a thread.

The event loop creates a `FlushTarget` from the current state. `perform()` only accesses files, so a
thread can run it while the loop continues. It opens some files by path, so the folder must not be
renamed in the meantime: a deletion waits until the flush has ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.storage.disk import Disk, DiskFile
from broker.storage.producer_files import ProducerFiles, ProducerFilesJob
from broker.storage.segment import Segment
from broker.storage.segments import Segments


class FlushTarget:
    """The data of one log that was written but not fsynced when the target was created.

    After `perform`, call `log.flushed` in the loop. If `perform` raises a final error, the process
    must stop: the kernel can have dropped the pages, and a second flush would succeed although data
    is missing. Any other error means that a folder could not be opened, so no fsync has failed:
    call `log.flush_refused`.
    """

    __slots__ = (
        "_disk",
        "_files",
        "_folder",
        "closed",
        "end_offset",
        "producer_files",
        "roll_count",
    )

    def __init__(
        self,
        disk: Disk,
        files: Sequence[DiskFile],
        closed: Sequence[Segment],
        folder: str | None,
        end_offset: int,
        roll_count: int,
        producer_files: ProducerFilesJob | None = None,
    ) -> None:
        self._disk = disk
        self._files = files
        self._folder = folder
        self.closed = closed
        """The closed segments whose index files are among the files."""
        self.end_offset = end_offset
        self.roll_count = roll_count
        self.producer_files = producer_files

    def perform(self) -> None:
        for file in self._files:
            file.datasync()
        # Indexes and snapshots refer to the batches, so the batches must be durable first.
        if self.producer_files is not None:
            self.producer_files.perform()
        # Make the name of a segment that was created since the last flush as durable as its
        # content.
        if self._folder is not None:
            self._disk.sync_folder(self._folder)


class Flushing:
    """The data of one log that must still be fsynced, and the number of its flushes in progress."""

    __slots__ = (
        "_disk",
        "_folder",
        "_producer_files",
        "_segments",
        "_synced_roll_count",
        "_under_way_count",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        segments: Segments,
        producer_files: ProducerFiles,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._segments = segments
        self._producer_files = producer_files
        self._synced_roll_count = 0
        self._under_way_count = 0

    @property
    def is_under_way(self) -> bool:
        """True if a target was returned by `target` and neither `flushed` nor `refused` was called
        for it yet.
        """
        return self._under_way_count > 0

    def target(self, recovery_point: int) -> FlushTarget | None:
        """Return the next flush; None if all written data is on the disk.

        Raises DiskError if a file cannot be opened. In this case nothing has changed.
        """
        segments = self._segments
        end_offset, roll_count = segments.active.next_offset, segments.roll_count
        has_rolled = roll_count != self._synced_roll_count
        is_synced = recovery_point >= end_offset and not has_rolled
        if is_synced and not self._producer_files.has_work:
            return None
        closed, files = segments.to_sync(recovery_point)
        self._under_way_count += 1
        return FlushTarget(
            self._disk,
            files,
            closed,
            self._folder if has_rolled else None,
            end_offset,
            roll_count,
            self._producer_files.job(),
        )

    def flushed(self, target: FlushTarget) -> None:
        """Record a performed target."""
        self._under_way_count -= 1
        if target.producer_files is not None:
            self._producer_files.done(target.producer_files)
        if target.closed:
            self._segments.indexes_synced(target.closed)
        self._synced_roll_count = max(self._synced_roll_count, target.roll_count)

    def refused(self, target: FlushTarget) -> None:
        """Record that a target was not performed, although no fsync failed. The next target
        includes its data."""
        self._under_way_count -= 1
        if target.producer_files is not None:
            self._producer_files.refused(target.producer_files)
