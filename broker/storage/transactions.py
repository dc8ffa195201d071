"""Which transactions of one log are open, and which have ended above the high watermark.

Floor: storage. Pure. A transaction begins with its producer's first batch and ends with a marker.
Until the marker is below the high watermark a finished one holds readers back like an open one:
a failover could still take the marker away. Changes can be taken back by `roll_back` until `keep`,
for the write that would make them true may fail.
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
    """Where readers of committed data stop next: at the oldest still open, or behind the marker."""


class Transactions:
    """The transactions of one log, one at most per producer id."""

    __slots__ = ("_undo", "finished", "first_unstable_offset", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """Producer id -> offset of the transaction's first batch."""
        self.finished: list[Finished] = []
        """Ended by a marker that the high watermark has not passed."""
        self.first_unstable_offset = NOTHING_UNSTABLE
        """The oldest first offset of all, open or finished."""
        self._undo: list[Callable[[], None]] = []

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Note a batch of a transaction; only its first one changes anything."""
        if producer_id in self.open:
            return
        self.open[producer_id] = first_offset
        self.first_unstable_offset = min(self.first_unstable_offset, first_offset)
        self._undo.append(lambda: self._forget(producer_id))

    def end(self, producer_id: int, marker_offset: int) -> Finished | None:
        """Note a marker; None when the producer had nothing open here."""
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None:
            return None
        next_open = min(self.open.values(), default=marker_offset + 1)
        finished = Finished(first_offset, marker_offset, next_open)
        self.finished.append(finished)
        self._undo.append(lambda: self._reopen(producer_id, finished))
        return finished

    def settle(self, high_watermark: int) -> None:
        """The high watermark has moved: what ended below it is history."""
        left = [one for one in self.finished if one.marker_offset >= high_watermark]
        if len(left) != len(self.finished):
            self.finished = left
            self._refresh()

    def keep(self) -> None:
        """The changes since the last call are written."""
        if self._undo:
            self._undo.clear()

    def roll_back(self) -> None:
        """The changes since the last `keep` could not be written."""
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
