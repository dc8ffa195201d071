"""The metadata log as the quorum sees it: its ends, its epochs, its snapshot.

This module is pure. The view is ahead of the disk: it includes work that the driver has not done
yet. Invariants: `start_offset` <= newest snapshot's end <= `committed_offset` <= `end_offset`;
`durable_end_offset` <= `end_offset`. Nothing committed is ever truncated.
"""

from __future__ import annotations

from broker.quorum.events import QuorumEpochEnd
from broker.quorum.snapshot import SnapshotId
from broker.storage.leader_epochs import LeaderEpochs
from protocol.wire.records import BatchHeader


class LogView:
    """One replica's metadata log, as the quorum sees it."""

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
        """Take the recovered log, all of it durable. `epochs` are (epoch, start offset)."""
        snapshot_end = snapshot_id.end_offset if snapshot_id else 0
        if not start_offset <= snapshot_end <= end_offset:
            raise ValueError(
                f"metadata log from {start_offset} to {end_offset} with a snapshot to "
                f"{snapshot_end}: the records between are missing"
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
        """The epoch of the last record. For an empty log the snapshot's epoch, -1 in
        a new cluster.
        """
        return self.epochs.latest

    def append(self, header: BatchHeader) -> None:
        """Note a batch to append, of the epoch in its header."""
        assert header.base_offset == self.end_offset, "a batch must follow the log's end"
        self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        self.end_offset = header.last_offset + 1

    def synced(self, end_offset: int) -> bool:
        """Record that everything below `end_offset` is durable. Return whether the durable end has
        moved.

        Reports during a truncation concern the log before the truncation, so they are ignored.
        """
        if self._truncations or end_offset <= self.durable_end_offset:
            return False
        self.durable_end_offset = min(end_offset, self.end_offset)
        return True

    def truncate_to(self, offset: int) -> None:
        """Remove everything from the offset on. `truncated` reports when the disk has done so."""
        assert offset >= self.committed_offset, f"{offset} is below {self.committed_offset}"
        self._truncate(offset)
        self._truncations += 1

    def truncated(self) -> None:
        """Note that the oldest pending truncation is durable."""
        assert self._truncations > 0, "no truncation was given out"
        self._truncations -= 1

    def unwritten(self, end_offset: int) -> None:
        """Note that the batches above the offset were never written.

        So they were not replayed here either, although they can be committed elsewhere.
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
        """Note a snapshot of this node that covers the log up to its end; the log now starts at
        `start_offset`.
        """
        assert start_offset <= snapshot_id.end_offset <= self.committed_offset
        assert start_offset >= self.start_offset, "a log's start does not go back"
        self.snapshot_id = snapshot_id
        epoch_before = self.epochs.epoch_of(start_offset - 1)
        self.epochs.truncate_from_start(start_offset)
        self.start_offset = start_offset
        if start_offset:
            self._begin_with(epoch_before)

    def _begin_with(self, epoch: int) -> None:
        """Keep the epoch of the record before the start, because a replica can end there."""
        entries = self.epochs.entries
        if epoch > 0 and (not entries or entries[0].leader_epoch > epoch):
            self.epochs = LeaderEpochs([(epoch, self.start_offset), *entries])

    def compare(self, offset: int, epoch: int) -> QuorumEpochEnd | SnapshotId | None:
        """Compare with a replica's log that ends at the offset with that epoch.

        Returns None if the other log is a prefix of this log. Otherwise it returns the end of this
        log's largest epoch not above `epoch` or, if that end is below this log's start, the id of
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
        """Return how much of this log can agree with the leader's after its answer (KIP-101,
        KIP-279).

        That is the lower of both ends in the leader's epoch. If this log does not have the epoch,
        it is this log's end in its largest epoch below, and the comparison is repeated. For an
        invalid answer, it is this log's end.
        """
        found, end_offset = self.epochs.end_offset_for(
            min(diverging.epoch, self.last_epoch), self.end_offset, self.last_epoch
        )
        if found < 0 or diverging.epoch < 0:
            return self.end_offset
        return min(end_offset, diverging.end_offset) if found == diverging.epoch else end_offset
