"""A batch on its way through the producer, and the queue of one partition.

This module is pure. `producer_core` decides what happens, and this module keeps the order.
Invariants of a queue:

- `waiting` and `in_flight` are each in the order of creation, which is the order of sequences.
- Batches with a sequence come before those without.
- From the oldest batch without an outcome on, at most `max_in_flight` have a sequence, because a
  broker remembers only five.
"""

from collections import deque
from dataclasses import dataclass

from protocol.client.backoff import Backoff
from protocol.errors import ErrorCode
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from protocol.wire.record import NewRecord

SEQUENCE_MODULUS = 2**31

# The most bytes of a record in addition to its key and value: the attributes, the lengths of key
# and value, and the varints for record length, offset delta and timestamp.
RECORD_OVERHEAD_BYTES = 32
HEADER_OVERHEAD_BYTES = 10
BATCH_OVERHEAD_BYTES = 61


def sequence_after(base_sequence: int, record_count: int) -> int:
    """Return the sequence number after `record_count` records. 0 follows 2147483647."""
    return (base_sequence + record_count) % SEQUENCE_MODULUS


def record_bytes_bound(record: NewRecord) -> int:
    """Return an upper bound of the record's size in a batch, before compression."""
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += HEADER_OVERHEAD_BYTES + len(name) * 4 + len(value or b"")
    return size


class PendingBatch:
    """Records of one partition that are sent, retried and acknowledged together.

    A batch has either `records`, which are encoded when sent, or `payload`, a batch encoded by the
    caller. `tokens` belong to the driver, and the core does not use them.
    """

    __slots__ = (
        "attempts",
        "base_sequence",
        "closed",
        "created_ms",
        "order",
        "payload",
        "place",
        "producer_epoch",
        "producer_id",
        "record_count",
        "records",
        "size_bytes",
        "suspect_answers",
        "tokens",
        "tp",
        "uncertain",
    )

    def __init__(self, tp: TopicPartition, order: tuple[int, ...], created_ms: int) -> None:
        self.tp = tp
        self.order = order
        self.created_ms = created_ms
        self.records: list[NewRecord] = []
        self.payload: bytearray | None = None
        self.record_count = 0
        self.size_bytes = BATCH_OVERHEAD_BYTES
        self.tokens: list[object] = []
        self.closed = False
        self.attempts = 0
        self.uncertain = False
        """True if the outcome of an earlier attempt is unknown. Then the batch may already be in
        the log.
        """
        self.suspect_answers = 0
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.place = 0
        """The number of batches of the partition that got a sequence before this one."""

    @property
    def has_sequence(self) -> bool:
        """True if the batch has a producer id and a sequence.

        They stay the same through all retries unless the sequence restarts.
        """
        return self.base_sequence != NO_SEQUENCE

    def add(self, record: NewRecord, size_bytes: int, token: object) -> None:
        """Append a record."""
        self.records.append(record)
        self.record_count += 1
        self.size_bytes += size_bytes
        self.tokens.append(token)

    def strip_sequence(self) -> None:
        """Remove producer id and sequence. The next attempt gets new ones."""
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE

    def split(self) -> "tuple[PendingBatch, PendingBatch]":
        """Return two batches with half of the records each.

        Sequences count records, so they stay valid.
        """
        middle = self.record_count // 2
        halves = (
            PendingBatch(self.tp, (*self.order, 0), self.created_ms),
            PendingBatch(self.tp, (*self.order, 1), self.created_ms),
        )
        for half, part, start in (
            (halves[0], slice(None, middle), 0),
            (halves[1], slice(middle, None), middle),
        ):
            for record, token in zip(self.records[part], self.tokens[part], strict=True):
                half.add(record, record_bytes_bound(record), token)
            half.closed = True
            half.attempts = self.attempts
            half.uncertain = self.uncertain
            if self.has_sequence:
                half.producer_id = self.producer_id
                half.producer_epoch = self.producer_epoch
                half.base_sequence = sequence_after(self.base_sequence, start)
                half.place = self.place
        return halves

    def __repr__(self) -> str:
        return (
            f"<batch {self.tp} {self.order} records={self.record_count} "
            f"sequence={self.base_sequence} attempts={self.attempts}>"
        )


