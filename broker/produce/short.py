"""The short way of a Produce that is like the one before it.

Floor: produce. A producer's small requests differ in their correlation id and their batch; header,
acks, topic and partition are the same bytes each time. A connection therefore keeps its last such
request as a `Lane`: where its batch began, what stood before it, and the answer with three places
to fill in. The next frame that begins with the same bytes is neither decoded nor answered field by
field. Only what goes well takes this way: at the first sign of anything else `start` declines,
nothing has happened yet, and the request goes the long way, which knows every refusal.

When you add a refusal to `produces`, check that `append_quick` declines such a request.
`tests/unit/broker/produce/test_short.py` runs both ways side by side.
"""

from __future__ import annotations

from struct import Struct as Packed
from struct import error as StructError
from typing import Protocol

from broker.metrics.times import ApiTimes, Timing
from broker.produce.parked import ParkedProduce, Parking, Part, line_of
from broker.produce.refusing import refuse
from broker.produce.verification import NO_PROOFS
from broker.replicas.replica import Replica
from broker.sessions.call import Asking, Call
from broker.sessions.pipeline import Slot
from broker.storage.errors import RecordsUnseen
from broker.storage.outcomes import Appended
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.api import ApiKey
from protocol.messages.headers import decode_request_header, encode_response
from protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.wire.batch_header import TRANSACTIONAL
from protocol.wire.primitives import encode_uvarint, read_uvarint
from protocol.wire.records import BatchHeader, read_header

_PRODUCE = int(ApiKey.PRODUCE)
_FLEXIBLE_FROM = ApiKey.PRODUCE.flexible_from
_LOG_START_SINCE = 5

_KEY_AND_VERSION_BYTES = 4
_CORRELATION_END = 8
_LENGTH = Packed(">i")
_MARK = Packed(">qqq")
_MARKS = (0x7EADBEE1_01020301, 0x7EADBEE2_01020302, 0x7EADBEE3_01020303)
"""Stand for base offset, append time and log start while the answer's pattern is made."""

_TAGS = b"\0\0\0"
"""No tagged fields of the partition, of the topic, of the request."""


class Lane:
    """What stays the same from one request of a connection to the next."""

    __slots__ = ("answer", "fill", "fill_at", "head", "index", "is_flexible", "prefix",
                 "prefix_end", "required_acks", "timeout_ms", "topic", "transactional_id",
                 "version")  # fmt: skip

    proofs = NO_PROOFS
    """Transactional batches go the long way."""

    def __init__(self, frame: memoryview, prefix_end: int, request: ProduceRequest) -> None:
        topic = request.topic_data[0]
        version = self.version = frame[3]
        self.head = bytes(frame[:_KEY_AND_VERSION_BYTES])
        self.prefix = bytes(frame[_CORRELATION_END:prefix_end])
        self.prefix_end = prefix_end
        self.is_flexible = version >= _FLEXIBLE_FROM
        self.topic = topic.name
        self.index = topic.partition_data[0].index
        self.required_acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.transactional_id = request.transactional_id
        self.answer, self.fill_at = _pattern(self.topic, self.index, version)
        self.fill = Packed(">qqq" if version >= _LOG_START_SINCE else ">qq")

    def fits(self, frame: memoryview) -> bool:
        """Whether a Produce begins as the one this lane was made from, correlation id apart."""
        return (
            frame[:_KEY_AND_VERSION_BYTES] == self.head
            and frame[_CORRELATION_END : self.prefix_end] == self.prefix
        )

    def batch_in(self, frame: memoryview) -> memoryview | None:
        """The batch of a frame that fits; None when something unexpected stands around it."""
        position = self.prefix_end
        try:
            if self.is_flexible:
                size, position = read_uvarint(frame, position)
                end = position + size - 1
                is_as_expected = frame[end:] == _TAGS
            else:
                (size,) = _LENGTH.unpack_from(frame, position)
                position += _LENGTH.size
                end = position + size
                is_as_expected = end == len(frame)
        except (IndexError, StructError, WireError):
            return None
        return frame[position:end] if is_as_expected and end > position else None


