"""The end of a log as it will be once all staged batches are written. It decides when to roll.

This module is pure. While no batch is staged, the object describes the active segment.
"""

from __future__ import annotations

from random import Random

from broker.config import LogConfig
from broker.settings import INT_MAX
from broker.storage.segment import Segment


def segment_ms_of(config: LogConfig, chance: str) -> int:
    """Return the time for which a segment may stay active. Only closed segments can be cleaned
    (KIP-354).

    With `segment.jitter.ms` each segment is closed a little earlier, by a share derived from
    `chance`, so that the logs of a node do not all roll at once.
    """
    longest_ms = config.segment_ms
    if config.is_compacted:
        longest_ms = min(longest_ms, config.max_compaction_lag_ms)
    jitter_ms = min(config.segment_jitter_ms, longest_ms)
    return longest_ms - Random(chance).randrange(jitter_ms) if jitter_ms else longest_ms


class Tail:
    """The last segment, including the batches staged into it."""

    __slots__ = ("_chance", "_config", "base_offset", "created_ms", "first_timestamp_ms",
                 "segment_ms", "size_bytes")  # fmt: skip

    def __init__(self, active: Segment, config: LogConfig, chance: str) -> None:
        """`chance` seeds the random part of the age at which a segment is rolled. It differs from
        log to log, because it contains the topic's random id."""
        self._chance = chance
        self.base_offset = active.base_offset
        self.size_bytes = active.size_bytes
        self.first_timestamp_ms = active.first_timestamp_ms
        self.created_ms = active.created_ms
        self.use(config)

    def over(self, active: Segment, config: LogConfig) -> Tail:
        """Return a new `Tail` of the same log, after a write or a rollback, when no batch is
        staged."""
        return Tail(active, config, self._chance)

    def use(self, config: LogConfig) -> None:
        """Use changed settings. The jitter of a segment depends only on the log and the base
        offset, so neither this call nor a restart changes it.
        """
        self._config = config
        self.segment_ms = segment_ms_of(config, f"{self._chance}-{self.base_offset}")

    def must_roll(
        self,
        size_bytes: int,
        max_timestamp_ms: int,
        last_offset: int,
        config: LogConfig,
        now_ms: int,
    ) -> bool:
        """Return True if a batch needs a new segment. An empty segment accepts any batch that its
        indexes can address."""
        if last_offset - self.base_offset > INT_MAX:
            return True
        if not self.size_bytes:
            return False
        if self.size_bytes + size_bytes > config.segment_bytes:
            return True
        # As in Kafka, use the span of the record timestamps, or the segment's age if there are no
        # timestamps.
        if self.first_timestamp_ms < 0 or max_timestamp_ms < 0:
            return now_ms - self.created_ms > self.segment_ms
        return max_timestamp_ms - self.first_timestamp_ms > self.segment_ms

    def roll(self, base_offset: int, now_ms: int) -> None:
        self.base_offset = base_offset
        self.size_bytes = 0
        self.created_ms = now_ms
        if self._config.segment_jitter_ms:
            self.use(self._config)

    def add(self, size_bytes: int, max_timestamp_ms: int) -> None:
        if not self.size_bytes:
            self.first_timestamp_ms = max_timestamp_ms
        self.size_bytes += size_bytes
