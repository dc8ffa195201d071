"""The state of each idempotent producer in a log: its epoch and its last batches.

This module is pure. A retry of one of these batches is recognised and answered with its first
offset. Every other batch must continue exactly where the producer's last batch ended. Producers are
kept in the order of their last use, so expiry looks only at the front. A producer with an open
transaction never expires. State that only transactions need is kept separately, in `transactions`
and `markers`, so that other producers need no memory for it.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice

from broker.storage.known_producer import (
    NO_BATCH,
    NOTHING_AWAITED,
    UNKNOWN_BATCH,
    ActiveProducer,
    Awaited,
    KnownBatch,
    KnownProducer,
    LastMarker,
    note_refused,
)
from broker.storage.refused_next import RefusedNext
from broker.storage.transactions import Finished, LogTransactions
from broker.storage.verifications import Verifications
from protocol.errors import ApiError, ErrorCode
from protocol.wire.batch_header import SEQUENCE_MAX, TRANSACTIONAL
from protocol.wire.records import BatchHeader

BATCHES_KEPT = 20
"""The number of batches that are kept per producer: more than a client has in flight on one
connection, because it goes on at a new leader while the former one is silent (decision 0251)."""

NO_COORDINATOR_EPOCH = -1
"""Kafka's value for a producer for which there is no marker yet."""

# As `KnownBatch._make` with one call less, which saves time for every idempotent batch.
_new_batch = tuple.__new__


