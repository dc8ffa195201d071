"""Decides when a disk that can be an old copy has all records that it ever acknowledged.

This module is pure. The true disk can have voted in newer epochs and acknowledged newer records
than its copy. So the high watermark of some leader proves nothing: that leader can be deposed
without knowing it. A record proves it that the leader appended *after* this node started, and that
a majority without this node has committed. That majority has not voted in a newer epoch, and it has
everything that was ever committed with the help of the true disk.
"""

from __future__ import annotations

from broker.quorum.log_view import LogView
from protocol.types import NO_LEADER_EPOCH


class CatchUp:
    """The way of one replica, since its start, to such a record. Its fetches must not count as
    those of a voter in the meantime."""

    def __init__(self) -> None:
        self._leader_epoch = NO_LEADER_EPOCH
        self._end_offset = 0
        """The end of the leader's log at a moment after this start, in that leader's epoch."""

    def fetched(
        self, log: LogView, leader_epoch: int, high_watermark: int, *, is_at_end: bool
    ) -> bool:
        """Handle an answer of the epoch's leader. Return True if this replica has caught up.

        `is_at_end` means that the leader had no records beyond the end of this log.
        """
        if leader_epoch == self._leader_epoch:
            return self._end_offset < high_watermark <= log.durable_end_offset
        if is_at_end:
            self._leader_epoch, self._end_offset = leader_epoch, log.end_offset
        return False
