"""The state of the metadata log as the quorum's core sees it: its ends, its epochs, its snapshot.

This module is pure. The view is ahead of the disk: it includes work that the driver has not done
yet. Invariants: `start_offset` <= newest snapshot's end <= `committed_offset` <= `end_offset`;
`durable_end_offset` <= `end_offset`. A committed record is never truncated.
"""

from __future__ import annotations

from broker.quorum.events import QuorumEpochEnd
from broker.quorum.snapshot import SnapshotId
from broker.storage.leader_epochs import LeaderEpochs
from protocol.wire.records import BatchHeader


class LogView:
    """The ends, epochs and snapshot of one replica's metadata log."""

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
        """Start with the state of the recovered log.

        All of its records are durable. `epochs` are pairs (epoch, start offset).
        """
        snapshot_end = snapshot_id.end_offset if snapshot_id else 0
        if not start_offset <= snapshot_end <= end_offset:
            raise ValueError(
                f"the metadata log has the offsets {start_offset} to {end_offset}, and its "
                f"snapshot ends at offset {snapshot_end}: the records between them are missing"
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
        """The epoch of the last record.

        In an empty log it is the snapshot's epoch, or -1 in a new cluster.
        """
        return self.epochs.latest

    def append(self, header: BatchHeader) -> None:
        """Add a batch to the end of the log. Its header has the epoch."""
        assert header.base_offset == self.end_offset, "a batch must follow the log's end"
        self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        self.end_offset = header.last_offset + 1

    def synced(self, end_offset: int) -> bool:
        """Record that all records below `end_offset` are durable. Return True if the durable end
        has moved.

        Reports during a truncation are for the log before the truncation, so they are ignored.
        """
        if self._truncations or end_offset <= self.durable_end_offset:
            return False
        self.durable_end_offset = min(end_offset, self.end_offset)
        return True

    def truncate_to(self, offset: int) -> None:
        """Remove all records from the offset on.

        The driver calls `truncated` when the disk has done so.
        """
        assert offset >= self.committed_offset, f"{offset} is below {self.committed_offset}"
        self._truncate(offset)
        self._truncations += 1

    def truncated(self) -> None:
        """Record that the oldest pending truncation is durable."""
        assert self._truncations > 0, "no truncation was given out"
        self._truncations -= 1

    def unwritten(self, end_offset: int) -> None:
        """Remove the batches above the offset, because they were never written.

        This node has not replayed these batches. Other nodes can have them as committed records.
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
        """Reset the log to the end of a fetched snapshot."""
        assert snapshot_id.end_offset >= self.committed_offset, "a snapshot older than the log"
        self.start_offset = self.end_offset = self.durable_end_offset = snapshot_id.end_offset
        self.committed_offset = snapshot_id.end_offset
        self.snapshot_id = snapshot_id
        self.epochs = LeaderEpochs()
        self._begin_with(snapshot_id.epoch)

    def snapshotted(self, snapshot_id: SnapshotId, start_offset: int) -> None:
        """Record that this node's snapshot covers the log up to the snapshot's end, and that the
        log now starts at `start_offset`."""
        assert start_offset <= snapshot_id.end_offset <= self.committed_offset
        assert start_offset >= self.start_offset, "a log's start does not go back"
        self.snapshot_id = snapshot_id
        epoch_before = self.epochs.epoch_of(start_offset - 1)
        self.epochs.truncate_from_start(start_offset)
        self.start_offset = start_offset
        if start_offset:
            self._begin_with(epoch_before)

    def _begin_with(self, epoch: int) -> None:
        """Keep the epoch of the record before the log's start, because another replica's log can
        end there."""
        entries = self.epochs.entries
        if epoch > 0 and (not entries or entries[0].leader_epoch > epoch):
            self.epochs = LeaderEpochs([(epoch, self.start_offset), *entries])

    def compare(self, offset: int, epoch: int) -> QuorumEpochEnd | SnapshotId | None:
        """Compare this log with another log that ends at the offset with this epoch.

        Returns None if the other log is a prefix of this log. Otherwise it returns the end of this
        log's largest epoch not above `epoch` or, if this end is below the log's start, the id of
        the snapshot to fetch.
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
        return QuorumEpochEnd(found, end_offset)

    def common_end(self, diverging: QuorumEpochEnd) -> int:
        """Return the offset up to which this log can agree with the leader's log (KIP-101,
        KIP-279).

        `diverging` is the leader's answer: an epoch and its end offset. If this log has that epoch,
        the result is the lower of the two logs' ends of the epoch. If not, the result is the end of
        this log's largest epoch below it, and the next fetch compares again. For an invalid answer
        the result is the end of this log.
        """
        found, end_offset = self.epochs.end_offset_for(
            min(diverging.epoch, self.last_epoch), self.end_offset, self.last_epoch
        )
        if found < 0 or diverging.epoch < 0:
            return self.end_offset
        return min(end_offset, diverging.end_offset) if found == diverging.epoch else end_offset
