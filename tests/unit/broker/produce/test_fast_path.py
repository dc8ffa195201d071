"""The fast path of a Produce gives the same result as the normal path, or declines the request."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from broker.produce.fast_path import template_of
from broker.sessions.pipeline import Slot
from protocol.errors import ErrorCode, WireError
from protocol.messages.api import ApiKey
from protocol.messages.headers import decode_response_header, encode_request
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.topics import DeleteTopicsRequest
from protocol.wire.compression import Codec
from protocol.wire.records import iterate_batches, read_header, stamp_max_timestamp
from tests.harness.fuzz import mutated
from tests.harness.seed import seeded
from tests.harness.wire import batch_of, fetch_request, produce_request, read_values
from tests.sim.disk import SimDisk
from tests.unit.broker.rig import FakeSession, Rig
from tests.unit.storage.kit import NOW, batches_of

VERSIONS = range(3, 10)


class Way:
    """A broker and one connection to it. With `is_fast`, the connection may use the fast path."""

    def __init__(self, *, is_fast: bool, **settings: Any) -> None:
        self.rig = Rig(SimDisk(), **settings)
        self.rig.create("t", 2)
        self.session: Any = FakeSession()
        self.is_fast = is_fast
        self.short_count = 0

    def send(self, frame: bytes) -> Slot:
        """Deliver each frame in a separate read, as the connection does."""
        session, dispatcher = self.session, self.rig.broker.listeners.clients
        view = memoryview(bytearray(frame))
        slot = Slot(True, len(view))
        template = session.template
        is_like_last = self.is_fast and template is not None and template.fits(view)
        if is_like_last and self.rig.broker.fast_path.start(session, slot, view, template):
            self.short_count += 1
        else:
            if not is_like_last:
                session.template = None
            dispatcher.start(session, slot, view)
        if session.has_staged:
            session.has_staged = False
            self.rig.broker.parts.produces.settle()
        return slot

    def outcome(self, frame: bytes, version: int) -> Any:
        """Return the answer after a sync, or the name of the error that closes the connection."""
        try:
            slot = self.send(frame)
        except WireError as error:
            return type(error).__name__
        self.rig.flusher.sync()
        return answer_in(slot, version)

    def ends(self) -> list[int]:
        return [self.rig.broker.parts.replicas.find("t", n).log.log_end_offset for n in (0, 1)]


def answer_in(slot: Slot, version: int) -> Any:
    """Return the decoded answer, or None if there is none yet."""
    if not slot.answer:
        return slot.answer
    data = b"".join(bytes(chunk) for chunk in slot.answer)  # type: ignore[call-overload]
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    correlation_id, position = decode_response_header(data, 0, version, 4)
    response, end = ProduceResponse.decode(data, version, position)
    assert end == len(data)
    return correlation_id, response


def framed(request: ProduceRequest, version: int, correlation_id: int = 7) -> bytes:
    return encode_request(request, version, correlation_id, "quick")[4:]


@pytest.fixture
def ways() -> Iterator[tuple[Way, Way]]:
    short, long = Way(is_fast=True), Way(is_fast=False)
    yield short, long


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [-1, 1])
def test_the_same_answers_in_every_version(ways: tuple[Way, Way], version: int, acks: int) -> None:
    for number in range(6):
        batch = batch_of([bytes(number * 60)] * (number + 1))
        frame = framed(produce_request("t", batch, required_acks=acks), version, 100 + number)
        short, long = (way.outcome(frame, version) for way in ways)
        assert short == long
        assert short[0] == 100 + number
        assert short[1].responses[0].partition_responses[0].error_code == 0
    # The first request makes the template, so the other five use the fast path.
    assert (ways[0].short_count, ways[1].short_count) == (5, 0)


def test_the_short_way_tells_the_time_that_a_topic_has_stamped(ways: tuple[Way, Way]) -> None:
    for way in ways:
        way.rig.create("stamped", message_timestamp_type="LogAppendTime")
    for number in range(3):
        frame = framed(produce_request("stamped", batch_of([b"x"])), 9, number)
        short, long = (way.outcome(frame, 9) for way in ways)
        assert short == long
        stamped_ms = short[1].responses[0].partition_responses[0].log_append_time_ms
        assert stamped_ms == ways[0].rig.clock.now_ms()
    assert ways[0].short_count == 2


def test_batches_that_must_be_opened_take_the_long_way(ways: tuple[Way, Way]) -> None:
    for way in ways:
        way.rig.create("keyed", cleanup_policy="compact")
    for number in range(4):
        batch = batch_of([b"x"] * 3, key=b"k" if number % 2 else None)
        frame = framed(produce_request("keyed", batch), 9, number)
        short, long = (way.outcome(frame, 9) for way in ways)
        assert short == long
        code = short[1].responses[0].partition_responses[0].error_code
        assert code == (ErrorCode.NONE if number % 2 else ErrorCode.INVALID_RECORD)
    assert ways[0].short_count == 0


def test_both_ways_store_a_batch_in_its_topics_codec(ways: tuple[Way, Way]) -> None:
    for way in ways:
        way.rig.create("packed", compression_type="zstd")
    for number in range(4):
        batch = batch_of([b"x" * 90], codec=(Codec.NONE, Codec.GZIP)[number % 2])
        frame = framed(produce_request("packed", batch), 9, number)
        short, long = (way.outcome(frame, 9) for way in ways)
        assert short == long
        assert short[1].responses[0].partition_responses[0].base_offset == number
    # The fast path neither decompresses nor compresses a batch, so it declines these requests.
    assert ways[0].short_count == 0
    stored = []
    for way in ways:
        answer = way.rig.ask(fetch_request("packed", 0), 12)
        records = bytes(answer.responses[0].partitions[0].records)
        assert [header.codec for header, _ in iterate_batches(records)] == [Codec.ZSTD] * 4
        assert read_values(records) == [b"x" * 90] * 4
        stored.append(records)
    assert stored[0] == stored[1]


def test_both_ways_write_the_largest_timestamp_that_a_client_has_not_set(
    ways: tuple[Way, Way],
) -> None:
    for number in range(3):
        batch = batch_of([b"a", b"b"], timestamp_ms=NOW + number)
        stamp_max_timestamp(batch, -1)
        frame = framed(produce_request("t", batch), 9, number)
        short, long = (way.outcome(frame, 9) for way in ways)
        assert short == long
    assert ways[0].short_count == 0
    for way in ways:
        log = way.rig.broker.parts.replicas.find("t", 0).log
        headers = [read_header(one) for one in batches_of(log)]
        assert [one.max_timestamp for one in headers] == [NOW + 1, NOW + 2, NOW + 3]


def random_shape(chance: Random) -> dict[str, Any]:
    """Return the fields that all requests of one producer share."""
    return {
        "topic": chance.choice(("t", "t", "t", "nowhere", "__consumer_offsets")),
        "partition": chance.choice((0, 0, 1)),
        "required_acks": chance.choice((-1, 1, 1, 5)),
    }


def random_frame(chance: Random, version: int, shape: dict[str, Any]) -> bytes:
    batch = batch_of(
        [chance.choice((None, b"v", bytes(200)))] * chance.choice((1, 3)),
        producer_id=chance.choice((-1, 5)),
        producer_epoch=0,
        base_sequence=chance.choice((0, 1, 3)),
        codec=chance.choice((Codec.NONE, Codec.NONE, Codec.ZSTD)),
    )
    if chance.random() < 0.2:
        batch[chance.randrange(len(batch))] ^= 1 << chance.randrange(8)
    shape = dict(shape)
    request = produce_request(
        shape.pop("topic"), batch if chance.random() < 0.95 else None, **shape
    )
    if chance.random() < 0.05:
        request.transactional_id = "a"
    if chance.random() < 0.05:
        request.topic_data *= 2
    frame = framed(request, version, chance.randrange(2**31))
    return mutated(frame, chance) if chance.random() < 0.2 else frame


def test_whatever_comes_both_ways_agree(ways: tuple[Way, Way]) -> None:
    chance = seeded("quick produce")
    version, shape = 9, random_shape(chance)
    for _ in range(2_000):
        if chance.random() < 0.03:
            version, shape = chance.choice(VERSIONS), random_shape(chance)
        frame = random_frame(chance, version, shape)
        if frame[:2] != b"\0\0" or frame[2:4] != version.to_bytes(2, "big"):
            continue
        short, long = (way.outcome(frame, version) for way in ways)
        assert short == long
        assert ways[0].ends() == ways[1].ends()
    assert ways[0].short_count > 50


@pytest.mark.parametrize("version", VERSIONS)
def test_zstd_is_for_clients_that_can_know_it(ways: tuple[Way, Way], version: int) -> None:
    """A client that sends an older version may be unable to read the batch that it wrote
    (KIP-110)."""
    wanted = ErrorCode.NONE if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    for way in ways:
        codes = []
        for codec in (Codec.NONE, Codec.ZSTD):
            request = produce_request("t", batch_of([bytes(50)], codec=codec))
            _, response = way.outcome(framed(request, version), version)
            codes.append(response.responses[0].partition_responses[0].error_code)
        assert codes == [ErrorCode.NONE, wanted]
    assert ways[0].short_count == (version >= 7)


def like_the_last(way: Way, acks: int = 1, timeout_ms: int = 1_000) -> Slot:
    """Send two equal requests. Return the slot of the second one, which used the fast path."""
    for _ in range(2):
        request = produce_request("t", batch_of([b"x"]), required_acks=acks, timeout_ms=timeout_ms)
        slot = way.send(framed(request, 9))
    assert way.short_count == 1
    return slot


def code_in(slot: Slot) -> ErrorCode:
    _, response = answer_in(slot, 9)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def test_the_short_way_waits_for_the_sync_too(ways: tuple[Way, Way]) -> None:
    slot = like_the_last(ways[0])
    assert slot.answer is None
    ways[0].rig.flusher.sync()
    assert code_in(slot) is ErrorCode.NONE


def test_its_time_may_be_up(ways: tuple[Way, Way]) -> None:
    slot = like_the_last(ways[0])
    ways[0].rig.advance(1_000)
    assert code_in(slot) is ErrorCode.REQUEST_TIMED_OUT


def test_its_topic_may_go(ways: tuple[Way, Way]) -> None:
    slot = like_the_last(ways[0])
    rig = ways[0].rig
    rig.flusher.marked.clear()
    rig.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 4)
    assert code_in(slot) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # The template is not used after the deletion.
    again = ways[0].send(framed(produce_request("t", batch_of([b"x"]), timeout_ms=1_000,
                                                required_acks=1), 9))  # fmt: skip
    assert code_in(again) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_disk_may_refuse(ways: tuple[Way, Way]) -> None:
    way = ways[0]
    way.outcome(framed(produce_request("t", batch_of([b"x"])), 9), 9)
    way.rig.disk.refuses = lambda path, operation: operation == "write"
    slot = way.send(framed(produce_request("t", batch_of([b"x"])), 9))
    assert way.short_count == 1
    assert code_in(slot) is ErrorCode.KAFKA_STORAGE_ERROR


def test_one_in_sixteen_is_timed_and_all_are_counted(ways: tuple[Way, Way]) -> None:
    for _ in range(64):
        for way in ways:
            way.outcome(framed(produce_request("t", batch_of([b"x"])), 9), 9)
    short, long = (way.rig.broker.metrics.times_of(ApiKey.PRODUCE) for way in ways)
    assert short.count == long.count == 64
    for phase in ("queue", "local", "remote"):
        assert short.phase(phase).count == long.phase(phase).count == 4
    # Timed requests use the fast path too. Only the first request does not, because it makes the
    # template.
    assert ways[0].short_count == 63


def test_a_timed_request_that_declines_is_timed_once(ways: tuple[Way, Way]) -> None:
    for number in range(32):
        broken = batch_of([b"x"])
        broken[-1] ^= number % 2
        for way in ways:
            way.outcome(framed(produce_request("t", broken), 9), 9)
    short, long = (way.rig.broker.metrics.times_of(ApiKey.PRODUCE) for way in ways)
    assert short.count == long.count == 32
    assert short.queue.count == long.queue.count == 2
    assert short.local.count == long.local.count == 2
    counts = [way.rig.broker.metrics.bytes_in for way in ways]
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize(
    "odd",
    [
        {"acks": 0},
        {"acks": 2},
        {"transactional_id": "a"},
        {"topics": 2},
        {"partitions": 2},
        {"topics": 0},
        {"records": None},
    ],
)
def test_requests_that_have_no_template(odd: dict[str, Any]) -> None:
    data = PartitionProduceData(index=0, records=odd.get("records", batch_of([b"x"])))
    topic = TopicProduceData(name="t", partition_data=[data] * odd.get("partitions", 1))
    request = ProduceRequest(
        acks=odd.get("acks", 1),
        transactional_id=odd.get("transactional_id"),
        topic_data=[topic] * odd.get("topics", 1),
    )
    assert template_of(memoryview(framed(request, 9)), request) is None


def test_unknown_tagged_fields_have_no_template() -> None:
    request = produce_request("t", batch_of([b"x"]))
    frame = framed(request, 9)
    assert template_of(memoryview(frame), request) is not None
    tagged = frame[:-1] + b"\x01\x63\x02ab"
    decoded, _ = ProduceRequest.decode(memoryview(bytearray(tagged)), 9, 16)
    assert template_of(memoryview(tagged), decoded) is None


def test_a_name_that_looks_like_the_marks_confuses_nobody() -> None:
    way = Way(is_fast=True)
    name = "x" * 24
    way.rig.create(name)
    frame = framed(produce_request(name, batch_of([b"x"])), 9)
    offsets = [
        way.outcome(frame, 9)[1].responses[0].partition_responses[0].base_offset for _ in range(3)
    ]
    assert offsets == [0, 1, 2]
