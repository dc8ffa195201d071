"""Logs which partitions reject transaction markers: at the start of an outage, then at long
intervals, and at its end.

Many decided transactions can wait for one partition, and each marker is sent again every two
seconds. A log line for every attempt would flood the log without new information.
"""

from __future__ import annotations

import logging

from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.types import TopicPartition

logger = logging.getLogger(__name__)

REMINDER_MS = 600_000
"""The interval at which a lasting outage is logged again.

Consumers that read committed records wait during the outage.
"""

MOVING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The errors of a partition whose leader is changing. They usually end soon."""

MOVING_MS = 5_000
"""The time for which such errors can last before they are logged."""


class Outage:
    """One outage: the time since which a partition rejects markers, and the time of the next log
    line. Both are monotonic."""

    __slots__ = ("is_told", "since_ms", "told_next_ms")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.told_next_ms = since_ms
        self.is_told = False


class Outages:
    """The partitions whose last marker was rejected."""

    def __init__(self) -> None:
        self._open: dict[TopicPartition, Outage] = {}

    def refused(self, partition: TopicPartition, error: ApiError, now_ms: int) -> None:
        """Record a rejected marker, which will be sent again. Log the outage if a log line is
        due."""
        outage = self._open.setdefault(partition, Outage(now_ms))
        patience_ms = MOVING_MS if error.code in MOVING and not outage.is_told else 0
        if now_ms < outage.told_next_ms + patience_ms:
            return
        outage.is_told = True
        outage.told_next_ms = now_ms + REMINDER_MS
        logger.warning(
            "a partition rejects transaction markers; they are sent again until it accepts them",
            extra=fields(partition=partition, error=error, for_ms=now_ms - outage.since_ms),
        )

    def over(self, partition: TopicPartition, now_ms: int) -> None:
        """End the outage of a partition, because a marker was written to it or none is needed any
        more."""
        outage = self._open.pop(partition, None)
        if outage is not None and outage.is_told:
            logger.info(
                "the partition accepts transaction markers again",
                extra=fields(partition=partition, for_ms=now_ms - outage.since_ms),
            )
