"""What the log remembers of each idempotent producer: its epoch and its last five batches.

Floor: storage. Pure. A retry of one of the five is recognised and answered with its first offset;
anything else must continue exactly where the producer's last batch ended. Producers are kept in
the order of their last use, so forgetting the silent ones looks only at the front. There are no
snapshots: at every start the state is made anew from the batch headers.
"""

from __future__ import annotations

from collections import OrderedDict

from protocol.errors import ApiError, ErrorCode
from protocol.wire.records import BatchHeader

BATCHES_KEPT = 5
"""Kafka's number, and the most requests an idempotent producer may have in flight."""

SEQUENCE_MASK = 2**31 - 1
"""Sequences wrap: 0 follows 2147483647."""

KnownBatch = tuple[int, int, int, int, int]
"""Base sequence, last sequence, base offset, last offset, timestamp the log gave or -1."""


class Producer:
    """One producer id in one partition."""

    __slots__ = ("batches", "last_used_ms", "producer_epoch")

    def __init__(self, producer_epoch: int, batches: list[KnownBatch], last_used_ms: int) -> None:
        self.producer_epoch = producer_epoch
        self.batches = batches
        self.last_used_ms = last_used_ms


class ProducerState:
    """All producers of one partition.

    Moves: `check` judges, `update` takes a batch in. Until `keep` the updates can be taken back by
    `roll_back`, for the write that would make them true may fail.
    """

    __slots__ = ("_before", "expiration_ms", "producers")

    def __init__(self, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self.producers: OrderedDict[int, Producer] = OrderedDict()
        self._before: dict[int, Producer | None] = {}

    def check(self, header: BatchHeader) -> KnownBatch | None:
        """The first copy of a repeated batch, or None when the batch is the next one.

        Refuses an older producer epoch and a sequence that does not follow. A producer the log
        does not know may begin anywhere, for its state may have expired.
        """
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return None
        producer_epoch = header.producer_epoch
        base_sequence = header.base_sequence
        if producer_epoch == producer.producer_epoch:
            last_sequence = (base_sequence + header.last_offset_delta) & SEQUENCE_MASK
            batches = producer.batches
            expected = (batches[-1][1] + 1) & SEQUENCE_MASK
            if base_sequence == expected:
                return None
            for known in batches:
                if known[0] == base_sequence and known[1] == last_sequence:
                    return known
        elif producer_epoch < producer.producer_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {producer_epoch} of producer {header.producer_id} is older than "
                f"{producer.producer_epoch}",
            )
        else:
            expected = 0
            if base_sequence == 0:
                return None
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {base_sequence}, expected {expected}",
        )

    def update(
        self, header: BatchHeader, base_offset: int, log_append_time_ms: int, now_ms: int
    ) -> None:
        """Take in a batch that passed `check`, to be kept or rolled back."""
        producer_id = header.producer_id
        producer = self.producers.get(producer_id)
        if producer_id not in self._before:
            self._before[producer_id] = producer and Producer(
                producer.producer_epoch, producer.batches.copy(), producer.last_used_ms
            )
        self.replay(header, base_offset, log_append_time_ms, now_ms)

    def replay(
        self, header: BatchHeader, base_offset: int, log_append_time_ms: int, now_ms: int
    ) -> None:
        """Take in a batch that is in the log already."""
        base_sequence = header.base_sequence
        delta = header.last_offset_delta
        batch = (
            base_sequence,
            (base_sequence + delta) & SEQUENCE_MASK,
            base_offset,
            base_offset + delta,
            log_append_time_ms,
        )
        producer = self.producers.get(header.producer_id)
        if producer is None:
            self.producers[header.producer_id] = Producer(header.producer_epoch, [batch], now_ms)
            return
        if producer.producer_epoch != header.producer_epoch:
            producer.producer_epoch = header.producer_epoch
            producer.batches = [batch]
        else:
            batches = producer.batches
            batches.append(batch)
            if len(batches) > BATCHES_KEPT:
                del batches[0]
        producer.last_used_ms = now_ms
        self.producers.move_to_end(header.producer_id)

    def keep(self) -> None:
        """The updates since the last call are written."""
        if self._before:
            self._before.clear()

    def roll_back(self) -> None:
        """The updates since the last `keep` could not be written; forget them."""
        for producer_id, producer in self._before.items():
            if producer is None:
                del self.producers[producer_id]
            else:
                self.producers[producer_id] = producer
        self._before.clear()

    def expire(self, now_ms: int) -> int:
        """Forget producers silent for longer than the expiration; returns how many."""
        count = 0
        while self.producers:
            producer_id, producer = next(iter(self.producers.items()))
            if now_ms - producer.last_used_ms <= self.expiration_ms:
                break
            del self.producers[producer_id]
            count += 1
        return count
