"""The log of one partition: append, read, flush, truncate and clean record batches.

This module is synchronous, uses the `Disk` passed in, and never reads a clock. `log_start_offset`
is the first readable offset, `recovery_point` the end of the fsynced records, and `log_end_offset`
the next offset to assign. The first two are never above the third. A batch passes through three
calls: `append` validates and stages it (`log_writer`), `write_staged` writes everything staged with
one `writev`, and `flush_target` / `flushed` move the recovery point past it. Until `write_staged`,
the caller must not change the staged views.
"""

from __future__ import annotations

from uuid import UUID

from broker.config import LOG_APPEND_TIME, LogConfig
from broker.storage import lookup, recovery
from broker.storage.cleaner import CleaningJob
from broker.storage.disk import Disk, DiskFile
from broker.storage.flush import Flushing, FlushTarget
from broker.storage.follower_append import GapsUnmarked, fitting, has_gaps, markers_of, take_over
from broker.storage.gap_mark import GapMark
from broker.storage.known_producer import LastMarker
from broker.storage.log_writer import LogWriter
from broker.storage.lookup import TimestampOffset
from broker.storage.markers import build_marker
from broker.storage.outcomes import NOTHING, AppendResult, CheckedRecords, ReadResult
from broker.storage.producer_files import ProducerFiles
from broker.storage.segments import Segments
from broker.storage.storing import as_stored
from broker.storage.txn_index import AbortedEntry, AbortedRange
from broker.storage.validation import check_client_batch, check_own_batch
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition
from protocol.wire.records import BatchHeader, read_header