@dataclass(frozen=True, slots=True)
class BatchDelivered:
    """The batch is in the log at `base_offset` (-1 if the broker does not report the offset)."""

    batch: PendingBatch
    base_offset: int
    log_append_time_ms: int


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """The batch could not be delivered. Its caller gets `error`."""

    batch: PendingBatch
    error: Exception


@dataclass(frozen=True, slots=True)
class SequenceRestarted:
    """A partition continues with a raised epoch or another producer id. The driver logs this."""

    tp: TopicPartition
    code: ErrorCode


Effect = BatchDelivered | BatchFailed | SequenceRestarted


class PartitionLine:
    """The batches of one partition in order, with the producer id and sequence for the next
    ones."""

    __slots__ = (
        "acknowledged",
        "backoff",
        "in_flight",
        "next_place",
        "next_sequence",
        "producer_epoch",
        "producer_id",
        "restart_sequences",
        "retry_at_ms",
        "tp",
        "unknown_since_ms",
        "waiting",
    )

    def __init__(self, tp: TopicPartition, backoff: Backoff) -> None:
        self.tp = tp
        self.backoff = backoff
        self.waiting: deque[PendingBatch] = deque()
        self.in_flight: list[PendingBatch] = []
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.next_sequence = 0
        self.next_place = 0
        self.acknowledged = False
        """True once the leader has acknowledged a batch with these ids since the last error."""
        self.restart_sequences = False
        """True if the log has a gap below `next_sequence`. Then only a new epoch can continue."""
        self.retry_at_ms = 0
        self.unknown_since_ms: int | None = None

    @property
    def has_outstanding(self) -> bool:
        """True if any batch has a sequence and no outcome."""
        return bool(self.in_flight) or bool(self.waiting and self.waiting[0].has_sequence)

    def may_overlap(self, remembered_count: int) -> bool:
        """Return whether the first waiting batch may be sent before the batches in flight are
        answered."""
        if self.restart_sequences or not self.acknowledged:
            return False
        if self.waiting[0].has_sequence or self.in_flight[0].attempts > 1:
            # A batch in flight is being retried. To the broker, the halves of a split batch are two
            # batches, so comparing `place` is not enough.
            return False
        # The oldest batch can wait for a former leader while the new leader acknowledges later
        # batches.
        return self.next_place - self.in_flight[0].place < remembered_count

    def is_first_outstanding(self, batch: PendingBatch) -> bool:
        """Return whether all earlier batches have an outcome."""
        earlier_in_flight = self.in_flight and self.in_flight[0].order < batch.order
        earlier_waiting = self.waiting and self.waiting[0].order < batch.order
        return not earlier_in_flight and not earlier_waiting

    def put_back(self, batch: PendingBatch) -> None:
        """Put a batch that was in flight back into the queue at its old position."""
        if self.restart_sequences:
            # An earlier batch is not in the log. So this batch is not in the log either.
            batch.strip_sequence()
        position = 0
        for position, other in enumerate(self.waiting):  # noqa: B007 (used after the loop)
            if batch.order < other.order:
                break
        else:
            position = len(self.waiting)
        self.waiting.insert(position, batch)

    def restart(self) -> None:
        """Make all sequences that were assigned so far invalid.

        A batch in flight loses its sequence when it is put back into the queue.
        """
        self.restart_sequences = True
        for batch in self.waiting:
            batch.strip_sequence()

    def adopt(self, producer_id: int, producer_epoch: int) -> None:
        """Continue at sequence 0 with another producer id and epoch.

        No batch may be outstanding.
        """
        assert not self.has_outstanding
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.next_sequence = 0
        self.acknowledged = False
        self.restart_sequences = False

    def assign_sequence(self, batch: PendingBatch) -> None:
        """Give the batch the next sequence with the ids of this queue."""
        batch.producer_id = self.producer_id
        batch.producer_epoch = self.producer_epoch
        batch.base_sequence = self.next_sequence
        batch.place = self.next_place
        self.next_place += 1
        self.next_sequence = sequence_after(self.next_sequence, batch.record_count)

    def wait_before_retry(self, now_ms: int) -> None:
        """Start a back-off after an error, unless another batch has already started it."""
        self.acknowledged = False
        if self.retry_at_ms <= now_ms:
            self.retry_at_ms = now_ms + self.backoff.next_ms()
