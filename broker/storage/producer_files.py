"""The transaction indexes and the producer snapshots of a log.

Both are written in the thread of a flush, the snapshots last. A snapshot means that every
transaction index below it is complete, so a start does not read the batches below it again. Files
that cannot be written are skipped, and the next start reads the batches instead.
"""

from __future__ import annotations

from broker.storage.disk import Disk
from broker.storage.errors import DiskError
from broker.storage.producer_snapshot import ProducerSnapshot
from broker.storage.producer_state import ProducerStateManager
from broker.storage.segment import BASE_DIGITS, SNAPSHOT_SUFFIX, Segment
from broker.storage.segments import Segments
from broker.storage.txn_index import AbortedEntry

PENDING_MAX = 4
"""The largest number of snapshots that wait for a flush. A start uses the newest ones."""


def snapshot_path(folder: str, offset: int) -> str:
    return f"{folder}/{offset:0{BASE_DIGITS}d}{SNAPSHOT_SUFFIX}"


def snapshot_offsets(disk: Disk, folder: str) -> list[int]:
    """Return the offsets of all snapshots in a folder, in rising order."""
    size = BASE_DIGITS + len(SNAPSHOT_SUFFIX)
    return sorted(
        int(name[:BASE_DIGITS])
        for name in disk.list_folder(folder)
        if name.endswith(SNAPSHOT_SUFFIX) and name[:BASE_DIGITS].isdigit() and len(name) == size
    )


class ProducerFilesJob:
    """The file writes of one flush, for its thread."""

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
        """The segments whose transaction index is durable, with the durable size in bytes."""

    def perform(self) -> None:
        """Write the files. Raises DiskError only if an fsync has failed, which is final."""
        try:
            for segment, path, position, data in self._tails:
                if position:
                    file = self._disk.open(path)
                    file.write([data], position)
                    file.truncate(position + len(data))
                    file.datasync()
                else:
                    # An existing file is wrong. Replace it and do not truncate it, because a
                    # truncated file could be mistaken for a correct one.
                    self._disk.replace(path, data, is_durable=True)
                self.reached.append((segment, position + len(data)))
            for snapshot in self.snapshots:
                path = snapshot_path(self._folder, snapshot.offset)
                # Retention can remove the batches. After that, this snapshot is the only source of
                # the producer state, so it must be durable.
                self._disk.replace(path, snapshot.encode(), is_durable=True)
        except DiskError as error:
            if error.is_flush:
                raise


class ProducerFiles:
    """The transaction indexes and snapshots of one log that are not yet written."""

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
        self, disk: Disk, folder: str, state: ProducerStateManager, segments: list[Segment]
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
        """True if the log has any aborted transaction."""

    def rolls(self, offset: int) -> None:
        """Take a snapshot, because a segment will begin at `offset`.

        The state includes all batches below it.
        """
        self._snapshots.append(ProducerSnapshot(self._state, offset))
        del self._snapshots[:-PENDING_MAX]

    def stage_abort(self, entry: AbortedEntry) -> None:
        """Record an aborted transaction whose marker has been staged."""
        self._staged.append(entry)

    def written(self, segments: Segments) -> None:
        """Add the staged aborted transactions to their segments, because they have been written."""
        for entry in self._staged:
            segment = segments.at(entry.last_offset)
            segment.txn_index.add(entry)
            self._incomplete[segment] = None
            self.has_aborted = True
        self._staged.clear()

    def take_back(self, log_end_offset: int) -> None:
        """Drop the staged entries and snapshots, because their batches could not be written."""
        self._staged.clear()
        self._snapshots = [one for one in self._snapshots if one.offset <= log_end_offset]

    @property
    def has_work(self) -> bool:
        """True if the next flush must write files of the producer state."""
        return bool(self._incomplete or self._snapshots)

    def job(self) -> ProducerFilesJob | None:
        """Return the job that the next flush must perform; None if there are no files to write."""
        if not self.has_work:
            return None
        tails = []
        for segment in self._incomplete:
            if (tail := segment.txn_index.unwritten()) is not None:
                tails.append((segment, segment.txn_index.path, *tail))
        snapshots, self._snapshots = self._snapshots, []
        return ProducerFilesJob(self._disk, self._folder, tails, snapshots)

    def done(self, job: ProducerFilesJob) -> None:
        """Record that a job was performed."""
        for segment, size_bytes in job.reached:
            segment.txn_index.file_reaches(size_bytes)
            if segment.txn_index.unwritten() is None:
                self._incomplete.pop(segment, None)

    def refused(self, job: ProducerFilesJob) -> None:
        """Record that a job did not finish, so that the next job writes its files again."""
        self._snapshots = [*job.snapshots, *self._snapshots][-PENDING_MAX:]

    def close(self, log_end_offset: int) -> None:
        """Write the snapshot at the log end offset, for the start after a clean stop."""
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
        """Stop tracking a segment that is out of service."""
        self._incomplete.pop(segment, None)

    def dropped_below(self, offset: int) -> None:
        """Stop tracking the segments below `offset`.

        Otherwise a flush would create their files again.
        """
        for segment in [one for one in self._incomplete if one.base_offset < offset]:
            del self._incomplete[segment]
        self._snapshots = [one for one in self._snapshots if one.offset >= offset]
