"""Which leader epoch began at which offset, in one partition's log.

Floor: storage. Pure. Entries (epoch, start offset) rise in both. The file is written at
checkpoints; what it lacks after a crash stands in the batch headers above the recovery point.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from broker.storage.outcomes import Staged

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
        """The epoch of the newest batch, -1 when there is none."""
        self.change_count = 0
        """Changes since the entries were read: tells whether the file lags behind."""

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """Note that a batch of this epoch starts at the offset; a newer epoch adds an entry."""
        if leader_epoch <= self.latest:
            return
        self.entries.append(EpochStart(leader_epoch, start_offset))
        self._changed()

    def assign_staged(self, staged: Sequence[Staged]) -> None:
        """The same for batches that are being written."""
        for one in staged:
            self.assign(one.leader_epoch, one.base_offset)

    def end_offset_for(
        self, leader_epoch: int, log_end_offset: int, current_epoch: int
    ) -> tuple[int, int]:
        """The largest epoch not above the one asked for, and where it ended.

        The current one may have no batch yet; one that is newer is unknown. One older than all
        entries ended where the first of them begins.
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
        """The epoch of the batch that holds the offset, -1 when it is not known."""
        after = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[after - 1].leader_epoch if after else -1

    def truncate_from_end(self, log_end_offset: int) -> None:
        """Forget the epochs that began at or above the new end of the log."""
        kept = [entry for entry in self.entries if entry.start_offset < log_end_offset]
        if len(kept) != len(self.entries):
            self.entries = kept
            self._changed()

    def truncate_from_start(self, log_start_offset: int) -> None:
        """Forget the epochs that ended below the new start; the one that spans it begins there."""
        after = bisect_right(self.entries, log_start_offset, key=lambda entry: entry.start_offset)
        if not after or (after == 1 and self.entries[0].start_offset == log_start_offset):
            return
        spanning = self.entries[after - 1]._replace(start_offset=log_start_offset)
        self.entries = [spanning, *self.entries[after:]]
        self._changed()

    def _changed(self) -> None:
        self.latest = self.entries[-1].leader_epoch if self.entries else -1
        self.change_count += 1
