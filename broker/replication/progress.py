"""How far one follower has come, as its leader knows it in one leader epoch.

Floor: replication. Pure. Nothing of it outlives the epoch: what a follower said in an earlier one
may have been truncated since (KIP-101).
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.types import NO_OFFSET

NO_BROKER_EPOCH = -1
"""The follower has not fetched in this epoch; a controller takes it for "not known"."""


@dataclass(frozen=True, slots=True)
class FollowerStanding:
    """One follower as its leader sees it, for people who look; ages in lived ms.

    `end_offset` and `lag` are None until it has fetched in this epoch, `caught_up_ago_ms` while it
    has not had everything in this epoch.
    """

    node_id: int
    end_offset: int | None
    lag: int | None
    caught_up_ago_ms: int | None
    is_in_sync: bool


class Progress:
    """One follower. `durable_end` is what its last fetch said is durable there, exclusive."""

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
        """Where its log begins; NO_OFFSET until it has said so."""
        self.last_caught_up_ms = last_caught_up_ms
        """When it last held all that the leader counts; None: never in this epoch."""
        self.joins_after_ms = 0
        """Until then it does not come back into the in-sync replicas."""
        self.is_awaited = False
        """Whether the high watermark waits for it although it is not in sync yet."""
        self._fetched_ms = 0
        self._leader_end_then = NO_OFFSET

    @property
    def has_fetched(self) -> bool:
        """Whether anything is known of it in this epoch."""
        return self.durable_end != NO_OFFSET

    def fetched(
        self, broker_epoch: int, durable_end: int, start_offset: int, leader_end: int, now_ms: int
    ) -> bool:
        """Note what a fetch says; False for one of an incarnation that has been replaced.

        Under load the leader's end moves between two fetches; so who reaches now what the leader
        had at the last fetch was caught up then.
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
        """It held everything at that time; a later time already known stays."""
        if self.last_caught_up_ms is None or self.last_caught_up_ms < when_ms:
            self.last_caught_up_ms = when_ms

    def is_caught_up(self, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it held everything within the lag time."""
        return (
            self.last_caught_up_ms is not None
            and now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )
