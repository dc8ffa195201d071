"""The producer without its network: which batch is sent when, and what its answer means.

This module is pure: time and the random source are arguments, and outcomes are effects for
`producer.py`. The rules of an idempotent stream are the same as in Java:

- A batch keeps its producer id, epoch and sequence through all retries. The broker recognises it
  among the last five. So no later batch gets a sequence that would push it out of them. While a
  batch is retried, no other batch of its partition is in flight.
- Only one batch is in flight at the start and after every error, until the leader has acknowledged
  one. A leader that does not know the producer accepts any sequence, so a second batch could
  overtake the first.
- OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that is not the first outstanding one follows from an
  earlier failure, so the batch waits. For the first one it means that the log has a gap before it
  (a batch was refused or not delivered). Then no later batch is in the log either. The partition
  restarts at sequence 0 with a raised epoch once nothing is in flight.
- Only a batch that is refused permanently while nothing else is outstanding gives its sequence
  back.
"""

import random
from collections.abc import Iterable

from protocol.client.backoff import Backoff
from protocol.client.errors import DeliveryTimedOut, RecordTooLarge
from protocol.client.pending import (
    BATCH_OVERHEAD_BYTES,
    BatchDelivered,
    BatchFailed,
    Effect,
    PartitionLine,
    PendingBatch,
    SequenceRestarted,
    record_bytes_bound,
)
from protocol.client.produce_codes import NOT_WRITTEN, PRODUCER_REFUSED, SUSPECT, TOO_LARGE
from protocol.client.producer_settings import ProducerSettings
from protocol.errors import ApiError, ErrorCode
from protocol.types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from protocol.wire.record import NewRecord

PRODUCER_EPOCH_MAX = 32767
SUSPECT_ANSWERS_MAX = 10


class ProducerCore:
    """All partitions of one producer. Every method gets the time in milliseconds."""

    def __init__(self, settings: ProducerSettings, rng: random.Random) -> None:
        self.settings = settings
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.buffered_bytes = 0
        self.pressed = False
        """True if a caller waits for room or for a flush. Batches do not linger then."""
        self._rng = rng
        self._lines: dict[TopicPartition, PartitionLine] = {}
        self._created = 0

    def has_room(self, size_bytes: int) -> bool:
        """Return whether `size_bytes` more bytes fit into the buffer."""
        return self.buffered_bytes + size_bytes <= self.settings.buffer_bytes

    def check_size(self, size_bytes: int) -> None:
        """Raise RecordTooLarge for a record or batch that can never be sent."""
        limit = min(self.settings.request_bytes_max, self.settings.buffer_bytes)
        if size_bytes > limit:
            raise RecordTooLarge(f"found {size_bytes} bytes to send, expected at most {limit}")

    def would_open_batch(self, tp: TopicPartition, size_bytes: int) -> bool:
        """Return whether a record of that size would start a new batch."""
        line = self._lines.get(tp)
        return line is None or self._open_batch(line, size_bytes) is None

    def append(
        self, tp: TopicPartition, record: NewRecord, token: object, now_ms: int
    ) -> PendingBatch:
        """Add a record to the partition's last batch. The caller has checked size and room."""
        size_bytes = record_bytes_bound(record)
        line = self._line(tp)
        batch = self._open_batch(line, size_bytes)
        if batch is None:
            batch = self._new_batch(line, now_ms)
            self.buffered_bytes += batch.size_bytes
        batch.add(record, size_bytes, token)
        self.buffered_bytes += size_bytes
        return batch

    def append_batch(
        self, tp: TopicPartition, payload: bytearray, record_count: int, token: object, now_ms: int
    ) -> PendingBatch:
        """Queue an encoded batch after all batches queued before."""
        batch = self._new_batch(self._line(tp), now_ms)
        batch.payload = payload
        batch.record_count = record_count
        batch.size_bytes = len(payload)
        batch.tokens.append(token)
        batch.closed = True
        self.buffered_bytes += batch.size_bytes
        return batch

    def set_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        """Set the producer id and epoch from the InitProducerId response."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch

    @property
    def needs_producer_id(self) -> bool:
        """True if the driver must get a producer id before anything unsent can be sent."""
        return self.settings.idempotent and self.producer_id == NO_PRODUCER_ID

    @property
    def is_empty(self) -> bool:
        """True if every batch has an outcome."""
        return not any(line.waiting or line.in_flight for line in self._lines.values())

    @property
    def is_waiting(self) -> bool:
        """True if any batch waits to be sent."""
        return any(line.waiting for line in self._lines.values())

    @property
    def last_number(self) -> int:
        """The number of the last created batch; numbers start at 1."""
        return self._created

    def oldest_number(self) -> int | None:
        """Return the number of the oldest batch without an outcome."""
        heads = [
            batches[0].order[0]
            for line in self._lines.values()
            for batches in (line.in_flight, line.waiting)
            if batches
        ]
        return min(heads, default=None)

    def ready(self, now_ms: int) -> list[TopicPartition]:
        """Return the partitions from which `drain` would take a batch, the oldest batch first."""
        lines = [line for line in self._lines.values() if self._is_ready(line, now_ms)]
        lines.sort(key=lambda line: line.waiting[0].order)
        return [line.tp for line in lines]

    def drain(
        self, tps: Iterable[TopicPartition], now_ms: int, bytes_max: int
    ) -> list[PendingBatch]:
        """Take at most one batch of each partition, `bytes_max` in all, and mark them in flight.
        The caller sends them in one request, after earlier requests, and reports the outcome of
        each batch."""
        taken: list[PendingBatch] = []
        taken_bytes = 0
        for tp in tps:
            line = self._lines[tp]
            if not self._is_ready(line, now_ms):
                continue
            batch = line.waiting[0]
            if taken and taken_bytes + batch.size_bytes > bytes_max:
                break
            if self.settings.idempotent and not batch.has_sequence and not self._sequence(line):
                continue
            line.waiting.popleft()
            line.in_flight.append(batch)
            batch.closed = True
            batch.attempts += 1
            taken.append(batch)
            taken_bytes += batch.size_bytes
        return taken

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """Return the earliest time after `now_ms` at which `ready` or `expire` can return more. A
        batch that is due now but is not sent waits for an event, and this event wakes the
        driver."""
        deadlines = [
            deadline
            for line in self._lines.values()
            if line.waiting
            for deadline in self._deadlines(line)
            if deadline > now_ms
        ]
        return min(deadlines, default=None)

    def on_delivered(
        self, batch: PendingBatch, base_offset: int, log_append_time_ms: int
    ) -> list[Effect]:
        """Handle an append by the leader, or with acks 0 a write to the network."""
        line = self._take_back(batch)
        line.acknowledged = True
        line.unknown_since_ms = None
        line.retry_at_ms = 0
        line.backoff.reset()
        return [self._done(BatchDelivered(batch, base_offset, log_append_time_ms))]

    def on_connection_lost(self, batch: PendingBatch, now_ms: int) -> None:
        """Queue the batch again, without knowing whether the log has it: no answer will come."""
        line = self._take_back(batch)
        batch.uncertain = True
        line.put_back(batch)
        line.wait_before_retry(now_ms)

    def on_unsent(self, batch: PendingBatch, now_ms: int) -> None:
        """Queue a drained batch again that was not sent at all."""
        line = self._take_back(batch)
        line.put_back(batch)
        line.wait_before_retry(now_ms)

    def on_refused(
        self, batch: PendingBatch, code: ErrorCode, detail: str, now_ms: int
    ) -> list[Effect]:
        """Handle an error code for a batch."""
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return self.on_delivered(batch, NO_OFFSET, -1)
        line = self._take_back(batch)
        if code in TOO_LARGE and batch.payload is None and batch.record_count > 1:
            return self._split(line, batch)
        if self.settings.idempotent:
            if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
                return self._on_sequence_refused(line, batch, code, now_ms)
            if code in PRODUCER_REFUSED and not self.settings.is_transactional:
                return self._on_producer_refused(line, batch, code, now_ms)
        error = ApiError(code, detail)
        if code in SUSPECT:
            batch.suspect_answers += 1
            if batch.suspect_answers > SUSPECT_ANSWERS_MAX:
                return [self._give_up(line, batch, error)]
        elif not code.retriable:
            return [self._give_up(line, batch, error)]
        if code not in NOT_WRITTEN:
            batch.uncertain = True
        line.put_back(batch)
        line.wait_before_retry(now_ms)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return self.on_leader_unknown(batch.tp, code, now_ms)
        line.unknown_since_ms = None
        return []

    def on_leader_unknown(self, tp: TopicPartition, code: ErrorCode, now_ms: int) -> list[Effect]:
        """Handle a missing leader. Batches wait, and fail if the topic stays unknown for too
        long."""
        line = self._lines[tp]
        line.wait_before_retry(now_ms)
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            line.unknown_since_ms = None
            return [] if code.retriable else self._fail_waiting(line, ApiError(code))
        if line.unknown_since_ms is None:
            line.unknown_since_ms = now_ms
        if now_ms - line.unknown_since_ms < self.settings.unknown_topic_timeout_ms:
            return []
        return self._fail_waiting(line, ApiError(code, f"{tp} stayed unknown to the brokers"))

    def expire(self, now_ms: int) -> list[Effect]:
        """Fail batches that have waited longer than the delivery time-out, except those in
        flight."""
        timeout_ms = self.settings.delivery_timeout_ms
        if timeout_ms is None:
            return []
        effects: list[Effect] = []
        for line in self._lines.values():
            while line.waiting and line.waiting[0].created_ms + timeout_ms <= now_ms:
                batch = line.waiting.popleft()
                fate = "may have been written" if batch.uncertain else "was not written"
                text = f"no acknowledgement for {batch.tp} within {timeout_ms} ms; it {fate}"
                effects.append(self._done(BatchFailed(batch, DeliveryTimedOut(text))))
        return effects

    def fail_waiting(self, error: Exception) -> list[Effect]:
        """Fail all batches that are not in flight."""
        effects: list[Effect] = []
        for line in self._lines.values():
            effects += self._fail_waiting(line, error)
        return effects

    def fail_all(self, error: Exception) -> list[Effect]:
        """Fail all batches, because the producer ends. Later answers must not be reported."""
        effects = self.fail_waiting(error)
        for line in self._lines.values():
            effects += [self._done(BatchFailed(batch, error)) for batch in line.in_flight]
            line.in_flight.clear()
        return effects

    def _line(self, tp: TopicPartition) -> PartitionLine:
        line = self._lines.get(tp)
        if line is None:
            line = PartitionLine(tp, Backoff(*self.settings.retry_backoff_ms, self._rng))
            self._lines[tp] = line
        return line

    def _new_batch(self, line: PartitionLine, now_ms: int) -> PendingBatch:
        self._created += 1
        batch = PendingBatch(line.tp, (self._created,), now_ms)
        line.waiting.append(batch)
        return batch

    def _open_batch(self, line: PartitionLine, size_bytes: int) -> PendingBatch | None:
        if not line.waiting:
            return None
        batch = line.waiting[-1]
        if batch.closed or batch.size_bytes + size_bytes > self.settings.batch_bytes:
            return None
        return batch

    def _is_ready(self, line: PartitionLine, now_ms: int) -> bool:
        if not line.waiting or now_ms < self._due_at_ms(line):
            return False
        if len(line.in_flight) >= self.settings.max_in_flight:
            return False
        if not self.settings.idempotent:
            return True
        if line.in_flight and not line.may_overlap(self.settings.max_in_flight):
            return False
        return line.waiting[0].has_sequence or not self.needs_producer_id

    def _due_at_ms(self, line: PartitionLine) -> int:
        """Return from when on the queue's first batch can be sent."""
        head = line.waiting[0]
        is_full = head.closed or head.size_bytes >= self.settings.batch_bytes
        if self.pressed or is_full or len(line.waiting) > 1:
            return line.retry_at_ms
        return max(line.retry_at_ms, head.created_ms + self.settings.linger_ms)

    def _deadlines(self, line: PartitionLine) -> tuple[int, ...]:
        timeout_ms = self.settings.delivery_timeout_ms
        expiry = () if timeout_ms is None else (line.waiting[0].created_ms + timeout_ms,)
        return (self._due_at_ms(line), *expiry)

    def _sequence(self, line: PartitionLine) -> bool:
        """Give the queue's first batch its sequence. Return False if a producer id is needed
        first."""
        ours = (self.producer_id, self.producer_epoch)
        if line.restart_sequences and (line.producer_id, line.producer_epoch) == ours:
            if self.producer_epoch >= PRODUCER_EPOCH_MAX:
                self.producer_id = NO_PRODUCER_ID
                return False
            # Without a transactional id the client itself raises the epoch (KIP-360).
            self.producer_epoch += 1
            ours = (self.producer_id, self.producer_epoch)
        if (line.producer_id, line.producer_epoch) != ours and not line.has_outstanding:
            line.adopt(*ours)
        line.assign_sequence(line.waiting[0])
        return True

    def _take_back(self, batch: PendingBatch) -> PartitionLine:
        line = self._lines[batch.tp]
        line.in_flight.remove(batch)
        return line

    def _done(self, effect: BatchDelivered | BatchFailed) -> Effect:
        self.buffered_bytes -= effect.batch.size_bytes
        return effect

    def _give_up(self, line: PartitionLine, batch: PendingBatch, error: Exception) -> Effect:
        if batch.has_sequence and not batch.uncertain and not line.has_outstanding:
            line.next_sequence = batch.base_sequence
        return self._done(BatchFailed(batch, error))

    def _fail_waiting(self, line: PartitionLine, error: Exception) -> list[Effect]:
        effects = [self._done(BatchFailed(batch, error)) for batch in line.waiting]
        line.waiting.clear()
        line.unknown_since_ms = None
        return effects

    def _split(self, line: PartitionLine, batch: PendingBatch) -> list[Effect]:
        self.buffered_bytes += BATCH_OVERHEAD_BYTES
        for half in batch.split():
            line.put_back(half)
        return []

    def _on_sequence_refused(
        self, line: PartitionLine, batch: PendingBatch, code: ErrorCode, now_ms: int
    ) -> list[Effect]:
        echo = not line.is_first_outstanding(batch)
        line.put_back(batch)
        line.wait_before_retry(now_ms)
        if echo:
            return []
        if self.settings.is_transactional:
            # With a transactional id, only the end of the transaction brings another epoch.
            line.waiting.remove(batch)
            return [self._done(BatchFailed(batch, ApiError(code)))]
        line.restart()
        return [SequenceRestarted(batch.tp, code)]

    def _on_producer_refused(
        self, line: PartitionLine, batch: PendingBatch, code: ErrorCode, now_ms: int
    ) -> list[Effect]:
        """Get another producer id, because a newer producer fenced ours or the broker forgot ours.
        A batch whose earlier attempt had no known outcome fails, because a retry with another id
        could duplicate it.
        """
        if line.producer_id == self.producer_id:
            self.producer_id = NO_PRODUCER_ID
        effects: list[Effect] = []
        if batch.uncertain:
            effects.append(self._done(BatchFailed(batch, ApiError(code))))
        else:
            line.put_back(batch)
        line.wait_before_retry(now_ms)
        if not line.restart_sequences:
            line.restart()
            effects.append(SequenceRestarted(batch.tp, code))
        return effects
