"""The partitions that take no markers now: told once, then from time to time, and when it is over.

Floor: shards. Any number of decided transactions may wait for one partition, and each of them is
tried again every two seconds, for as long as the partition is away: a line for every try would
bury the log, and say nothing more than the first one.
"""

from __future__ import annotations

import logging

from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.types import TopicPartition

logger = logging.getLogger(__name__)

REMINDER_MS = 600_000
"""How often an outage is told again: readers of committed data stand still as long as it lasts."""

MOVING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""What is refused while another broker becomes the leader; by itself it ends soon."""

MOVING_MS = 5_000
"""How long that may take before it is told."""


class Outage:
    """Since when a partition has refused, and when that is told next; by the monotonic clock."""

    __slots__ = ("is_told", "since_ms", "told_next_ms")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.told_next_ms = since_ms
        self.is_told = False


class Outages:
    """All partitions that have refused a marker and taken none since."""

    def __init__(self) -> None:
        self._open: dict[TopicPartition, Outage] = {}

    def refused(self, partition: TopicPartition, error: ApiError, now_ms: int) -> None:
        """A marker could not be written, and will be tried again."""
        outage = self._open.setdefault(partition, Outage(now_ms))
        patience_ms = MOVING_MS if error.code in MOVING and not outage.is_told else 0
        if now_ms < outage.told_next_ms + patience_ms:
            return
        outage.is_told = True
        outage.told_next_ms = now_ms + REMINDER_MS
        logger.warning(
            "transaction markers are refused",
            extra=fields(partition=partition, error=error, for_ms=now_ms - outage.since_ms),
        )

    def over(self, partition: TopicPartition, now_ms: int) -> None:
        """A marker has been written, or none is wanted any more."""
        outage = self._open.pop(partition, None)
        if outage is not None and outage.is_told:
            logger.info(
                "transaction markers are refused no longer",
                extra=fields(partition=partition, for_ms=now_ms - outage.since_ms),
            )
