"""The validation and staging of client batches, the same for every way a request is decoded.

Room: produce. `admit` finds the partition. `append` does all that a Produce does to its log before
the log is written. If either raises, the batch has had no effect.
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
"""Value of a Produce's acks: wait for every in-sync replica."""

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
"""Refusals because of the producer state in a log. They stop the producer. So a leader that may
have been replaced does not send them, because the new leader's log may have the missing batches.
"""


class Terms(Protocol):
    """The fields of a request that apply to all its batches."""

    @property
    def required_acks(self) -> int:
        """0, 1 or -1."""

    @property
    def version(self) -> int:
        """The version of the Produce API."""

    @property
    def transactional_id(self) -> str | None:
        """The transaction of the request's transactional batches."""

    @property
    def proofs(self) -> Proofs:
        """Answers of a coordinator on another broker about these batches."""


REFUSED_MAX = 10_000
"""The most partitions whose refused batches are remembered."""


class FirstRefused:
    """By partition, the first refused batch of each producer, which must come again first.

    A producer sends its batches one after the other. If the disk refuses to create a partition, the
    first batch is refused. If the partition exists before the second batch arrives, that batch must
    not be accepted, because otherwise the first would be appended after it.
    """

    __slots__ = ("by_place",)

    def __init__(self) -> None:
        self.by_place: dict[tuple[str, int], Awaited] = {}
        """By topic and partition index."""

    def note(self, topic: str, index: int, batch: memoryview | None) -> None:
        """Record the refused batch of a producer for a partition that could not be created yet."""
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
        """Tell a new partition which refused batches must come first."""
        first = self.by_place.pop((replica.topic, replica.index), {})
        for producer_id, (producer_epoch, sequence) in first.items():
            replica.log.producer_state.note_refused(producer_id, producer_epoch, sequence)

    def topics_removed(self, names: set[str]) -> None:
        """Forget refusals of removed topics. A new topic with the same name starts without any."""
        for place in [one for one in self.by_place if one[0] in names]:
            del self.by_place[place]


class BatchValidator:
    """Validates batches and stages them."""

    def __init__(
        self, settings: InForce, metrics: Metrics, replicas: Replicas, verifier: Verifier
    ) -> None:
        self._metrics = metrics
        self._replicas = replicas
        self._verifier = verifier
        self._batch_records_max = settings.config.max_batch_records
        self.first_refused = FirstRefused()

    def admit(self, terms: Terms, topic: str, index: int) -> Replica:
        """Return the partition if this request may write to it. Raises ApiError."""
        replica = self._replicas.find(topic, index)
        if self.first_refused.by_place:
            self.first_refused.hand_over(replica)
        if replica.is_internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
        if terms.required_acks == ALL_REPLICAS and replica.state.is_under_min_isr:
            in_sync = len(replica.state.in_sync_replicas)
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{in_sync} in sync; min.insync.replicas is "
                f"{replica.log.config.min_insync_replicas}",
            )
        return replica

    def note_refusal(self, topic: str, index: int, batch: memoryview | None, code: int) -> None:
        """Record a refused batch that its producer will send again to this leader, so that later
        batches of the producer are not accepted first.
        """
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
        """Stage one batch. Raises ApiError, WireError, or RecordsUnseen if its records must be
        checked.
        """
        if header.record_count > self._batch_records_max:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{header.record_count} records; max.batch.records is {self._batch_records_max}",
            )
        if header.attributes & CODEC_BITS == ZSTD and terms.version < ZSTD_SINCE:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
        if header.attributes & TRANSACTIONAL:
            refuse_batch(self._verifier, terms.transactional_id, header, replica, terms.proofs)
        try:
            appended = replica.log.append(batch, header, replica.leader_epoch, now_ms, seen)
        except ApiError as error:
            if error.code in OF_A_PRODUCER and not self._replicas.place.may_read:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from error
            raise
        if not appended.is_duplicate:
            size_bytes = len(batch)
            self._metrics.appended(size_bytes)
            replica.bytes_in += size_bytes
        return appended