class Log:
    """The log of one partition. Only `LogManager` creates it."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        loaded: recovery.LoadedLog,
        high_watermark: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.folder = folder
        self.config = config
        """The topic's settings. Change them with `use`."""
        self.disk = disk
        self._adopt(loaded)
        self.high_watermark = min(max(high_watermark, self.log_start_offset), self.log_end_offset)
        self.producer_state.transactions.settle(self.high_watermark)
        self.cleaned_offset = -1
        """All records below this offset have been cleaned at least once; -1 before the first
        cleaning."""
        self.cleaning: CleaningJob | None = None
        """The cleaning job in progress, or None."""
        self._is_out_of_service = False
        self._unflushed_since_ms = -1

    def _adopt(self, loaded: recovery.LoadedLog) -> None:
        self.segments = Segments(self.disk, self.folder, loaded.segments)
        self.leader_epochs = loaded.leader_epochs
        self.producer_state = loaded.producer_state
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.has_gap_mark = loaded.has_gap_mark
        """True if batches with missing offsets between them can be appended."""
        self.producer_files = ProducerFiles(
            self.disk, self.folder, self.producer_state, loaded.segments
        )
        self._flushing = Flushing(self.disk, self.folder, self.segments, self.producer_files)
        self._writer = LogWriter(
            self.config,
            self.segments,
            self.leader_epochs,
            self.producer_state,
            self.producer_files,
            f"{self.topic_id}-{self.topic_partition.partition}",
        )

    def use(self, config: LogConfig) -> None:
        """Apply these settings of the topic to all later batches."""
        self.config = config
        self._writer.use(config)

    @property
    def size_bytes(self) -> int:
        return self.segments.closed_bytes + self.segments.active.size_bytes

    @property
    def log_end_offset(self) -> int:
        """The offset of the next batch, after the staged batches, which no reader sees yet."""
        return self._writer.end_offset

    @property
    def written_end_offset(self) -> int:
        """The end of the batches that readers can see: the log end offset without staged
        batches."""
        return self.segments.active.next_offset

    # Appending.

    def append(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int,
        seen: CheckedRecords | None = None, *, is_trusted: bool = True,
    ) -> AppendResult:  # fmt: skip
        """Validate a client's batch, assign its offsets and stage it.

        `batch` is a writable view of all the request's bytes for this partition. If `ApiError` or
        `RecordsUnseen` is raised, nothing has changed. After `RecordsUnseen`, check the records and
        pass the result as `seen`. If `is_trusted` is False, the records must always be checked. A
        duplicate of a staged batch succeeds or fails with it.
        """
        config, state = self.config, self.producer_state
        check_client_batch(batch, header, config, now_ms, seen, is_trusted=is_trusted)
        if header.producer_id >= 0:
            known = state.check(header)
            if known is not None:
                is_stamped = config.message_timestamp_type == LOG_APPEND_TIME
                stamp_ms = known.max_timestamp_ms if is_stamped else -1
                return AppendResult(known.base_offset, known.last_offset, True, stamp_ms)
            if state.transactions.open:
                state.check_transaction(header)
        if seen is not None:
            batch, header = as_stored(batch, header, config, seen.max_timestamp_ms)
        appended = self._writer.stage(batch, header, leader_epoch, now_ms)
        if header.producer_id >= 0:
            stamp_ms = header.max_timestamp if appended.log_append_time_ms < 0 else now_ms
            state.update(header, appended.base_offset, stamp_ms, now_ms)
        return appended

    def append_own(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Append a batch that the broker itself made, for example with committed offsets. This
        works like `append`, but sequences are not checked. A transactional batch, such as offsets
        that are committed in a transaction, opens its producer's transaction."""
        check_own_batch(batch, header, self.config)
        if header.producer_id < 0:
            return self._writer.stage(batch, header, leader_epoch, now_ms)
        state = self.producer_state
        state.check_epoch(header.producer_id, header.producer_epoch)
        state.check_transaction(header)
        appended = self._writer.stage(batch, header, leader_epoch, now_ms)
        state.update(header, appended.base_offset, header.max_timestamp, now_ms)
        return appended

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        is_commit: bool,
        coordinator_epoch: int,
        leader_epoch: int,
        now_ms: int,
    ) -> AppendResult:
        """Stage the marker that ends the producer's transaction, even if the producer wrote nothing
        to this log.

        Raises ApiError: INVALID_PRODUCER_EPOCH for a fenced producer,
        TRANSACTION_COORDINATOR_FENCED for a replaced coordinator. A repeated marker is written but
        ends no other transaction.
        """
        state = self.producer_state
        state.check_marker(producer_id, producer_epoch, coordinator_epoch)
        batch = build_marker(
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=now_ms,
        )
        appended = self._writer.stage(batch, read_header(batch), leader_epoch, now_ms)
        offset = appended.base_offset
        marker = LastMarker(coordinator_epoch, now_ms, offset)
        ended = state.end_transaction(producer_id, producer_epoch, marker, now_ms)
        if ended is not None and not is_commit:
            entry = AbortedEntry(producer_id, ended.first_offset, offset, ended.last_stable_offset)
            self.producer_files.stage_abort(entry)
        return appended

    def follower_append(self, records: memoryview, now_ms: int) -> None:
        """Stage the whole batches among the records fetched from the leader, unchanged.

        Raises before anything has changed: CorruptBatch or another WireError for invalid batches,
        GapsUnmarked before the first gap, BeginsBelow if the log must start lower.
        """
        assert not self._writer.has_staged, "staged batches must be written first"
        end_offset = self.log_end_offset
        batches = fitting(records, self.log_start_offset, end_offset, self.leader_epochs.latest)
        if not self.has_gap_mark and has_gaps(batches, end_offset):
            raise GapsUnmarked
        markers = markers_of(batches)
        for header, view in batches:
            self._writer.stage_fetched(view, header, now_ms)
            marker = markers.get(header.base_offset)
            entry = take_over(self.producer_state, header, marker, now_ms)
            if entry is not None:
                self.producer_files.stage_abort(entry)

    def gap_mark(self) -> GapMark:
        """Return the job that permits gaps. Perform it in a thread, then `gaps_are_marked`."""
        return GapMark(self.disk, self.folder)

    def gaps_are_marked(self) -> None:
        """Record that the gap mark is on the disk."""
        self.has_gap_mark = True

    # Writing the staged batches.

    def write_staged(self, now_ms: int) -> None:
        """Write everything staged since the last call, and roll to a new segment where needed.

        On DiskError none of these batches remains. The log end offset and the producer states are
        as before. The caller must answer every staged append of this call with KAFKA_STORAGE_ERROR.
        The log can still be appended to.
        """
        if self._writer.write(now_ms) and self._unflushed_since_ms < 0:
            self._unflushed_since_ms = now_ms

    # Reading.

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, min_one_batch: bool = True
    ) -> ReadResult:
        """Return whole batches from `offset`, all below `limit_offset`, of at most `max_bytes`.

        The first batch is returned whole even if it is larger, unless `min_one_batch` is off.
        Raises ApiError(OFFSET_OUT_OF_RANGE) if `offset` is not between log start and log end.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"found offset {offset}, expected {self.log_start_offset} to {self.log_end_offset}",
            )
        limit_offset = min(limit_offset, self.written_end_offset)
        if offset >= limit_offset:
            return NOTHING
        return self.segments.read(offset, max_bytes, limit_offset, min_one_batch=min_one_batch)

    def offset_for_timestamp(self, timestamp_ms: int, limit_offset: int) -> TimestampOffset | None:
        """Return the first record below `limit_offset` that is not older than the timestamp. To be
        exact to the record, this method reads the batch and decompresses it if needed."""
        limit = min(limit_offset, self.written_end_offset)
        found = lookup.first_not_older(self.segments, timestamp_ms, self.log_start_offset, limit)
        self.segments.unload_cold(self.segments)
        return found

    def max_timestamp_record(self, limit_offset: int) -> TimestampOffset | None:
        """Return the first record with the largest timestamp (ListOffsets -3)."""
        limit_offset = min(limit_offset, self.written_end_offset)
        found = lookup.largest_timestamp(self.segments, self.log_start_offset, limit_offset)
        self.segments.unload_cold(self.segments)
        return found

    def end_offset_for_epoch(self, leader_epoch: int, current_epoch: int) -> tuple[int, int]:
        """Return (largest epoch not above `leader_epoch`, its end offset), or (-1, -1)."""
        end_offset = self.written_end_offset
        return self.leader_epochs.end_offset_for(leader_epoch, end_offset, current_epoch)

    # Transactions.

    @property
    def last_stable_offset(self) -> int:
        """The exclusive end of the records that read-committed consumers can see, never below the
        log start offset.

        It is the first offset of the oldest transaction that is open, or whose marker is not below
        the high watermark. Without one, it is the high watermark.
        """
        offset = min(self.high_watermark, self.producer_state.transactions.first_unstable_offset)
        return max(offset, self.log_start_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedRange]:
        """Return every aborted transaction with data in [start, end), ordered by first offset."""
        if not self.producer_files.has_aborted:
            return []
        return self.segments.aborted(start_offset, end_offset)

    # Offsets that the caller moves.

    def advance_high_watermark(self, offset: int) -> None:
        """Raise the high watermark. All in-sync replicas must have everything below it."""
        self.high_watermark = max(self.high_watermark, min(offset, self.written_end_offset))
        if self.producer_state.transactions.finished:
            self.producer_state.transactions.settle(self.high_watermark)

    def advance_log_start(self, offset: int) -> None:
        """Make all records below `offset` unreadable (DeleteRecords). The next checkpoint makes the
        change durable. Retention removes the files later."""
        if offset > self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is above the high watermark"
            )
        if offset > self.log_start_offset:
            self.start_at(offset)

    def start_at(self, offset: int) -> None:
        """Set the log start offset. Readers find no records below it."""
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)

    # Flushing.

    def flush_target(self) -> FlushTarget | None:
        """Return the next flush; None if there is nothing to flush. On DiskError nothing has
        changed."""
        if self._is_out_of_service:
            return None
        return self._flushing.target(self.recovery_point)

    def flushed(self, target: FlushTarget) -> int:
        """Record that a flush was performed, and return the recovery point."""
        self._flushing.flushed(target)
        self.recovery_point = max(self.recovery_point, target.end_offset)
        if self.recovery_point >= self.written_end_offset:
            self._unflushed_since_ms = -1
        return self.recovery_point

    def flush_refused(self, target: FlushTarget) -> None:
        """Record that a flush was not performed, although no fsync failed. The next flush includes
        its data."""
        self._flushing.refused(target)

    def close(self) -> list[DiskFile]:
        """Write the files that a start after a clean stop reads. Everything must be flushed before.

        Returns the files that must be fsynced before the next start can trust them. Raises
        DiskError if a failed write has left bytes that cannot be removed. Otherwise a start that
        trusts the file could take half a batch for a whole one.
        """
        self.segments.repair()
        files = self.segments.finish_files()
        self.producer_files.close(self.log_end_offset)
        return files

    def is_flush_due(self, now_ms: int) -> bool:
        """Return True if `flush.messages` or `flush.ms` demands a flush of what is written."""
        unflushed = self.written_end_offset - self.recovery_point
        if unflushed >= self.config.flush_messages:
            return True
        since_ms = self._unflushed_since_ms
        # After a clock was set back, the elapsed time is unknown, so the flush is due.
        is_over = not since_ms <= now_ms < since_ms + self.config.flush_ms
        return unflushed > 0 and since_ms >= 0 and is_over

    @property
    def keeps_segments(self) -> bool:
        """True if no segment may be removed: a job or a deletion of the log uses them."""
        return self.cleaning is not None or self._is_out_of_service

    def roll(self, now_ms: int) -> None:
        """Start a new, empty active segment."""
        self._writer.roll(now_ms)

    def retire(self) -> None:
        """Stop flushing and cleaning this log, because it is about to be deleted."""
        self.cleaning = None
        self._is_out_of_service = True

    def let_go(self) -> list[DiskFile]:
        """Return the open files of a log that is being deleted. The log does not use them any
        more."""
        return [file for segment in self.segments if (file := segment.let_go()) is not None]

    # Truncate the log.

    def prepare_truncation(self) -> None:
        """Prepare to truncate or reset the log, and give up a cleaning in progress.

        Until `truncated` is called, do not read or write the log; it is neither flushed nor
        cleaned. No batch may be staged. No flush may be in progress, because it would write a
        snapshot with removed batches.
        """
        assert not self._writer.has_staged, "staged batches would be lost"
        assert not self._flushing.is_under_way, "a flush under way would cover truncated batches"
        self.retire()

    def truncated(self, loaded: recovery.LoadedLog) -> None:
        """Load the log's state again after a thread has truncated its files."""
        assert self._is_out_of_service
        self._is_out_of_service = False
        change_count = self.leader_epochs.change_count
        self._adopt(loaded)
        self.leader_epochs.change_count += change_count + 1
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        self.producer_state.transactions.settle(self.high_watermark)
        self.cleaned_offset = min(self.cleaned_offset, self.log_end_offset)
        self._unflushed_since_ms = -1
