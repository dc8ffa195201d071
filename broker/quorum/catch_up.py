"""Decides when a disk that can be an old copy has all records that it ever acknowledged.

This module is pure. The true disk can have voted in epochs that its copy does not know, and can
have acknowledged records that the copy lacks. A high watermark alone proves nothing, because the
leader that sends it can be deposed without knowing it.

The proof is a record that the leader appended *after* this node started, and that a majority
committed without this node. When the members of this majority acknowledged the record, none of them
had voted in a newer epoch. And each record that was committed with the help of the true disk is on
at least one of them.
"""

from __future__ import annotations

from broker.quorum.log_view import LogView
from protocol.types import NO_LEADER_EPOCH


class CatchUp:
    """The progress of one replica towards such a record. Until then the leader must not count its
    fetches as those of a voter."""

    def __init__(self) -> None:
        self._leader_epoch = NO_LEADER_EPOCH
        self._end_offset = 0
        """An end offset that the leader's log had in this epoch after this node started."""

    def fetched(
        self, log: LogView, leader_epoch: int, high_watermark: int, *, is_at_end: bool
    ) -> bool:
        """Handle a fetch response of the epoch's leader. Return True if this replica has caught up.

        `is_at_end` means that the leader had no records beyond the end of this log.
        """
        if leader_epoch == self._leader_epoch:
            return self._end_offset < high_watermark <= log.durable_end_offset
        if is_at_end:
            self._leader_epoch, self._end_offset = leader_epoch, log.end_offset
        return False
