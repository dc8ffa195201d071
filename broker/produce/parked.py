"""A Produce request whose answer is made but may not leave yet.

Floor: produce. It waits in one line for each partition it has written to, and is answered when the
last of these waits has ended; each has a code of its own.
"""

from __future__ import annotations

from broker.commitments import Commitments, Waits
from broker.produce.refusing import refuse
from broker.produce.verification import NO_PROOFS
from broker.replicas.replica import Replica
from broker.sessions.call import Call
from broker.world import Clock
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from protocol.wire.batch_header import TRANSACTIONAL
from protocol.wire.records import read_header

LEADER_ALONE = 1
"""Produce's acks: the leader's own disk."""

SYNC_MS_MIN = 1_000
"""What a Produce gives the sync at least. A client's time-out is meant for followers, and Kafka,
which waits for none on one replica, takes 0 and -1; refused, the client would send it again."""


class Parking:
    """Where Produce requests wait."""

    __slots__ = ("_clock", "count", "waits")

    def __init__(self, waits: Waits, clock: Clock) -> None:
        self.waits = waits
        self._clock = clock
        self.count = 0
        """Requests that wait."""

    def deadline_ms(self, timeout_ms: int) -> int:
        """Until when a request waits that begins to do so now."""
        return self._clock.monotonic_ms() + max(timeout_ms, SYNC_MS_MIN)


def line_of(replica: Replica, required_acks: int) -> Commitments:
    """Where to wait for what `acks` asks for."""
    return replica.counted if required_acks == LEADER_ALONE else replica.committed


class Part:
    """What a request has appended to one partition; waits for that to count."""

    __slots__ = ("answer", "end_offset", "leader_epoch", "parked", "replica")

    def __init__(
        self,
        parked: ParkedProduce,
        replica: Replica,
        answer: PartitionProduceResponse,
        end_offset: int,
    ) -> None:
        self.parked = parked
        self.replica = replica
        self.answer = answer
        self.end_offset = end_offset
        self.leader_epoch = replica.leader_epoch
        """In which it was appended."""

    def reached(self) -> None:
        self.parked.part_ended()

    def lost(self, code: ErrorCode) -> None:
        refuse(self.answer, ApiError(code))
        self.parked.part_ended()


class ParkedProduce:
    """A Produce whose answer is made but may not leave yet."""

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
        self.appended: list[Part] = []
        self._open_count = 0
        """Waits that have not ended."""
        self._parking: Parking | None = None

    def settle(self, parking: Parking) -> None:
        """What it has appended is written: answer it, now or when that counts."""
        if self.required_acks == 0:
            self._end_silently()
            return
        # One more, so that it is not answered between two of its parts.
        self._open_count = 1 + len(self.appended)
        deadline_ms = parking.deadline_ms(self.timeout_ms)
        for part in self.appended:
            if part.replica.leads_in(part.leader_epoch):
                line = line_of(part.replica, self.required_acks)
                parking.waits.await_(line, part.end_offset, part, deadline_ms)
            else:
                part.lost(part.replica.why_lost)
        if self._open_count > 1:
            parking.count += 1
            self._parking = parking
        self.part_ended()

    def _end_silently(self) -> None:
        """Answer nothing; whoever is not answered learns of a refusal by its connection's end."""
        for topic in self.response.responses:
            for answer in topic.partition_responses:
                if answer.error_code:
                    code = ErrorCode(answer.error_code).name
                    self.call.hang_up(f"produce without acks refused: {topic.name}: {code}")
                    return
        self.call.answer_nothing()

    def part_ended(self) -> None:
        """One wait less; the last one lets the answer leave."""
        self._open_count -= 1
        if self._open_count:
            return
        if self._parking is not None:
            self._parking.count -= 1
        self.complete()

    def complete(self) -> None:
        """Give the answer."""
        self.call.answer(self.response)

    def as_parked(self) -> ParkedProduce:
        """Itself; a request that took the short way becomes one of these."""
        return self


def has_two_producers(request: ProduceRequest) -> bool:
    """Whether a request holds transactional batches under more than one producer id.

    One transactional id has one producer. Without transactions it is nothing unusual: a producer
    that was given a new id repeats older batches under the one they had.
    """
    producer_ids = set()
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                header = read_header(data.records or b"")
            except WireError:
                # Refused in its own place.
                continue
            if header.attributes & TRANSACTIONAL:
                producer_ids.add(header.producer_id)
    return len(producer_ids) > 1
