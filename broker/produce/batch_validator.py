"""Validates and stages the batches of clients, in the same way on the fast path and the normal
path.

`admit` finds the partition and checks that the request may write to it. `append` validates a batch
and stages it in the partition's log, but does not write the log. If either of them raises, the
batch has had no effect.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from broker.config import InForce
from broker.metrics.metrics import Metrics
from broker.produce.verification import Proofs, Verifier, refuse_batch
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.storage.known_producer import Awaited, note_refused
from broker.storage.outcomes import AppendResult, CheckedRecords
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.wire.batch_header import TRANSACTIONAL
from protocol.wire.compression import Codec
from protocol.wire.records import CODEC_BITS, BatchHeader, read_header

ALL_REPLICAS = -1
"""The value of `acks` with which a Produce waits for every in-sync replica."""

ZSTD = int(Codec.ZSTD)
ZSTD_SINCE = 7
"""The first Produce version whose clients support zstd (KIP-110)."""


OF_A_PRODUCER = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""Errors that come from the producer state of a log, and that stop the producer.

A broker does not send them if another broker can have become the leader in the meantime, because
the log of the new leader can have the missing batches.
"""


class Terms(Protocol):
    """The fields of a Produce request that apply to all its batches."""

    @property
    def required_acks(self) -> int:
        """The acknowledgement level: 0, 1 or -1."""

    @property
    def version(self) -> int:
        """The version of the Produce request."""

    @property
    def transactional_id(self) -> str | None:
        """The transactional id of the request; None without a transaction."""

    @property
    def is_trusted(self) -> bool:
        """True if the client's listener needs no login. Then the records of its batches are checked
        only in the cases that `storage/validation` names."""

    @property
    def proofs(self) -> Proofs:
        """The answers of a coordinator on another broker about the request's transactional
        batches."""


REFUSED_MAX = 10_000
"""The largest number of partitions whose refused batches are remembered."""


class FirstRefused:
    """The first refused batch of each producer in each partition, which the producer must send
    again first.

    A producer sends its batches one after the other. The first batch is refused if the disk refuses
    to create the partition. The partition can exist before the second batch arrives. This second
    batch must not be accepted, because the first one would be appended after it.
    """

    __slots__ = ("by_place",)

    def __init__(self) -> None:
        self.by_place: dict[tuple[str, int], Awaited] = {}
        """The refused batches, by topic and partition index."""

    def note(self, topic: str, index: int, batch: memoryview | None) -> None:
        """Record a batch that was refused because its partition could not be created yet."""
        try:
            header = read_header(batch) if batch else None
        except WireError:
            return
        if header is None or header.producer_id < 0:
            return
        place = topic, index
        if place not in self.by_place and len(self.by_place) >= REFUSED_MAX:
            return
        first = self.by_place.setdefault(place, {})
        note_refused(first, header.producer_id, header.producer_epoch, header.base_sequence)

    def hand_over(self, replica: Replica) -> None:
        """Pass the refused batches of a new partition to its producer state. Later batches of the
        same producers are then refused until the refused batches have come again."""
        first = self.by_place.pop((replica.topic, replica.index), {})
        for producer_id, (producer_epoch, sequence) in first.items():
            replica.log.producer_state.note_refused(producer_id, producer_epoch, sequence)

    def topics_removed(self, names: set[str]) -> None:
        """Forget the refused batches of removed topics, because a new topic can have the same
        name."""
        for place in [one for one in self.by_place if one[0] in names]:
            del self.by_place[place]


class BatchValidator:
    """Validates the batches of clients and stages them in the logs."""

    def __init__(
        self, settings: InForce, metrics: Metrics, replicas: Replicas, verifier: Verifier
    ) -> None:
        self._metrics = metrics
        self._replicas = replicas
        self._verifier = verifier
        self._batch_records_max = settings.config.max_batch_records
        self.first_refused = FirstRefused()

    def admit(self, terms: Terms, topic: str, index: int) -> Replica:
        """Return the partition if the request may write to it; raise ApiError if not."""
        replica = self._replicas.find(topic, index)
        if self.first_refused.by_place:
            self.first_refused.hand_over(replica)
        if replica.is_internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
        if terms.required_acks == ALL_REPLICAS and replica.state.is_under_min_isr:
            in_sync = len(replica.state.in_sync_replicas)
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{in_sync} replicas are in sync; min.insync.replicas"
                f" is {replica.log.config.min_insync_replicas}",
            )
        return replica

    def note_refusal(self, topic: str, index: int, batch: memoryview | None, code: int) -> None:
        """Record a refused batch that its producer will send again to this leader. Until then no
        later batch of the producer is accepted."""
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            self.first_refused.note(topic, index, batch)
        elif code == ErrorCode.NOT_ENOUGH_REPLICAS and batch:
            replica = self._replicas.get(topic, index)
            with suppress(WireError):
                header = read_header(batch)
                if replica is not None and header.producer_id >= 0:
                    replica.log.producer_state.note_refused(
                        header.producer_id, header.producer_epoch, header.base_sequence
                    )

    def append(
        self,
        terms: Terms,
        replica: Replica,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        seen: CheckedRecords | None = None,
    ) -> AppendResult:
        """Validate one batch and stage it.

        Raises ApiError or WireError if the batch is refused, and RecordsUnseen if the caller must
        first check its records and pass the result as `seen`.
        """
        if header.record_count > self._batch_records_max:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch has {header.record_count} records;"
                f" max.batch.records is {self._batch_records_max}",
            )
        if header.attributes & CODEC_BITS == ZSTD and terms.version < ZSTD_SINCE:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                "a zstd batch needs Produce version 7 or later",
            )
        if header.attributes & TRANSACTIONAL:
            refuse_batch(self._verifier, terms.transactional_id, header, replica, terms.proofs)
        try:
            appended = replica.log.append(
                batch, header, replica.leader_epoch, now_ms, seen, is_trusted=terms.is_trusted
            )
        except ApiError as error:
            if error.code in OF_A_PRODUCER and not self._replicas.place.may_read:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from error
            raise
        if not appended.is_duplicate:
            size_bytes = len(batch)
            self._metrics.bytes_in += size_bytes
            replica.bytes_in += size_bytes
        return appended