class QuickProduce:
    """A request that took the short way, until its answer may leave."""

    __slots__ = ("_parking", "appended", "frame_start", "lane", "replica", "session",
                 "slot")  # fmt: skip

    _parking: Parking
    """Where it waits, once it does."""

    def __init__(
        self,
        session: Asking,
        slot: Slot,
        frame: memoryview,
        lane: Lane,
        replica: Replica,
        appended: Appended,
    ) -> None:
        self.session = session
        self.slot = slot
        self.frame_start = bytes(frame[:_CORRELATION_END])
        self.lane = lane
        self.replica = replica
        self.appended = appended

    def settle(self, parking: Parking) -> None:
        """What it has appended is written: answer it, now or when that counts."""
        end_offset = self.appended.last_offset + 1
        lane = self.lane
        line = line_of(self.replica, lane.required_acks)
        if end_offset <= line.mark:
            self.complete()
            return
        self._parking = parking
        parking.count += 1
        parking.waits.await_(line, end_offset, self, parking.deadline_ms(lane.timeout_ms))

    def reached(self) -> None:
        self._parking.count -= 1
        self.complete()

    def lost(self, code: ErrorCode) -> None:
        self._parking.count -= 1
        parked = self.as_parked()
        refuse(parked.appended[0].answer, ApiError(code))
        parked.complete()

    def complete(self) -> None:
        """Give the answer: all went well."""
        session = self.session
        if session.is_closed:
            return
        if self.slot.timing is not None:
            self.slot.timing.ready()
        lane, appended = self.lane, self.appended
        answer = bytearray(lane.answer)
        answer[4:8] = self.frame_start[4:]
        offsets = (
            appended.base_offset, appended.log_append_time_ms, self.replica.log.log_start_offset
        )  # fmt: skip
        lane.fill.pack_into(answer, lane.fill_at, *offsets[: lane.fill.size // 8])
        self.slot.answer = (answer,)
        session.answered()

    def as_parked(self) -> ParkedProduce:
        """The same as the long way has it, for all that did not go well."""
        lane = self.lane
        version = self.frame_start[3]
        (correlation_id,) = _LENGTH.unpack_from(self.frame_start, 4)
        call = Call(self.session, self.slot, _PRODUCE, version, correlation_id, None)
        parked = ParkedProduce(
            call, ProduceRequest(acks=lane.required_acks, timeout_ms=lane.timeout_ms)
        )
        one = PartitionProduceResponse(
            index=lane.index,
            base_offset=self.appended.base_offset,
            log_append_time_ms=self.appended.log_append_time_ms,
            log_start_offset=self.replica.log.log_start_offset,
        )
        parked.response.responses.append(
            TopicProduceResponse(name=lane.topic, partition_responses=[one])
        )
        parked.appended.append(Part(parked, self.replica, one, self.appended.last_offset + 1))
        return parked


class Stages(Protocol):
    """Who appends, and answers or parks what was appended (`produces`)."""

    def append_quick(
        self, lane: Lane, batch: memoryview, header: BatchHeader
    ) -> tuple[Replica, Appended]:
        """Stage one batch; an error comes before anything has changed."""

    def stage(self, produce: QuickProduce) -> None:
        """Answer it, or park it, when its batch is written."""


class QuickProduces:
    """Begins Produce requests the short way. One for all sessions."""

    def __init__(self, produces: Stages, times: ApiTimes) -> None:
        self._produces = produces
        self._times = times

    def start(self, session: Asking, slot: Slot, frame: memoryview, lane: Lane) -> bool:
        """Stage the batch of a frame that fits its lane; False: go the long way, from the start."""
        times = self._times
        if not (times.count + 1) & times.mask:
            # The long way, if it comes to that, goes on with it.
            slot.timing = Timing(times, 0)
        batch = lane.batch_in(frame)
        if batch is None:
            return False
        try:
            header = read_header(batch)
            if header.attributes & TRANSACTIONAL:
                return False
            done = self._produces.append_quick(lane, batch, header)
        except (ApiError, WireError, RecordsUnseen):
            return False
        times.count += 1
        self._produces.stage(QuickProduce(session, slot, frame, lane, *done))
        session.has_staged = True
        if slot.timing is not None:
            slot.timing.handled()
        return True


def lane_of(frame: memoryview, request: ProduceRequest) -> Lane | None:
    """The lane for requests like this one, which was served the long way; None if it has none."""
    if request.transactional_id is not None or request.acks not in (-1, 1) or frame[3] < 3:
        return None
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None
    records = request.topic_data[0].partition_data[0].records
    if not records:
        return None
    is_flexible = frame[3] >= _FLEXIBLE_FROM
    end = len(frame) - (len(_TAGS) if is_flexible else 0)
    size = len(records)
    length = encode_uvarint(size + 1) if is_flexible else _LENGTH.pack(size)
    prefix_end = end - size - len(length)
    # Tagged fields that we do not know would stand where the batch is looked for.
    if frame[end:] != _TAGS[: len(frame) - end] or frame[prefix_end : end - size] != length:
        return None
    if decode_request_header(frame)[1] >= prefix_end:
        return None
    return Lane(frame, prefix_end, request)


def _pattern(topic: str, index: int, version: int) -> tuple[bytes, int]:
    """The bytes of a good answer, and where in it base offset, append time and log start stand."""
    one = PartitionProduceResponse(
        index=index,
        base_offset=_MARKS[0],
        log_append_time_ms=_MARKS[1],
        log_start_offset=_MARKS[2],
    )
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=topic, partition_responses=[one])]
    )
    answer = encode_response(response, version, 0, _PRODUCE)
    marks = _MARK.pack(*_MARKS)[: 24 if version >= _LOG_START_SINCE else 16]
    # From behind: a topic's name stands in front of the marks and may hold anything.
    return answer, answer.rindex(marks)
