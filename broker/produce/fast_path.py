"""The fast path for a Produce request that resembles the request before it.

The small requests of a producer differ only in correlation id and batch. Header, acks, topic and
partition are the same bytes each time. So a connection keeps its last such request as a
`ProduceTemplate`. The template has the position of the batch, the bytes before it, and the encoded
answer with three values to fill in. If the next frame begins with the same bytes, the frame is not
decoded, and its answer is not encoded field by field. Only successful requests take the fast path.
If anything else happens, `start` returns False before it has changed anything. The request then
takes the normal path, which handles every error.

When you add a reason to refuse a request to `produces`, check that `append_quick` raises for such a
request too. `tests/unit/broker/produce/test_fast_path.py` compares the two paths.
"""

from __future__ import annotations

from struct import Struct as Packed
from struct import error as StructError
from typing import Protocol

from broker.metrics.times import ApiTimes, RequestTiming
from broker.produce.pending import Parking, PartitionAppend, PendingProduce, offset_key_of, refuse
from broker.produce.verification import NO_PROOFS
from broker.replicas.replica import Replica
from broker.sessions.call import Call, RequestingSession
from broker.sessions.pipeline import Slot
from broker.storage.errors import RecordsUnseen
from broker.storage.outcomes import AppendResult
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
_PAUSE = Packed(">i")
_MARK = Packed(">qqq")
_MARKS = (0x7EADBEE1_01020301, 0x7EADBEE2_01020302, 0x7EADBEE3_01020303)
"""The placeholders for the base offset, the append time and the log start offset. They are encoded
into the answer of a template, in order to find the positions of the three values."""

_TAGS = b"\0\0\0"
"""The encoded tagged fields of the partition, the topic and the request. There are none in each of
them."""


