"""A Produce request whose answer is ready but must wait.

Room: produce. The request waits once for each partition it has written to. It is answered when the
last of these waits has ended. Each wait ends with its own error code.
"""

from __future__ import annotations

from broker.produce.refusing import refuse
from broker.produce.verification import NO_PROOFS
from broker.purgatory import OffsetKey, Purgatory
from broker.replicas.replica import Replica
from broker.sessions.call import Call
from broker.world import Clock
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from protocol.wire.batch_header import TRANSACTIONAL
from protocol.wire.records import read_header

LEADER_ALONE = 1
"""Value of a Produce's acks: wait only for the leader's own disk."""

SYNC_MS_MIN = 1_000
"""The minimum time that a Produce waits for the sync. A client's timeout is meant for followers,
and Kafka, which does not wait for a sync on one replica, accepts 0 and -1. A client that got a
timeout error would send the batch again.
"""


class Parking:
    """The place where Produce requests wait."""

    __slots__ = ("_clock", "count", "waits")

    def __init__(self, waits: Purgatory, clock: Clock) -> None:
        self.waits = waits
        self._clock = clock
        self.count = 0
        """Number of waiting requests."""

    def deadline_ms(self, timeout_ms: int) -> int:
        """Return the deadline of a request that begins to wait now."""
        return self._clock.monotonic_ms() + max(timeout_ms, SYNC_MS_MIN)


def line_of(replica: Replica, required_acks: int) -> OffsetKey:
    """Return the queue in which to wait for these `acks`."""
    return replica.durable if required_acks == LEADER_ALONE else replica.committed


class PartitionAppend:
    """What a request has appended to one partition; waits for its acknowledgement."""

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
        """The leader epoch in which it was appended."""

    def reached(self) -> None:
        self.pending.wait_ended()

    def lost(self, code: ErrorCode) -> None:
        refuse(self.answer, ApiError(code))
        self.pending.wait_ended()


class PendingProduce:
    """A Produce whose answer is ready but must wait."""

    __slots__ = ("_open_count", "_parking", "appended", "call", "has_two_producers", "proofs",
                 "required_acks", "response", "timeout_ms", "transactional_id",
                 "version")  # fmt: skip

    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self.call = call
        self.version = call.version
        self.required_acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.transactional_id = request.transactional_id
        self.has_two_producers = request.transactional_id is not None and has_two_producers(request)
        self.proofs = NO_PROOFS
        self.response = ProduceResponse()
        self.appended: list[PartitionAppend] = []
        self._open_count = 0
        """Number of waits that have not ended."""
        self._parking: Parking | None = None

    def settle(self, parking: Parking) -> None:
        """After the appended batches are written: answer the request, or let it wait."""
        if self.required_acks == 0:
            self._end_silently()
            return
        # One extra wait, so that it is not answered while its waits are still being added.
        self._open_count = 1 + len(self.appended)
        deadline_ms = parking.deadline_ms(self.timeout_ms)
        for one in self.appended:
            if one.replica.leads_in(one.leader_epoch):
                line = line_of(one.replica, self.required_acks)
                parking.waits.await_(line, one.end_offset, one, deadline_ms)
            else:
                one.lost(one.replica.why_lost)
        if self._open_count > 1:
            parking.count += 1
            self._parking = parking
        self.wait_ended()

    def _end_silently(self) -> None:
        """Send no answer. With acks=0, closing the connection tells the client of a refusal."""
        for topic in self.response.responses:
            for answer in topic.partition_responses:
                if answer.error_code:
                    code = ErrorCode(answer.error_code).name
                    self.call.hang_up(f"produce without acks refused: {topic.name}: {code}")
                    return
        self.call.answer_nothing()

    def wait_ended(self) -> None:
        """Count down the waits. The last one sends the answer."""
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
        """Return itself. `QuickProduce` has the same method, which converts it."""
        return self


def has_two_producers(request: ProduceRequest) -> bool:
    """Return True if a request has transactional batches of more than one producer id.

    A transactional id has only one producer. Without transactions this is normal: a producer that
    got a new id repeats older batches under their old id.
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
