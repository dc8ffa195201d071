"""What the quorum knows of the metadata log: its ends, its epochs, its snapshot.

Floor: quorum. Pure. The view is ahead of the disk: it holds what was given out to be done.
Invariants: `start_offset` <= newest snapshot's end <= `committed_offset` <= `end_offset`;
`durable_end_offset` <= `end_offset`. Nothing committed is ever truncated.
"""

from __future__ import annotations

from broker.quorum.events import EpochEnd
from broker.quorum.snapshot import SnapshotId
from broker.storage.leader_epochs import LeaderEpochs
from protocol.wire.records import BatchHeader


class LogView:
    """One replica's metadata log, seen from the quorum."""

    __slots__ = (
        "_truncations",
        "committed_offset",
        "durable_end_offset",
        "end_offset",
        "epochs",
        "snapshot_id",
        "start_offset",
    )

    def __init__(
        self,
        epochs: list[tuple[int, int]],
        end_offset: int,
        *,
        start_offset: int = 0,
        snapshot_id: SnapshotId | None = None,
    ) -> None:
        """The log as it was recovered, all of it durable; `epochs` are (epoch, start offset)."""
        snapshot_end = snapshot_id.end_offset if snapshot_id else 0
        if not start_offset <= snapshot_end <= end_offset:
            raise ValueError(
                f"metadata log from {start_offset} to {end_offset} with a snapshot to "
                f"{snapshot_end}: records are missing between them"
            )
        self.epochs = LeaderEpochs(epochs)
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.durable_end_offset = end_offset
        self.snapshot_id = snapshot_id
        self.committed_offset = snapshot_end
        self._truncations = 0
        if snapshot_id and snapshot_end == start_offset:
            self._begin_with(snapshot_id.epoch)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; in an empty log the snapshot's, -1 at birth."""
        return self.epochs.latest

    def append(self, header: BatchHeader) -> None:
        """A batch of the epoch in its header was given out to be appended."""
        assert header.base_offset == self.end_offset, "a batch must follow the log's end"
        self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        self.end_offset = header.last_offset + 1

    def synced(self, end_offset: int) -> bool:
        """All below has reached the disk; returns whether that is news.

        What is reported while a truncation is under way belongs to the log as it was before it.
        """
        if self._truncations or end_offset <= self.durable_end_offset:
            return False
        self.durable_end_offset = min(end_offset, self.end_offset)
        return True

    def truncate_to(self, offset: int) -> None:
        """Drop all from the offset on; `truncated` tells when the disk has done so."""
        assert offset >= self.committed_offset, f"{offset} is below {self.committed_offset}"
        self._truncate(offset)
        self._truncations += 1

    def truncated(self) -> None:
        """The oldest truncation under way has reached the disk."""
        assert self._truncations > 0, "no truncation was given out"
        self._truncations -= 1

    def unwritten(self, end_offset: int) -> None:
        """What was given out above the offset was never written.

        So it was not replayed either, though it may be committed elsewhere.
        """
        assert end_offset >= self.start_offset
        self.committed_offset = min(self.committed_offset, end_offset)
        self._truncate(min(end_offset, self.end_offset))

    def _truncate(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self.durable_end_offset = min(self.durable_end_offset, end_offset)
        self.epochs.truncate_from_end(end_offset)
        if not self.epochs.entries and self.snapshot_id and self.start_offset == end_offset:
            self._begin_with(self.snapshot_id.epoch)

    def reset_to(self, snapshot_id: SnapshotId) -> None:
        """The log begins and ends with a fetched snapshot."""
        assert snapshot_id.end_offset >= self.committed_offset, "a snapshot older than the log"
        self.start_offset = self.end_offset = self.durable_end_offset = snapshot_id.end_offset
        self.committed_offset = snapshot_id.end_offset
        self.snapshot_id = snapshot_id
        self.epochs = LeaderEpochs()
        self._begin_with(snapshot_id.epoch)

    def snapshotted(self, snapshot_id: SnapshotId, start_offset: int) -> None:
        """A snapshot of our own covers the log up to its end; it now begins at `start_offset`."""
        assert start_offset <= snapshot_id.end_offset <= self.committed_offset
        assert start_offset >= self.start_offset, "a log's start does not go back"
        self.snapshot_id = snapshot_id
        epoch_before = self.epochs.epoch_of(start_offset - 1)
        self.epochs.truncate_from_start(start_offset)
        self.start_offset = start_offset
        if start_offset:
            self._begin_with(epoch_before)

    def _begin_with(self, epoch: int) -> None:
        """Keep the epoch of the record before the start: a replica that ends there has it."""
        entries = self.epochs.entries
        if epoch > 0 and (not entries or entries[0].leader_epoch > epoch):
            self.epochs = LeaderEpochs([(epoch, self.start_offset), *entries])

    def compare(self, offset: int, epoch: int) -> EpochEnd | SnapshotId | None:
        """Whether a replica's log, which ends at the offset with that epoch, is a prefix of ours.

        None if it is. If not: where ours ended in the largest epoch not above the one asked for,
        or, when that lies below our start, the snapshot to fetch.
        """
        snapshot_id = self.snapshot_id
        if offset < self.start_offset and snapshot_id:
            return snapshot_id
        if offset == 0 and epoch < 0:
            return None
        entries = self.epochs.entries
        if snapshot_id and self.start_offset and (not entries or epoch < entries[0].leader_epoch):
            return snapshot_id
        found, end_offset = self.epochs.end_offset_for(epoch, self.end_offset, self.last_epoch)
        if found == epoch and offset <= end_offset:
            return None
        return EpochEnd(found, end_offset)

    def common_end(self, diverging: EpochEnd) -> int:
        """How far our log can agree with a leader's that ended there (KIP-101, KIP-279).

        The lesser of both ends in the leader's epoch; where we do not know that epoch, our end in
        the largest one below it, to be compared again. Our own end where the answer makes no sense.
        """
        found, end_offset = self.epochs.end_offset_for(
            min(diverging.epoch, self.last_epoch), self.end_offset, self.last_epoch
        )
        if found < 0 or diverging.epoch < 0:
            return self.end_offset
        return min(end_offset, diverging.end_offset) if found == diverging.epoch else end_offset
