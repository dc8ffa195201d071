"""Where a log will stand once everything staged is written, and so when it must roll.

Floor: storage. Pure. While nothing is staged it describes the active segment.
"""

from __future__ import annotations

from broker.config import LogConfig
from broker.settings import INT_MAX
from broker.storage.segment import Segment


def segment_ms_of(config: LogConfig) -> int:
    """How long a segment may grow: the cleaner cannot reach what is not closed (KIP-354)."""
    if config.is_compacted:
        return min(config.segment_ms, config.max_compaction_lag_ms)
    return config.segment_ms


class Tail:
    """The last segment, counting what is staged into it."""

    __slots__ = ("base_offset", "created_ms", "first_timestamp_ms", "segment_ms", "size_bytes")

    def __init__(self, active: Segment, config: LogConfig) -> None:
        self.segment_ms = segment_ms_of(config)
        self.base_offset = active.base_offset
        self.size_bytes = active.size_bytes
        self.first_timestamp_ms = active.first_timestamp_ms
        self.created_ms = active.created_ms

    def must_roll(
        self,
        size_bytes: int,
        max_timestamp_ms: int,
        last_offset: int,
        config: LogConfig,
        now_ms: int,
    ) -> bool:
        """Whether a batch needs a new segment; one that is empty takes any batch."""
        if not self.size_bytes:
            return False
        if self.size_bytes + size_bytes > config.segment_bytes:
            return True
        if last_offset - self.base_offset > INT_MAX:
            return True
        # Kafka's rule: the records' own span, or the segment's age where records have no time.
        if self.first_timestamp_ms < 0 or max_timestamp_ms < 0:
            return now_ms - self.created_ms > self.segment_ms
        return max_timestamp_ms - self.first_timestamp_ms > self.segment_ms

    def roll(self, base_offset: int, now_ms: int) -> None:
        self.base_offset = base_offset
        self.size_bytes = 0
        self.created_ms = now_ms

    def add(self, size_bytes: int, max_timestamp_ms: int) -> None:
        if not self.size_bytes:
            self.first_timestamp_ms = max_timestamp_ms
        self.size_bytes += size_bytes
