"""How far a follower partition is behind its leader, by the answers to its fetches.

Room: replication. Pure. It decides which link fetches the partition (decision 0131). A follower
knows the leader's end only as the high watermark in the last answer. It estimates the bytes that
are missing by the size of the records in that answer.
"""

from __future__ import annotations

from protocol.types import NO_OFFSET

FAR_BYTES = 8 << 20
FAR_MS = 2_000
"""A partition is far behind if it misses more bytes than this, or has been behind for this long."""


class FollowerLag:
    """The lag of one partition in one leader epoch, on one link."""

    __slots__ = (
        "_answered_ms",
        "_behind_since_ms",
        "_end_offset",
        "_high_watermark",
        "_missing_bytes",
        "_size_bytes",
    )

    def __init__(self, end_offset: int) -> None:
        """`end_offset` is the durable end of this replica's log."""
        self._end_offset = end_offset
        self._high_watermark = NO_OFFSET
        """The leader's, as last told."""
        self._size_bytes = 0
        """The size of the records in the last answer."""
        self._missing_bytes = 0
        self._answered_ms = 0
        self._behind_since_ms: int | None = None

    @property
    def has_caught_up(self) -> bool:
        """True if everything below the leader's high watermark, as last told, is durable here."""
        return self._high_watermark != NO_OFFSET and self._end_offset >= self._high_watermark

    @property
    def is_far_behind(self) -> bool:
        """True if the rest is large, or could not be fetched for some time."""
        since_ms = self._behind_since_ms
        return since_ms is not None and (
            self._missing_bytes > FAR_BYTES or self._answered_ms - since_ms > FAR_MS
        )

    def answered(self, high_watermark: int, size_bytes: int, now_ms: int) -> None:
        """Note an answer. `reached` must follow when its records are durable."""
        self._high_watermark = high_watermark
        self._size_bytes = size_bytes
        self._answered_ms = now_ms
        if not size_bytes:
            self._look()

    def reached(self, end_offset: int) -> None:
        """Note the durable end of the log."""
        count = end_offset - self._end_offset
        self._end_offset = end_offset
        if count > 0:
            self._missing_bytes = (self._high_watermark - end_offset) * self._size_bytes // count
        self._look()

    def _look(self) -> None:
        if self._end_offset >= self._high_watermark:
            self._behind_since_ms = None
        elif self._behind_since_ms is None:
            self._behind_since_ms = self._answered_ms
