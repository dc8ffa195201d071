"""A Produce request that waits for the acknowledgement of its batches before it is answered.

The request waits once for each partition to which it has appended. Each wait can end with its own
error code. The request is answered when the last wait has ended.
"""

from __future__ import annotations

from broker.produce.verification import NO_PROOFS
from broker.purgatory import OffsetKey, Purgatory
from broker.replicas.replica import Replica
from broker.sessions.call import Call
from broker.storage.errors import InvalidRecords
from broker.world import Clock
from protocol.errors import ApiError, BufferUnderflow, ErrorCode, UnsupportedMagic, WireError
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from protocol.wire.batch_header import TRANSACTIONAL
from protocol.wire.records import read_header

LEADER_ALONE = 1
"""The value of `acks` with which a Produce waits only for the fsync on the leader's disk."""

SYNC_MS_MIN = 1_000
"""The shortest time in milliseconds for which a Produce waits for the fsync.

A client sets its timeout for the time that followers need. Timeouts of 0 and -1 work with Kafka on
one replica, because Kafka does not wait for an fsync. Without this minimum such a client would get
a timeout error and send its batch again.
"""


class Parking:
    """Gives parked Produce requests their deadlines, and has the number of parked requests."""

    __slots__ = ("_clock", "count", "waits")

    def __init__(self, waits: Purgatory, clock: Clock) -> None:
        self.waits = waits
        self._clock = clock
        self.count = 0
        """The number of parked requests."""

    def deadline_ms(self, timeout_ms: int) -> int:
        """Return the deadline of a request that is parked now, in monotonic milliseconds."""
        return self._clock.monotonic_ms() + max(timeout_ms, SYNC_MS_MIN)


def offset_key_of(replica: Replica, required_acks: int) -> OffsetKey:
    """Return the offset that acknowledges a batch: durable on the leader for acks=1, else
    committed."""
    return replica.durable if required_acks == LEADER_ALONE else replica.committed


class PartitionAppend:
    """The batch that a request has appended to one partition. It waits for the acknowledgement of
    the batch."""

    __slots__ = ("answer", "end_offset", "leader_epoch", "pending", "replica")

    def __init__(
        self,
        pending: PendingProduce,
        replica: Replica,
        answer: PartitionProduceResponse,
        end_offset: int,
    ) -> None:
        self.pending = pending
        self.replica = replica
        self.answer = answer
        self.end_offset = end_offset
        self.leader_epoch = replica.leader_epoch
        """The leader epoch in which the batch was appended."""

    def reached(self) -> None:
        self.pending.wait_ended()

    def lost(self, code: ErrorCode) -> None:
        refuse(self.answer, ApiError(code))
        self.pending.wait_ended()


class PendingProduce:
    """A Produce request on the normal path, from the append of its batches to its answer."""

    __slots__ = ("_open_count", "_parking", "appended", "call", "has_two_producers", "is_trusted",
                 "proofs", "required_acks", "response", "timeout_ms", "transactional_id",
                 "version")  # fmt: skip

    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self.call = call
        self.version = call.version
        self.is_trusted = call.session.login is None
        self.required_acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.transactional_id = request.transactional_id
        self.has_two_producers = request.transactional_id is not None and has_two_producers(request)
        self.proofs = NO_PROOFS
        self.response = ProduceResponse()
        self.appended: list[PartitionAppend] = []
        self._open_count = 0
        """The number of waits that have not ended."""
        self._parking: Parking | None = None

    def settle(self, parking: Parking) -> None:
        """Answer the request if all its batches are acknowledged, else park it.

        The caller has written the batches.
        """
        if self.required_acks == 0:
            self._end_silently()
            return
        # Count one extra wait, so that the request is not answered while the loop below still adds
        # waits.
        self._open_count = 1 + len(self.appended)
        deadline_ms = parking.deadline_ms(self.timeout_ms)
        for one in self.appended:
            if one.replica.leads_in(one.leader_epoch):
                key = offset_key_of(one.replica, self.required_acks)
                parking.waits.await_(key, one.end_offset, one, deadline_ms)
            else:
                one.lost(one.replica.why_lost)
        if self._open_count > 1:
            parking.count += 1
            self._parking = parking
        self.wait_ended()

    def _end_silently(self) -> None:
        """Send no answer. If a batch was refused, close the connection, because with acks=0 this is
        the only way to report an error to the client."""
        for topic in self.response.responses:
            for answer in topic.partition_responses:
                if answer.error_code:
                    code = ErrorCode(answer.error_code).name
                    self.call.hang_up(f"produce without acks refused: {topic.name}: {code}")
                    return
        self.call.answer_nothing()

    def wait_ended(self) -> None:
        """End one of the request's waits. Send the answer if it was the last wait."""
        self._open_count -= 1
        if self._open_count:
            return
        if self._parking is not None:
            self._parking.count -= 1
        self.complete()

    def complete(self) -> None:
        """Send the answer."""
        self.call.answer(self.response)

    def as_pending(self) -> PendingProduce:
        """Return the request itself. `QuickProduce` has a method of the same name that converts its
        request."""
        return self


def has_two_producers(request: ProduceRequest) -> bool:
    """Return True if the request has transactional batches of more than one producer id.

    This is an error, because a transactional id has only one producer at a time. Batches without a
    transaction may have several producer ids: a producer with a new id sends older batches again
    under its old id.
    """
    producer_ids = set()
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                header = read_header(data.records or b"")
            except WireError:
                # This batch is refused later, when it is appended.
                continue
            if header.attributes & TRANSACTIONAL:
                producer_ids.add(header.producer_id)
    return len(producer_ids) > 1


def refuse(answer: PartitionProduceResponse, error: ApiError | WireError) -> None:
    """Write an error into the answer for one partition."""
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1
    answer.error_message = error.message if isinstance(error, ApiError) else str(error)
    if isinstance(error, ApiError):
        answer.error_code = error.code
    elif isinstance(error, (UnsupportedMagic, BufferUnderflow)):
        answer.error_code = ErrorCode.INVALID_RECORD
    else:
        answer.error_code = ErrorCode.CORRUPT_MESSAGE
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in error.record_errors
        ]