class ProducerStateManager:
    """All producers of one partition. `check` validates a batch, `update` records it. `roll_back`
    reverts the updates since the last `keep`, because the write that makes them permanent can
    fail."""

    __slots__ = (
        "_before",
        "_first",
        "_markers_before",
        "_refused_next",
        "awaited",
        "count_max",
        "expiration_ms",
        "markers",
        "producers",
        "transactions",
        "verifications",
    )

    def __init__(self, expiration_ms: int, count_max: int) -> None:
        self.expiration_ms = expiration_ms
        self.count_max = count_max
        self.producers: OrderedDict[int, KnownProducer] = OrderedDict()
        self.transactions = LogTransactions()
        self.verifications = Verifications()
        self.markers: dict[int, LastMarker] = {}
        self.awaited: Awaited = {}
        """The producers whose first batch was refused, with that batch. The first batch could have
        any sequence, because the log had no state of the producer."""
        self._refused_next = RefusedNext()
        self._before: dict[int, KnownProducer | None] = {}
        self._first: dict[int, tuple[int, int]] = {}
        """The epoch and the sequence of the first batch of each producer of which the log had no
        state, by producer id. Only producers that were added since the last `keep` are included."""
        self._markers_before: dict[int, LastMarker | None] = {}

    def check(self, header: BatchHeader) -> KnownBatch | None:
        """Return the first copy of a repeated batch; None if the batch is the next one.

        An older producer epoch and a sequence that does not follow are refused. An unknown producer
        can begin with any sequence, because its state can have expired. There is one exception: if
        the producer's first batch was refused, its retry must come first. Otherwise the log would
        take the retry for a duplicate, and the records would be lost.
        """
        producer = self.producers.get(header.producer_id)
        if producer is None:
            if self.awaited:
                self._check_awaited(header)
            return None
        producer_epoch = header.producer_epoch
        base_sequence = header.base_sequence
        if producer_epoch == producer.producer_epoch:
            last_sequence = (base_sequence + header.last_offset_delta) & SEQUENCE_MAX
            batches = producer.batches
            expected = (batches[-1].last_sequence + 1) & SEQUENCE_MAX
            if base_sequence == expected:
                return None
            for known in batches:
                if (known.base_sequence, known.last_sequence) == (base_sequence, last_sequence):
                    self._check_repeated(header, known)
                    return known
            if batches[-1] == UNKNOWN_BATCH:
                if self.awaited:
                    self._check_awaited(header)
                return None
        elif producer_epoch < producer.producer_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {producer_epoch} of producer {header.producer_id} is older than its "
                f"present epoch {producer.producer_epoch}",
            )
        else:
            expected = 0
            if base_sequence == 0:
                return None
        raise self._gap(header, expected)

    def _gap(self, header: BatchHeader, expected: int) -> ApiError:
        key = header.producer_id, header.producer_epoch, expected
        is_waited_for = self._refused_next.is_waited_for(*key)
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS
            if is_waited_for
            else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {header.base_sequence}, "
            f"expected {expected}{', which was refused before' if is_waited_for else ''}",
        )

    def _check_repeated(self, header: BatchHeader, known: KnownBatch) -> None:
        """Refuse a batch with the same sequences as an earlier batch whose transaction has ended.

        The new batch is not a copy of the earlier one. A client that aborts unacknowledged batches
        may continue from the last acknowledged sequence with other records (decision 0076).
        """
        if header.is_transactional:
            # librdkafka reuses sequences of an aborted batch that it got no answer to.
            begun_at = self.transactions.open.get(header.producer_id)
            if begun_at is None or known.base_offset < begun_at:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id} sent sequence {known.base_sequence} again, "
                    "which was written in a transaction that has ended",
                )

    def _check_awaited(self, header: BatchHeader) -> None:
        producer_epoch, sequence = self.awaited.get(header.producer_id, NOTHING_AWAITED)
        if producer_epoch > header.producer_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {header.producer_epoch} of producer {header.producer_id} is older than "
                f"epoch {producer_epoch}, whose refused batch has not been sent again",
            )
        if producer_epoch == header.producer_epoch and sequence != header.base_sequence:
            raise self._gap(header, sequence)

    def note_refused(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Record a refused batch, which must be appended before the producer's later batches."""
        self.await_first(producer_id, producer_epoch, sequence)
        next_one = self.awaited.get(producer_id, NOTHING_AWAITED)
        if not self._may_begin_anywhere(producer_id):
            producer = self.producers[producer_id]
            if producer_epoch < producer.producer_epoch:
                # The producer was fenced, so this batch will not be sent again.
                return
            is_new = producer_epoch > producer.producer_epoch
            last = NO_BATCH if is_new else producer.batches[-1]
            next_one = producer_epoch, (last.last_sequence + 1) & SEQUENCE_MAX
        if next_one == (producer_epoch, sequence):
            self._refused_next.note(producer_id, producer_epoch, sequence)
        else:
            self._refused_next.note_behind(producer_id)

    def await_first(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Record a refused first batch, which an unknown producer must repeat before any other."""
        if self._may_begin_anywhere(producer_id):
            note_refused(self.awaited, producer_id, producer_epoch, sequence)

    def _may_begin_anywhere(self, producer_id: int) -> bool:
        producer = self.producers.get(producer_id)
        return producer is None or producer.batches[-1] == UNKNOWN_BATCH

    def check_transaction(self, header: BatchHeader) -> None:
        """Refuse a batch that does not fit the producer's open transaction, if there is one.

        Consumers match markers by producer id only. So a batch of a newer epoch must not precede
        the marker of the old transaction, or consumers would take it for a part of the old
        transaction.
        """
        if header.producer_id not in self.transactions.open:
            return
        if not header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, "the batch is outside the producer's open transaction"
            )
        if header.producer_epoch > self.producers[header.producer_id].producer_epoch:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, "the producer's older transaction has not ended yet"
            )

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Refuse a batch that the broker made for a producer that has been fenced."""
        producer = self.producers.get(producer_id)
        if producer is not None and producer_epoch < producer.producer_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {producer_epoch} of producer {producer_id} is older than its present "
                f"epoch {producer.producer_epoch}",
            )

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Refuse the marker of a fenced producer, or of a coordinator that has been replaced."""
        self.check_epoch(producer_id, producer_epoch)
        known_epoch = self.coordinator_epoch(producer_id)
        if coordinator_epoch < known_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} is older than {known_epoch}",
            )

    def coordinator_epoch(self, producer_id: int) -> int:
        """Return the coordinator epoch of the producer's newest marker."""
        last = self.markers.get(producer_id)
        return NO_COORDINATOR_EPOCH if last is None else last.coordinator_epoch

    def known_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> LastMarker | None:
        """Return the producer's newest marker if it already has these epochs, so that another such
        marker would change nothing; else None."""
        last, producer = self.markers.get(producer_id), self.producers.get(producer_id)
        if last is None or producer is None or producer_id in self.transactions.open:
            return None
        is_same = (last.coordinator_epoch, producer.producer_epoch) == (
            coordinator_epoch, producer_epoch
        )  # fmt: skip
        return last if is_same else None

    def update(
        self, header: BatchHeader, base_offset: int, max_timestamp_ms: int, now_ms: int
    ) -> None:
        """Record a batch that passed `check`. `keep` or `roll_back` must follow."""
        producer_id = header.producer_id
        if producer_id not in self._before:
            self._note_before(producer_id)
            if self._may_begin_anywhere(producer_id):
                self._first[producer_id] = header.producer_epoch, header.base_sequence
        self.replay(header, base_offset, max_timestamp_ms, now_ms)

    def _note_before(self, producer_id: int) -> None:
        producer = self.producers.get(producer_id)
        self._before[producer_id] = producer and KnownProducer(
            producer.producer_epoch, producer.batches.copy(), producer.last_used_ms
        )

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: LastMarker,
        now_ms: int,
    ) -> Finished | None:
        """Record a marker that passed `check_marker`. `keep` or `roll_back` must follow."""
        if producer_id not in self._before:
            self._note_before(producer_id)
        self._markers_before.setdefault(producer_id, self.markers.get(producer_id))
        return self.replay_marker(producer_id, producer_epoch, marker, now_ms)

    def replay_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: LastMarker,
        now_ms: int,
    ) -> Finished | None:
        """Record a marker that is already in the log. Return the transaction that it ends. The
        producer's next batch must continue its sequences, unless the marker has a newer epoch."""
        self.markers[producer_id] = marker
        self.verifications.void(producer_id)
        producer = self.producers.get(producer_id)
        if producer is None:
            self.producers[producer_id] = KnownProducer(producer_epoch, [UNKNOWN_BATCH], now_ms)
        else:
            if producer.producer_epoch != producer_epoch:
                producer.producer_epoch = producer_epoch
                producer.batches = [NO_BATCH]
            producer.last_used_ms = now_ms
            self.producers.move_to_end(producer_id)
        return self.transactions.end(producer_id, marker.offset)

    def replay(
        self, header: BatchHeader, base_offset: int, max_timestamp_ms: int, now_ms: int
    ) -> None:
        """Record a batch that is already in the log."""
        if header.attributes & TRANSACTIONAL:
            self.transactions.begin(header.producer_id, base_offset)
        base_sequence = header.base_sequence
        delta = header.last_offset_delta
        last_sequence, last_offset = (base_sequence + delta) & SEQUENCE_MAX, base_offset + delta
        values = base_sequence, last_sequence, base_offset, last_offset, max_timestamp_ms
        batch = _new_batch(KnownBatch, values)
        producer = self.producers.get(header.producer_id)
        if producer is None:
            self.producers[header.producer_id] = KnownProducer(
                header.producer_epoch, [batch], now_ms
            )
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
        """Make the updates since the last call permanent, because they have been written."""
        if self._before:
            if self._first:
                for producer_id in self._first:
                    self.awaited.pop(producer_id, None)
                self._first.clear()
            for producer_id in self._markers_before:
                # The transaction has ended, so its refused batches will not be sent again.
                self.awaited.pop(producer_id, None)
            self._before.clear()
            self._markers_before.clear()
            self.transactions.keep()
            if len(self.producers) > self.count_max:
                self._forget_oldest(len(self.producers) - self.count_max)

    def _forget_oldest(self, count: int) -> None:
        """Forget the least recently used producers. They can write again without being known."""
        open_ids = self.transactions.open
        silent = (one for one in self.producers if one not in open_ids)
        for producer_id in list(islice(silent, count)):
            del self.producers[producer_id]
            self.markers.pop(producer_id, None)

    def roll_back(self) -> None:
        """Revert the updates since the last `keep`, because they could not be written."""
        for producer_id, producer in self._before.items():
            if producer is None:
                del self.producers[producer_id]
            else:
                self.producers[producer_id] = producer
        for producer_id, marker in self._markers_before.items():
            if marker is None:
                del self.markers[producer_id]
            else:
                self.markers[producer_id] = marker
        for producer_id, (producer_epoch, sequence) in self._first.items():
            self.await_first(producer_id, producer_epoch, sequence)
        self._before.clear()
        self._first.clear()
        self._markers_before.clear()
        self.transactions.roll_back()

    def expire(self, now_ms: int, set_ahead_ms: int = 0) -> int:
        """Forget producers that were unused for longer than the expiration. Returns how many.

        `set_ahead_ms` is the time by which the clock was set ahead since the last call. It is no
        unused time, so a producer that was used before the change stays this much longer.
        """
        for producer in self.producers.values() if set_ahead_ms else ():
            producer.last_used_ms += set_ahead_ms
        silent = []
        for producer_id, producer in self.producers.items():
            if now_ms - producer.last_used_ms <= self.expiration_ms:
                break
            if producer_id not in self.transactions.open:
                silent.append(producer_id)
        for producer_id in silent:
            del self.producers[producer_id]
            self.markers.pop(producer_id, None)
        return len(silent)

    def active(self) -> list[ActiveProducer]:
        """Return every remembered producer."""
        found = []
        for producer_id, producer in self.producers.items():
            marker = self.markers.get(producer_id)
            _, last_sequence, _, _, timestamp_ms = producer.batches[-1]
            found.append(
                ActiveProducer(
                    producer_id,
                    producer.producer_epoch,
                    last_sequence,
                    timestamp_ms if marker is None else max(timestamp_ms, marker.timestamp_ms),
                    -1 if marker is None else marker.coordinator_epoch,
                    self.transactions.open.get(producer_id, -1),
                )
            )
        return found
