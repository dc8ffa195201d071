"""The start offset of each leader epoch in one partition's log.

This module is pure. Both the epochs and the start offsets of the entries rise. The file is written
at checkpoints. After a crash, recovery reads the missing entries from the batch headers above the
recovery point.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from broker.storage.outcomes import StagedBatch

UNKNOWN = (-1, -1)


class EpochStart(NamedTuple):
    """A leader epoch, and the offset of its first batch."""

    leader_epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of one log, oldest first."""

    __slots__ = ("change_count", "entries", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries = [EpochStart(*entry) for entry in entries]
        self.latest = self.entries[-1].leader_epoch if self.entries else -1
        """The epoch of the newest batch, or -1."""
        self.change_count = 0
        """The number of changes since the entries were read.

        It shows whether the file is out of date.
        """

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """Record that a batch of this epoch starts at the offset. A newer epoch adds an entry."""
        if leader_epoch <= self.latest:
            return
        self.entries.append(EpochStart(leader_epoch, start_offset))
        self._changed()

    def assign_staged(self, staged: Sequence[StagedBatch]) -> None:
        """Record the epochs of batches that have just been written, as `assign` does for one
        batch.
        """
        for one in staged:
            self.assign(one.leader_epoch, one.base_offset)

    def end_offset_for(
        self, leader_epoch: int, log_end_offset: int, current_epoch: int
    ) -> tuple[int, int]:
        """Return the largest epoch not above `leader_epoch`, and its end offset.

        If the current epoch has no batch yet, its end is the log end offset. For an epoch newer
        than the current one, the result is (-1, -1). An epoch older than all entries ended where
        the first entry begins.
        """
        if leader_epoch < 0 or leader_epoch > max(self.latest, current_epoch):
            return UNKNOWN
        if leader_epoch == current_epoch:
            return current_epoch, log_end_offset
        after = bisect_right(self.entries, leader_epoch, key=lambda entry: entry.leader_epoch)
        is_last = after == len(self.entries)
        end_offset = log_end_offset if is_last else self.entries[after].start_offset
        return (self.entries[after - 1].leader_epoch if after else leader_epoch), end_offset

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of the batch that contains the offset, or -1 if unknown."""
        after = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[after - 1].leader_epoch if after else -1

    def truncate_from_end(self, log_end_offset: int) -> None:
        """Remove the epochs that began at or above the new end of the log."""
        kept = [entry for entry in self.entries if entry.start_offset < log_end_offset]
        if len(kept) != len(self.entries):
            self.entries = kept
            self._changed()

    def truncate_from_start(self, log_start_offset: int) -> None:
        """Remove the epochs that ended below the log's new start.

        The epoch that contains the new start then begins at it.
        """
        after = bisect_right(self.entries, log_start_offset, key=lambda entry: entry.start_offset)
        if not after or (after == 1 and self.entries[0].start_offset == log_start_offset):
            return
        spanning = self.entries[after - 1]._replace(start_offset=log_start_offset)
        self.entries = [spanning, *self.entries[after:]]
        self._changed()

    def _changed(self) -> None:
        self.latest = self.entries[-1].leader_epoch if self.entries else -1
        self.change_count += 1
