"""The transactions of one log that are open, or ended by a marker not below the high watermark.

This module is pure. A transaction begins with its producer's first batch and ends with a marker.
Until the marker is below the high watermark, a finished transaction limits read-committed consumers
like an open one, because a failover could still remove the marker. `roll_back` reverts all changes
since the last `keep`, because the write that makes them permanent can fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

NOTHING_UNSTABLE = 2**63 - 1
"""`first_unstable_offset` of a log without transactions: above every offset."""


class Finished(NamedTuple):
    """A transaction that a marker has ended."""

    first_offset: int
    marker_offset: int
    last_stable_offset: int
    """The next limit for read-committed consumers: the oldest transaction still open, or just after
    the marker.
    """


class LogTransactions:
    """The transactions of one log, at most one per producer id."""

    __slots__ = ("_undo", "finished", "first_unstable_offset", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """The offset of the first batch of each open transaction, by producer id."""
        self.finished: list[Finished] = []
        """Transactions with a marker that is not below the high watermark."""
        self.first_unstable_offset = NOTHING_UNSTABLE
        """The lowest first offset of all transactions, open or finished."""
        self._undo: list[Callable[[], None]] = []

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Record a batch of a transaction. Only its first batch has an effect."""
        if producer_id in self.open:
            return
        self.open[producer_id] = first_offset
        self.first_unstable_offset = min(self.first_unstable_offset, first_offset)
        self._undo.append(lambda: self._forget(producer_id))

    def end(self, producer_id: int, marker_offset: int) -> Finished | None:
        """Record a marker. Return the transaction that it ends; None if the producer had no open
        transaction in this log."""
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None:
            return None
        next_open = min(self.open.values(), default=marker_offset + 1)
        finished = Finished(first_offset, marker_offset, next_open)
        self.finished.append(finished)
        self._undo.append(lambda: self._reopen(producer_id, finished))
        return finished

    def settle(self, high_watermark: int) -> None:
        """Forget the transactions whose marker is below the high watermark."""
        left = [one for one in self.finished if one.marker_offset >= high_watermark]
        if len(left) != len(self.finished):
            self.finished = left
            self._refresh()

    def keep(self) -> None:
        """Make the changes since the last call permanent, because they have been written."""
        if self._undo:
            self._undo.clear()

    def roll_back(self) -> None:
        """Revert the changes since the last `keep`, because they could not be written."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._refresh()

    def _forget(self, producer_id: int) -> None:
        del self.open[producer_id]

    def _reopen(self, producer_id: int, finished: Finished) -> None:
        self.finished.remove(finished)
        self.open[producer_id] = finished.first_offset

    def _refresh(self) -> None:
        self.first_unstable_offset = min(
            min(self.open.values(), default=NOTHING_UNSTABLE),
            min((one.first_offset for one in self.finished), default=NOTHING_UNSTABLE),
        )
