"""The log of one partition: ordered segments behind one write position.

Floor: storage. Synchronous, over the `Disk` passed in; it never reads a clock. Of the offsets,
always `log_start_offset <= recovery_point <= log_end_offset`: readable from, on the disk below,
next to be given. A batch passes through three calls: `append` judges and stages it, `write_staged`
hands everything staged to the page cache with one `writev`, and `flush_target` / `flushed` move
the recovery point past it. The staged views must stay untouched until `write_staged`.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from broker.config import LogConfig
from broker.storage.disk import FileRegion
from broker.storage.leader_epochs import LeaderEpochs
from protocol.types import TopicPartition
from protocol.wire.records import BatchHeader


@dataclass(slots=True)
class Appended:
    """Where a batch stands. A duplicate stands where its first copy does; nothing was staged."""

    base_offset: int
    last_offset: int
    is_duplicate: bool
    log_append_time_ms: int
    """-1 unless the topic stamps records itself."""


@dataclass(slots=True)
class LogRead:
    """What lies at an offset: whole batches in one file, perhaps none yet.

    `region` is None when nothing is readable below the limit. The first batch may begin below the
    offset asked for; clients skip the records they did not ask for.
    """

    region: FileRegion | None
    size_bytes: int


@dataclass(slots=True, frozen=True)
class TimestampOffset:
    """A record found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class FlushTarget:
    """Everything of one log that is not on the disk yet, as of the moment it was taken.

    `perform()` belongs into a thread; it touches nothing but the files. Then, back in the loop,
    give the target to `log.flushed`. When `perform` raises DiskError the process must stop.
    """

    end_offset: int

    def perform(self) -> None: ...


class DroppedFiles:
    """Files and folders already out of the way by rename; `perform()` unlinks them in a thread."""

    def perform(self) -> None: ...


class Log:
    """One partition's log. Made by `LogManager`, never directly."""

    topic_partition: TopicPartition
    topic_id: UUID
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    """Counts what is staged; readers see only what is written."""
    high_watermark: int
    recovery_point: int
    size_bytes: int
    leader_epochs: LeaderEpochs

    def append(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> Appended:
        """Judge a client's batch, give it its offsets and stage it.

        `batch` must be writable and is everything the request holds for this partition. Refuses by
        `ApiError` (with `record_errors` when it is an `InvalidRecords`) before anything changes.
        """
        raise NotImplementedError

    def append_own(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> Appended:
        """The same for a batch the broker made itself: metadata, offsets, control records."""
        raise NotImplementedError

    def write_staged(self, now_ms: int) -> None:
        """Write everything staged since the last call, rolling where needed.

        On DiskError nothing of it remains: the file ends where it did, offsets and producers are
        as before, and every staged append of this call must be answered with
        KAFKA_STORAGE_ERROR. The log may be appended to again.
        """
        raise NotImplementedError

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, min_one_batch: bool = True
    ) -> LogRead:
        """Whole batches from `offset`, all below `limit_offset`, of at most `max_bytes`.

        The first batch comes whole even if it is larger, unless `min_one_batch` is off. Raises
        ApiError(OFFSET_OUT_OF_RANGE) outside of log start and log end.
        """
        raise NotImplementedError

    def advance_high_watermark(self, offset: int) -> None:
        """The caller's word that all in-sync replicas hold everything below `offset`."""
        raise NotImplementedError

    def advance_log_start(self, offset: int) -> None:
        """Make everything below `offset` unreadable (DeleteRecords); retention drops the files."""
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp_ms: int, limit_offset: int) -> TimestampOffset | None:
        """The first record below `limit_offset` that is not older than the timestamp.

        Exact to the record: looks inside the batch, so it may decompress.
        """
        raise NotImplementedError

    def max_timestamp_record(self, limit_offset: int) -> TimestampOffset | None:
        """The first record with the largest timestamp (ListOffsets -3)."""
        raise NotImplementedError

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch not above the one asked for, its end offset), or (-1, -1)."""
        raise NotImplementedError

    def flush_target(self) -> FlushTarget | None:
        """What a flush has to do; None when everything written is on the disk."""
        raise NotImplementedError

    def flushed(self, target: FlushTarget) -> int:
        """Take a performed target into account; returns the recovery point."""
        raise NotImplementedError

    def retention(self, now_ms: int) -> DroppedFiles | None:
        """Drop the segments that the topic's settings no longer keep; never the active one."""
        raise NotImplementedError

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers silent for longer than `producer.id.expiration.ms`."""
        raise NotImplementedError

    def truncate_to(self, offset: int) -> None:
        """Keep everything below `offset`."""
        raise NotImplementedError
