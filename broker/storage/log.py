"""The log of one partition: what may be appended, read, dropped and cleaned, between its offsets.

Floor: storage. Synchronous, over the `Disk` passed in; it never reads a clock. Of the offsets,
always `log_start_offset <= log_end_offset` and `recovery_point <= log_end_offset`: readable from,
next to be given, and below it everything is on the disk. A batch passes through three calls:
`append` judges it and has it staged (`log_writer`), `write_staged` writes everything staged with
one `writev`, and `flush_target` / `flushed` move the recovery point past it. The staged views must
stay untouched until `write_staged`.
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
from broker.storage.outcomes import NOTHING, Appended, LogRead, Seen
from broker.storage.producer_files import ProducerFiles
from broker.storage.segments import Segments
from broker.storage.storing import as_stored
from broker.storage.txn_index import AbortedEntry, AbortedTransaction
from broker.storage.validation import check_client_batch, check_own_batch
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition
from protocol.wire.records import BatchHeader, read_header


class Log:
    """One partition's log. Made by `LogManager`, never directly."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        loaded: recovery.Loaded,
        high_watermark: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.folder = folder
        self._config = config
        self.disk = disk
        self._adopt(loaded)
        self.high_watermark = min(max(high_watermark, self.log_start_offset), self.log_end_offset)
        self.producer_state.transactions.settle(self.high_watermark)
        self.cleaned_offset = -1
        """Everything below has been cleaned at least once; -1 before the first cleaning."""
        self.cleaning: CleaningJob | None = None
        """The job under way, which nobody has given up."""
        self._is_out_of_service = False
        self._unflushed_since_ms = -1

    def _adopt(self, loaded: recovery.Loaded) -> None:
        self.segments = Segments(self.disk, self.folder, loaded.segments)
        self.leader_epochs = loaded.leader_epochs
        self.producer_state = loaded.producer_state
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.has_gap_mark = loaded.has_gap_mark
        """Whether batches may be appended that leave offsets out."""
        self.producer_files = ProducerFiles(
            self.disk, self.folder, self.producer_state, loaded.segments
        )
        self._flushing = Flushing(self.disk, self.folder, self.segments, self.producer_files)
        self._writer = LogWriter(
            self._config,
            self.segments,
            self.leader_epochs,
            self.producer_state,
            self.producer_files,
            f"{self.topic_id}-{self.topic_partition.partition}",
        )

    @property
    def config(self) -> LogConfig:
        """The topic's settings; may be replaced at any time."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._writer.use(config)

    @property
    def size_bytes(self) -> int:
        return self.segments.closed_bytes + self.segments.active.size_bytes

    @property
    def log_end_offset(self) -> int:
        """The offset of the next batch. Counts what is staged; readers see what is written."""
        return self._writer.end_offset

    @property
    def written_end_offset(self) -> int:
        """The end of what readers can see: the log end but for what is staged."""
        return self.segments.active.next_offset

    # Appending.

    def append(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int,
        seen: Seen | None = None,
    ) -> Appended:  # fmt: skip
        """Judge a client's batch, give it its offsets and stage it.

        `batch` is writable and all the request has for this partition. What is raised (`ApiError`,
        `RecordsUnseen`) has changed nothing. A duplicate of what is only staged shares its fate.
        `seen` is what a look at the records has found, which RecordsUnseen asks for.
        """
        config, state = self._config, self.producer_state
        check_client_batch(batch, header, config, now_ms, seen)
        if header.producer_id >= 0:
            known = state.check(header)
            if known is not None:
                is_stamped = config.message_timestamp_type == LOG_APPEND_TIME
                stamp_ms = known.max_timestamp_ms if is_stamped else -1
                return Appended(known.base_offset, known.last_offset, True, stamp_ms)
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
    ) -> Appended:
        """The same for a batch the broker made itself: metadata, offsets, states.

        Sequences are not looked at. A transactional batch (offsets committed in a transaction)
        opens its producer's transaction here like any other.
        """
        check_own_batch(batch, header, self._config)
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
    ) -> Appended:
        """Stage the marker that ends the producer's transaction, whether or not it wrote here.

        Refuses by ApiError: INVALID_PRODUCER_EPOCH for a fenced producer,
        TRANSACTION_COORDINATOR_FENCED for a coordinator that has been replaced. A marker repeated
        is written again and ends nothing more.
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
        """Stage the whole batches of what was fetched from the leader, as they are.

        Raises, before anything has changed, CorruptBatch or another WireError for what no log may
        hold, GapsUnmarked before a first gap, BeginsBelow where the log has to begin lower.
        """
        assert not self._writer.has_staged, "a fetch follows what is written"
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
        """What a thread has to do before offsets may be left out; then `gaps_are_marked`."""
        return GapMark(self.disk, self.folder)

    def gaps_are_marked(self) -> None:
        """The mark is on the disk."""
        self.has_gap_mark = True

    # Writing what was staged.

    def write_staged(self, now_ms: int) -> None:
        """Write everything staged since the last call, rolling where needed.

        On DiskError nothing of it remains: the log ends where it did, offsets and producers are
        as before, and every staged append of this call must be answered with
        KAFKA_STORAGE_ERROR. The log may be appended to again.
        """
        if self._writer.write(now_ms) and self._unflushed_since_ms < 0:
            self._unflushed_since_ms = now_ms

    # Reading.

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, min_one_batch: bool = True
    ) -> LogRead:
        """Whole batches from `offset`, all below `limit_offset`, of at most `max_bytes`.

        The first batch comes whole even if it is larger, unless `min_one_batch` is off. Raises
        ApiError(OFFSET_OUT_OF_RANGE) outside of log start and log end.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in {self.log_start_offset} to {self.log_end_offset}",
            )
        limit_offset = min(limit_offset, self.written_end_offset)
        if offset >= limit_offset:
            return NOTHING
        return self.segments.read(offset, max_bytes, limit_offset, min_one_batch=min_one_batch)

    def offset_for_timestamp(self, timestamp_ms: int, limit_offset: int) -> TimestampOffset | None:
        """The first record below `limit_offset` that is not older than the timestamp.

        Exact to the record: looks inside the batch, so it may decompress.
        """
        limit = min(limit_offset, self.written_end_offset)
        found = lookup.first_not_older(self.segments, timestamp_ms, self.log_start_offset, limit)
        self.segments.unload_cold(self.segments)
        return found

    def max_timestamp_record(self, limit_offset: int) -> TimestampOffset | None:
        """The first record with the largest timestamp (ListOffsets -3)."""
        limit_offset = min(limit_offset, self.written_end_offset)
        found = lookup.largest_timestamp(self.segments, self.log_start_offset, limit_offset)
        self.segments.unload_cold(self.segments)
        return found

    def end_offset_for_epoch(self, leader_epoch: int, current_epoch: int) -> tuple[int, int]:
        """(largest epoch not above the one asked for, its end offset), or (-1, -1)."""
        end_offset = self.written_end_offset
        return self.leader_epochs.end_offset_for(leader_epoch, end_offset, current_epoch)

    # Transactions.

    @property
    def last_stable_offset(self) -> int:
        """The end of what readers of committed data may see.

        The first offset of the oldest transaction that is open, or whose marker the high watermark
        has not passed; without any, the high watermark. Never below the log's start.
        """
        offset = min(self.high_watermark, self.producer_state.transactions.first_unstable_offset)
        return max(offset, self.log_start_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Every aborted transaction with data in [start, end), by first offset."""
        if not self.producer_files.has_aborted:
            return []
        return self.segments.aborted(start_offset, end_offset)

    # Offsets that others move.

    def advance_high_watermark(self, offset: int) -> None:
        """The caller's word that all in-sync replicas hold everything below `offset`."""
        self.high_watermark = max(self.high_watermark, min(offset, self.written_end_offset))
        if self.producer_state.transactions.finished:
            self.producer_state.transactions.settle(self.high_watermark)

    def advance_log_start(self, offset: int) -> None:
        """Make everything below `offset` unreadable (DeleteRecords); retention drops the files.

        It holds for good once a checkpoint has been written, which the caller waits for.
        """
        if offset > self.high_watermark:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "above the high watermark")
        if offset > self.log_start_offset:
            self.start_at(offset)

    def start_at(self, offset: int) -> None:
        """Readers find nothing below from here on."""
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)

    # Flushing.

    def flush_target(self) -> FlushTarget | None:
        """What a flush has to do; None when everything written is on the disk. DiskError where a
        file cannot be opened: nothing has changed then."""
        if self._is_out_of_service:
            return None
        return self._flushing.target(self.recovery_point)

    def flushed(self, target: FlushTarget) -> int:
        """Take a performed target into account; returns the recovery point."""
        self._flushing.flushed(target)
        self.recovery_point = max(self.recovery_point, target.end_offset)
        if self.recovery_point >= self.written_end_offset:
            self._unflushed_since_ms = -1
        return self.recovery_point

    def flush_refused(self, target: FlushTarget) -> None:
        """No sync of a target has failed, and it is not done: the next one does it."""
        self._flushing.refused(target)

    def close(self) -> list[DiskFile]:
        """Write what the start after a clean stop takes as it is; everything must be flushed.

        Returns the files that must be synced before that start may believe them. Raises DiskError
        when a write that failed has left something that cannot be removed: a start that believed
        the file would take half a batch for a whole one.
        """
        self.segments.repair()
        files = self.segments.finish_files()
        self.producer_files.close(self.log_end_offset)
        return files

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a flush of what is written."""
        unflushed = self.written_end_offset - self.recovery_point
        if unflushed >= self._config.flush_messages:
            return True
        since_ms = self._unflushed_since_ms
        # A clock that was set back says nothing of how long it has been.
        is_over = not since_ms <= now_ms < since_ms + self._config.flush_ms
        return unflushed > 0 and since_ms >= 0 and is_over

    # Giving up the old.

    @property
    def keeps_segments(self) -> bool:
        """Whether no segment may go: they are being cleaned, or cut, or are to be deleted."""
        return self.cleaning is not None or self._is_out_of_service

    def roll(self, now_ms: int) -> None:
        """Go on in an empty segment."""
        self._writer.roll(now_ms)

    def retire(self) -> None:
        """The log is about to be deleted: it is neither flushed nor cleaned any more."""
        self.cleaning = None
        self._is_out_of_service = True

    def let_go(self) -> list[DiskFile]:
        """The files that are open, for a log that is being deleted."""
        return [file for segment in self.segments if (file := segment.let_go()) is not None]

    # Truncating.

    def begin_cut(self) -> None:
        """The log is about to be truncated or reset: until `truncated` it must not be read or
        written, and is neither flushed nor cleaned; a cleaning under way is given up.

        Nothing may be staged and no flush under way: a snapshot that one writes late would tell of
        batches that are gone.
        """
        assert not self._writer.has_staged, "staged batches would be lost"
        assert not self._flushing.is_under_way, "a flush under way would vouch for what is cut"
        self.retire()

    def truncated(self, loaded: recovery.Loaded) -> None:
        """Take over the log as the thread has left it."""
        assert self._is_out_of_service
        self._is_out_of_service = False
        change_count = self.leader_epochs.change_count
        self._adopt(loaded)
        self.leader_epochs.change_count += change_count + 1
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        self.producer_state.transactions.settle(self.high_watermark)
        self.cleaned_offset = min(self.cleaned_offset, self.log_end_offset)
        self._unflushed_since_ms = -1
