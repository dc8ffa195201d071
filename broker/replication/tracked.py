"""One partition that a follower fetches, as `LeaderFetch` tracks it.

This module is pure and has only data.
"""

from __future__ import annotations

from enum import Flag, auto

from broker.replication.follower_lag import FollowerLag
from broker.replication.follower_steps import Followed
from broker.timers import Timer
from protocol.types import NO_OFFSET


class CopyPause(Flag):
    """The reasons why a copy waits. A partition can have several at a time."""

    QUEUE = auto()
    """The copy waits, because other large copies of this broker go first."""
    THROTTLE = auto()
    """The copy waits, because the follower's bucket is empty (`replication/throttle`)."""
    ROOM = auto()
    """The copy waits, because the disk of this broker is nearly full."""


class TrackedPartition:
    """One partition that is fetched."""

    __slots__ = (
        "end_offset",
        "epochs",
        "failures",
        "is_busy",
        "key",
        "lag",
        "last_epoch",
        "log_start_offset",
        "pauses",
        "timer",
        "verified_end",
    )

    def __init__(self, one: Followed) -> None:
        self.key = one.key
        self.epochs = one.epochs
        self.log_start_offset = one.log_start_offset
        self.end_offset = one.end_offset
        self.last_epoch = one.epochs.latest
        self.lag = FollowerLag(one.end_offset)
        self.is_busy = False
        """True while a job works on the log of the partition, or while the partition waits after a
        failure."""
        self.pauses = CopyPause(0)
        """The reasons why requests leave the partition out, although it could be fetched."""
        self.failures = 0
        self.timer: Timer[TrackedPartition] | None = None
        self.verified_end = NO_OFFSET
        """The exclusive end of the records that the leader of this epoch has committed. They are
        never truncated."""

    @property
    def can_be_named(self) -> bool:
        """True if a request can name the partition."""
        return not (self.is_busy or self.pauses)