class ProduceTemplate:
    """The bytes that are the same in all small Produce requests of a connection, and in their
    answers."""

    __slots__ = ("answer", "client_id", "fill", "fill_at", "head", "index", "is_flexible",
                 "is_trusted", "pause_at", "prefix", "prefix_end", "required_acks", "timeout_ms",
                 "topic", "transactional_id", "version")  # fmt: skip

    proofs = NO_PROOFS
    """No answers of other coordinators, because requests with transactional batches take the normal
    path."""

    def __init__(
        self,
        frame: memoryview,
        prefix_end: int,
        request: ProduceRequest,
        client_id: str | None,
        *,
        is_trusted: bool,
    ) -> None:
        topic = request.topic_data[0]
        self.is_trusted = is_trusted
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
        # The pause is the last field of the answer, before the tagged fields.
        self.pause_at = len(self.answer) - _PAUSE.size - self.is_flexible
        self.client_id = client_id
        self.fill = Packed(">qqq" if version >= _LOG_START_SINCE else ">qq")

    def fits(self, frame: memoryview) -> bool:
        """Return True if the frame has the template's bytes before the batch, except for the
        correlation id."""
        return (
            frame[:_KEY_AND_VERSION_BYTES] == self.head
            and frame[_CORRELATION_END : self.prefix_end] == self.prefix
        )

    def batch_in(self, frame: memoryview) -> memoryview | None:
        """Return the batch of a frame for which `fits` is true.

        Return None if the length before the batch or the bytes behind it are not as expected.
        """
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
    """A Produce request on the fast path, from the append to its answer."""

    __slots__ = ("_parking", "appended", "frame_start", "replica", "session", "slot",
                 "template")  # fmt: skip

    _parking: Parking
    """The object with which this request is parked. It is not set before the request must wait."""

    def __init__(
        self,
        session: RequestingSession,
        slot: Slot,
        frame: memoryview,
        template: ProduceTemplate,
        replica: Replica,
        appended: AppendResult,
    ) -> None:
        self.session = session
        self.slot = slot
        self.frame_start = bytes(frame[:_CORRELATION_END])
        self.template = template
        self.replica = replica
        self.appended = appended

    def settle(self, parking: Parking) -> None:
        """Answer the request if its batch is acknowledged, else park the request.

        The caller has written the batch.
        """
        end_offset = self.appended.last_offset + 1
        template = self.template
        key = offset_key_of(self.replica, template.required_acks)
        if end_offset <= key.mark:
            self.complete()
            return
        self._parking = parking
        parking.count += 1
        parking.waits.await_(key, end_offset, self, parking.deadline_ms(template.timeout_ms))

    def reached(self) -> None:
        self._parking.count -= 1
        self.complete()

    def lost(self, code: ErrorCode) -> None:
        self._parking.count -= 1
        pending = self.as_pending()
        refuse(pending.appended[0].answer, ApiError(code))
        pending.complete()

    def complete(self) -> None:
        """Send the answer of a successful request, unless the connection is closed."""
        session = self.session
        if session.is_closed:
            return
        if self.slot.timing is not None:
            self.slot.timing.ready()
        template, appended = self.template, self.appended
        answer = bytearray(template.answer)
        answer[4:8] = self.frame_start[4:]
        offsets = (
            appended.base_offset, appended.log_append_time_ms, self.replica.log.log_start_offset
        )  # fmt: skip
        template.fill.pack_into(answer, template.fill_at, *offsets[: template.fill.size // 8])
        if self.slot.charge is not None:
            pause_ms = self.slot.charge.settle_produce(session, template.client_id)
            _PAUSE.pack_into(answer, template.pause_at, pause_ms)
        self.slot.answer = (answer,)
        session.answered()

    def as_pending(self) -> PendingProduce:
        """Return the request in the form of the normal path, which can report an error."""
        template = self.template
        version = self.frame_start[3]
        (correlation_id,) = _LENGTH.unpack_from(self.frame_start, 4)
        call = Call(self.session, self.slot, _PRODUCE, version, correlation_id, template.client_id)
        pending = PendingProduce(
            call, ProduceRequest(acks=template.required_acks, timeout_ms=template.timeout_ms)
        )
        one = PartitionProduceResponse(
            index=template.index,
            base_offset=self.appended.base_offset,
            log_append_time_ms=self.appended.log_append_time_ms,
            log_start_offset=self.replica.log.log_start_offset,
        )
        pending.response.responses.append(
            TopicProduceResponse(name=template.topic, partition_responses=[one])
        )
        pending.appended.append(
            PartitionAppend(pending, self.replica, one, self.appended.last_offset + 1)
        )
        return pending


class QuickAppender(Protocol):
    """Appends the batches of quick requests, and answers or parks the requests (`Produces`)."""

    def append_quick(
        self, template: ProduceTemplate, batch: memoryview, header: BatchHeader
    ) -> tuple[Replica, AppendResult]:
        """Stage one batch. Return its partition and the result of the append.

        Raises ApiError, WireError or RecordsUnseen before anything has changed.
        """

    def stage(self, produce: QuickProduce) -> None:
        """Add a request with a staged batch. It is answered or parked when the batch is written."""


class QuickProduces:
    """Starts Produce requests on the fast path. All sessions share one object."""

    def __init__(self, produces: QuickAppender, times: ApiTimes) -> None:
        self._produces = produces
        self._times = times

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, template: ProduceTemplate
    ) -> bool:
        """Stage the batch of a frame that fits the template of its connection.

        Return False if the request must take the normal path. Nothing has changed in this case.
        """
        times = self._times
        if not (times.count + 1) & times.mask:
            # If this method returns False, the normal path continues this timing.
            slot.timing = RequestTiming(times, 0)
        batch = template.batch_in(frame)
        if batch is None:
            return False
        try:
            header = read_header(batch)
            if header.attributes & TRANSACTIONAL:
                return False
            done = self._produces.append_quick(template, batch, header)
        except (ApiError, WireError, RecordsUnseen):
            return False
        times.count += 1
        self._produces.stage(QuickProduce(session, slot, frame, template, *done))
        session.has_staged = True
        if slot.timing is not None:
            slot.timing.handled()
        return True


def template_of(
    frame: memoryview, request: ProduceRequest, is_trusted: bool = True
) -> ProduceTemplate | None:
    """Return a template made from this request; None if such requests need the normal path.

    `is_trusted` is as in `batch_validator.Terms`.
    """
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
    # If the frame ends with tagged fields that are not empty, the batch is not at the expected
    # position.
    if frame[end:] != _TAGS[: len(frame) - end] or frame[prefix_end : end - size] != length:
        return None
    header, header_end = decode_request_header(frame)
    if header_end >= prefix_end:
        return None
    return ProduceTemplate(frame, prefix_end, request, header.client_id, is_trusted=is_trusted)


def _pattern(topic: str, index: int, version: int) -> tuple[bytes, int]:
    """Return the encoded answer of a successful request, and the position of the three values in
    it."""
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
    # Search from the end, because the topic name in front of the placeholders can contain any
    # bytes.
    return answer, answer.rindex(marks)
