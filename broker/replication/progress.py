"""The progress of one follower, as its leader knows it in one leader epoch.

This module is pure. The progress is dropped with the epoch, because records that a follower
reported in an earlier epoch can have been truncated since (KIP-101).
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.types import NO_OFFSET

NO_BROKER_EPOCH = -1
"""The broker epoch of a follower that has not fetched in this epoch. The controller takes it as
unknown."""


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """The state of one follower as its leader knows it, for operators. Ages are in lived
    milliseconds.

    `end_offset` and `lag` are None until its first fetch in this epoch. `caught_up_ago_ms` is None
    until it first had all records in this epoch.
    """

    node_id: int
    end_offset: int | None
    lag: int | None
    caught_up_ago_ms: int | None
    is_in_sync: bool


class FollowerProgress:
    """The progress of one follower. `durable_end` is the exclusive end of durable records that its
    last fetch reported."""

    __slots__ = (
        "_fetched_ms",
        "_leader_end_then",
        "broker_epoch",
        "durable_end",
        "is_awaited",
        "joins_after_ms",
        "last_caught_up_ms",
        "start_offset",
    )

    def __init__(self, last_caught_up_ms: int | None) -> None:
        self.broker_epoch = NO_BROKER_EPOCH
        self.durable_end = NO_OFFSET
        self.start_offset = NO_OFFSET
        """The follower's log start offset; NO_OFFSET until it reports one."""
        self.last_caught_up_ms = last_caught_up_ms
        """The last time at which the follower had all records that are durable on the leader; None
        if never in this epoch."""
        self.joins_after_ms = 0
        """The time before which the follower cannot join the in-sync replicas again."""
        self.is_awaited = False
        """True if the high watermark waits for the follower although it is not in sync yet."""
        self._fetched_ms = 0
        self._leader_end_then = NO_OFFSET

    @property
    def has_fetched(self) -> bool:
        """True if the follower has fetched in this epoch."""
        return self.durable_end != NO_OFFSET

    def fetched(
        self, broker_epoch: int, durable_end: int, start_offset: int, leader_end: int, now_ms: int
    ) -> bool:
        """Record a fetch. Return False if it comes from a replaced incarnation of the follower.

        Under load the leader's log grows between two fetches. A follower that reaches only the end
        offset that the leader had at the follower's previous fetch counts as caught up at the time
        of that fetch.
        """
        if broker_epoch < self.broker_epoch:
            return False
        self.broker_epoch = broker_epoch
        self.durable_end = durable_end
        self.start_offset = start_offset
        if durable_end >= leader_end:
            self.last_caught_up_ms = now_ms
        elif self._leader_end_then != NO_OFFSET and durable_end >= self._leader_end_then:
            self.caught_up_at(self._fetched_ms)
        self._fetched_ms = now_ms
        self._leader_end_then = leader_end
        return True

    def caught_up_at(self, when_ms: int) -> None:
        """Record that the follower had all records at this time. A later time that is already known
        is kept."""
        if self.last_caught_up_ms is None or self.last_caught_up_ms < when_ms:
            self.last_caught_up_ms = when_ms

    def is_caught_up(self, now_ms: int, lag_time_max_ms: int) -> bool:
        """Return True if the follower had all records within the lag time."""
        return (
            self.last_caught_up_ms is not None
            and now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )
