"""Measures how far a follower's partition is behind its leader, by the answers to its fetches.

This module is pure. The lag decides on which link the partition is fetched (decision 0131). A
follower knows the end of the leader's log only as the high watermark in the last answer. It
estimates the number of missing bytes from the size of the records in that answer.
"""

from __future__ import annotations

from protocol.types import NO_OFFSET

FAR_BYTES = 8 << 20
FAR_MS = 2_000
"""The limits above which a partition is far behind: the missing bytes, and the time in milliseconds
since it last had caught up."""


class FollowerLag:
    """The lag of one partition in one leader epoch, on one link."""

    __slots__ = (
        "_answered_ms",
        "_behind_since_ms",
        "_end_offset",
        "_high_watermark",
        "_size_bytes",
        "missing_bytes",
    )

    def __init__(self, end_offset: int) -> None:
        """`end_offset` is the exclusive end of the durable records in this replica's log."""
        self._end_offset = end_offset
        self._high_watermark = NO_OFFSET
        """The leader's high watermark in the last answer."""
        self._size_bytes = 0
        """The size of the records in the last answer."""
        self.missing_bytes = 0
        """An estimate of the bytes that this replica lacks; 0 before the first records."""
        self._answered_ms = 0
        self._behind_since_ms: int | None = None

    @property
    def has_caught_up(self) -> bool:
        """True if this replica has all records below the leader's high watermark in the last
        answer, and they are durable."""
        return self._high_watermark != NO_OFFSET and self._end_offset >= self._high_watermark

    @property
    def is_far_behind(self) -> bool:
        """True if many bytes are missing, or if the partition has not caught up for some time."""
        since_ms = self._behind_since_ms
        return since_ms is not None and (
            self.missing_bytes > FAR_BYTES or self._answered_ms - since_ms > FAR_MS
        )

    def answered(self, high_watermark: int, size_bytes: int, now_ms: int) -> None:
        """Record an answer. The caller must call `reached` when its records are durable."""
        self._high_watermark = high_watermark
        self._size_bytes = size_bytes
        self._answered_ms = now_ms
        if not size_bytes:
            self._look()

    def reached(self, end_offset: int) -> None:
        """Record the exclusive end of the durable records."""
        count = end_offset - self._end_offset
        self._end_offset = end_offset
        if count > 0:
            self.missing_bytes = (self._high_watermark - end_offset) * self._size_bytes // count
        self._look()

    def _look(self) -> None:
        if self._end_offset >= self._high_watermark:
            self._behind_since_ms = None
        elif self._behind_since_ms is None:
            self._behind_since_ms = self._answered_ms
