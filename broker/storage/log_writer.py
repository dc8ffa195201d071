"""The write position of a log: batches are staged one by one and written together.

A batch gets its offset when it is staged, and readers see it when it is written. If the write
fails, everything staged is rolled back in the segments, the producer state and the producer files.
The caller must not change the staged views before `write`.
"""

from __future__ import annotations

from random import Random

from broker.config import LOG_APPEND_TIME, LogConfig
from broker.settings import INT_MAX
from broker.storage.errors import DiskError
from broker.storage.leader_epochs import LeaderEpochs
from broker.storage.outcomes import NO_SEGMENT, AppendResult, StagedBatch
from broker.storage.producer_files import ProducerFiles
from broker.storage.producer_state import ProducerStateManager
from broker.storage.segment import Segment
from broker.storage.segments import Segments
from protocol.errors import ApiError, ErrorCode
from protocol.wire.records import BatchHeader, patch, stamp_log_append_time

# `tuple.__new__` does the same as `StagedBatch._make` with one call less. Every batch passes here,
# so this saves time.
_new_staged = tuple.__new__


class Tail:
    """The last segment as it will be once all staged batches are written. It decides when to roll.

    While no batch is staged, the object describes the active segment.
    """

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
        self.segment_ms = _segment_ms_of(config, f"{self._chance}-{self.base_offset}")

    def must_roll(
        self,
        size_bytes: int,
        max_timestamp_ms: int,
        last_offset: int,
        now_ms: int,
    ) -> bool:
        """Return True if a batch needs a new segment. An empty segment accepts any batch that its
        indexes can address."""
        if last_offset - self.base_offset > INT_MAX:
            return True
        if not self.size_bytes:
            return False
        if self.size_bytes + size_bytes > self._config.segment_bytes:
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


class LogWriter:
    """Writes after the last batch of the given segments."""

    __slots__ = (
        "_config",
        "_leader_epochs",
        "_producer_files",
        "_producer_state",
        "_segments",
        "_staged",
        "_staged_rolls",
        "_tail",
        "end_offset",
    )

    def __init__(
        self,
        config: LogConfig,
        segments: Segments,
        leader_epochs: LeaderEpochs,
        producer_state: ProducerStateManager,
        producer_files: ProducerFiles,
        chance: str,
    ) -> None:
        """`chance` seeds the random part of the age at which a segment is rolled. It differs from
        log to log."""
        self._segments = segments
        self._leader_epochs = leader_epochs
        self._producer_state = producer_state
        self._producer_files = producer_files
        self._staged: list[StagedBatch] = []
        self._staged_rolls = False
        self._tail = Tail(segments.active, config, chance)
        self.end_offset = segments.active.next_offset
        """The offset of the next batch, after everything written or staged."""
        self.use(config)

    def use(self, config: LogConfig) -> None:
        """Apply these settings of the topic to all later batches."""
        self._config = config
        self._segments.active.interval_bytes = config.index_interval_bytes
        self._segments.stretches = config.flush_messages == 1
        self._tail.use(config)

    @property
    def has_staged(self) -> bool:
        return bool(self._staged)

    def stage(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Assign offset and epoch to a validated batch, in place, and stage it."""
        if leader_epoch < self._leader_epochs.latest:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                (
                    f"leader epoch {leader_epoch} is older than epoch "
                    f"{self._leader_epochs.latest} of the last batch: a newer leader has "
                    "written to this log"
                ),
            )
        base_offset = self.end_offset
        max_timestamp_ms, log_append_time_ms = header.max_timestamp, -1
        if self._config.message_timestamp_type == LOG_APPEND_TIME:
            stamp_log_append_time(batch, now_ms)
            max_timestamp_ms = log_append_time_ms = now_ms
        patch(batch, base_offset, leader_epoch)
        last_offset = base_offset + header.last_offset_delta
        self._place(batch, base_offset, last_offset, max_timestamp_ms, leader_epoch, now_ms)
        return AppendResult(base_offset, last_offset, False, log_append_time_ms)

    def stage_fetched(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        """Stage a batch with its leader's offset and epoch, at or above the log end offset."""
        leader_epoch = header.partition_leader_epoch
        base_offset, last_offset = header.base_offset, header.last_offset
        self._place(batch, base_offset, last_offset, header.max_timestamp, leader_epoch, now_ms)

    def _place(
        self,
        batch: memoryview,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        tail = self._tail
        size_bytes = len(batch)
        rolls = tail.must_roll(size_bytes, max_timestamp_ms, last_offset, now_ms)
        if not rolls and not self._staged:
            rolls = self._segments.active.is_index_full(self._config.segment_index_bytes)
        segment_base = NO_SEGMENT
        if rolls:
            # Begin the segment at the end of the previous one, so that a start can see that the
            # previous segment is complete.
            is_near = last_offset - self.end_offset <= INT_MAX
            segment_base = self.end_offset if is_near else base_offset
            self._staged_rolls = True
            tail.roll(segment_base, now_ms)
            self._producer_files.rolls(segment_base)
        tail.add(size_bytes, max_timestamp_ms)
        place = (
            batch, base_offset, last_offset, size_bytes, max_timestamp_ms, leader_epoch,
            segment_base,
        )  # fmt: skip
        self._staged.append(_new_staged(StagedBatch, place))
        self.end_offset = last_offset + 1

    def write(self, now_ms: int) -> bool:
        """Write everything staged. Returns False if nothing was staged.

        On DiskError none of these batches remains, and the next batch gets the offset of the first
        one.
        """
        staged = self._staged
        if not staged:
            return False
        segments = self._segments
        try:
            segments.repair()
            if self._staged_rolls:
                segments.write_runs(staged, self._config.index_interval_bytes, now_ms)
            else:
                segments.write_run(staged, now_ms)
        except DiskError:
            self._take_back()
            raise
        epochs = self._leader_epochs
        if staged[-1].leader_epoch > epochs.latest:
            epochs.assign_staged(staged)
        self._producer_state.keep()
        self._producer_files.written(segments)
        self._staged_rolls = False
        staged.clear()
        return True

    def roll(self, now_ms: int) -> None:
        """Start a new segment although no setting requires it. Nothing may be staged."""
        self._segments.repair()
        self._producer_files.rolls(self.end_offset)
        self._segments.roll(self.end_offset, self._config.index_interval_bytes, now_ms)
        self._tail = self._tail.over(self._segments.active, self._config)

    def _take_back(self) -> None:
        self._producer_state.roll_back()
        self._staged.clear()
        self._staged_rolls = False
        self.end_offset = self._segments.active.next_offset
        self._producer_files.take_back(self.end_offset)
        self._tail = self._tail.over(self._segments.active, self._config)


def _segment_ms_of(config: LogConfig, chance: str) -> int:
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
