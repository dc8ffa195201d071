"""What the producers of a log leave in files: aborted transactions and snapshots.

Floor: storage. Both are written in the thread of a flush, the snapshots last: one vouches for every
transaction index below it, so that a start need not look at the batches there again. Whatever
cannot be written is left out, and the batches themselves tell the next start.
"""

from __future__ import annotations

from broker.storage.disk import Disk
from broker.storage.errors import DiskError
from broker.storage.producer_snapshot import ProducerSnapshot
from broker.storage.producer_state import ProducerState
from broker.storage.segment import BASE_DIGITS, SNAPSHOT_SUFFIX, Segment
from broker.storage.segments import Segments
from broker.storage.txn_index import AbortedEntry

PENDING_MAX = 4
"""Snapshots that wait for a flush; the newest are those a start would use."""


def snapshot_path(folder: str, offset: int) -> str:
    return f"{folder}/{offset:0{BASE_DIGITS}d}{SNAPSHOT_SUFFIX}"


def snapshot_offsets(disk: Disk, folder: str) -> list[int]:
    """The offsets of all snapshots in a folder, rising."""
    size = BASE_DIGITS + len(SNAPSHOT_SUFFIX)
    return sorted(
        int(name[:BASE_DIGITS])
        for name in disk.list_folder(folder)
        if name.endswith(SNAPSHOT_SUFFIX) and name[:BASE_DIGITS].isdigit() and len(name) == size
    )


class ProducerFilesJob:
    """The writes of one flush, for its thread."""

    __slots__ = ("_disk", "_folder", "_tails", "reached", "snapshots")

    def __init__(
        self,
        disk: Disk,
        folder: str,
        tails: list[tuple[Segment, str, int, bytes]],
        snapshots: list[ProducerSnapshot],
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._tails = tails
        self.snapshots = snapshots
        self.reached: list[tuple[Segment, int]] = []
        """Segments whose index file is on the disk, up to so many bytes."""

    def perform(self) -> None:
        """Raises DiskError only where a sync has failed, which is final."""
        try:
            for segment, path, position, data in self._tails:
                if position:
                    file = self._disk.open(path)
                    file.write([data], position)
                    file.truncate(position + len(data))
                    file.datasync()
                else:
                    # One that is there is wrong; cut short it might be taken for a right one.
                    self._disk.replace(path, data, is_durable=True)
                self.reached.append((segment, position + len(data)))
            for snapshot in self.snapshots:
                path = snapshot_path(self._folder, snapshot.offset)
                # What it tells may soon be told by nothing else: retention drops the batches.
                self._disk.replace(path, snapshot.encode(), is_durable=True)
        except DiskError as error:
            if error.is_flush:
                raise


class ProducerFiles:
    """Keeps track of what has still to be written."""

    __slots__ = (
        "_disk",
        "_folder",
        "_incomplete",
        "_snapshots",
        "_staged",
        "_state",
        "has_aborted",
    )

    def __init__(
        self, disk: Disk, folder: str, state: ProducerState, segments: list[Segment]
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._state = state
        self._staged: list[AbortedEntry] = []
        self._incomplete = dict.fromkeys(
            segment for segment in segments if segment.txn_index.unwritten() is not None
        )
        self._snapshots: list[ProducerSnapshot] = []
        self.has_aborted = any(segment.txn_index.count for segment in segments)
        """Whether there is any aborted transaction to be found."""

    def rolls(self, offset: int) -> None:
        """A segment will begin at the offset, and everything below it has been told."""
        self._snapshots.append(ProducerSnapshot(self._state, offset))
        del self._snapshots[:-PENDING_MAX]

    def stage_abort(self, entry: AbortedEntry) -> None:
        """A transaction's abort marker has been staged."""
        self._staged.append(entry)

    def written(self, segments: Segments) -> None:
        """What was staged is written: the aborted transactions can be found from here on."""
        for entry in self._staged:
            segment = segments.at(entry.last_offset)
            segment.txn_index.add(entry)
            self._incomplete[segment] = None
            self.has_aborted = True
        self._staged.clear()

    def take_back(self, log_end_offset: int) -> None:
        """What was staged could not be written."""
        self._staged.clear()
        self._snapshots = [one for one in self._snapshots if one.offset <= log_end_offset]

    @property
    def has_work(self) -> bool:
        """Whether the next flush has something to write here."""
        return bool(self._incomplete or self._snapshots)

    def job(self) -> ProducerFilesJob | None:
        """What the next flush has to write here; None when there is nothing."""
        if not self.has_work:
            return None
        tails = []
        for segment in self._incomplete:
            if (tail := segment.txn_index.unwritten()) is not None:
                tails.append((segment, segment.txn_index.path, *tail))
        snapshots, self._snapshots = self._snapshots, []
        return ProducerFilesJob(self._disk, self._folder, tails, snapshots)

    def done(self, job: ProducerFilesJob) -> None:
        """Take a performed job into account."""
        for segment, size_bytes in job.reached:
            segment.txn_index.file_reaches(size_bytes)
            if segment.txn_index.unwritten() is None:
                self._incomplete.pop(segment, None)

    def refused(self, job: ProducerFilesJob) -> None:
        """Its flush has not come to its end: the next one writes what this may not have."""
        self._snapshots = [*job.snapshots, *self._snapshots][-PENDING_MAX:]

    def close(self, log_end_offset: int) -> None:
        """Write the snapshot of the log's end, for the start after a clean stop."""
        path = snapshot_path(self._folder, log_end_offset)
        if self._incomplete or self._disk.exists(path):
            return
        data = ProducerSnapshot(self._state, log_end_offset).encode()
        try:
            self._disk.replace(path, data, is_durable=False)
        except DiskError:
            # The next start reads the batches instead.
            return

    def dropped(self, segment: Segment) -> None:
        """The segment is out of service."""
        self._incomplete.pop(segment, None)

    def dropped_below(self, offset: int) -> None:
        """The segments below are out of service: their files would come back without a log."""
        for segment in [one for one in self._incomplete if one.base_offset < offset]:
            del self._incomplete[segment]
        self._snapshots = [one for one in self._snapshots if one.offset >= offset]
