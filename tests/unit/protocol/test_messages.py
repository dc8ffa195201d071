"""Every message in every version: round trips, the comparison with a second encoder, and malformed
bytes."""

import typing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.errors import (
    BadLength,
    BadTags,
    BufferUnderflow,
    EncodeError,
    UnknownVersion,
    WireError,
)
from protocol.messages import headers
from protocol.messages.api import (
    BETWEEN_BROKERS,
    DECLARED,
    SERVED,
    UNSERVED,
    ApiKey,
    request_class,
    response_class,
)
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.types import ZERO_UUID
from protocol.wire.limits import LIMITS
from protocol.wire.schema import CHUNK_SIZE_BYTES, Message, Struct, int8
from tests.unit.protocol import reference
from tests.unit.protocol.examples import (
    SEED,
    Examples,
    message_classes,
)

CLASSES = message_classes()
NAMES = [cls.__name__ for cls in CLASSES]


@pytest.mark.parametrize("cls", CLASSES, ids=NAMES)
def test_random_messages_survive_the_round_trip(cls: type[Message]) -> None:
    examples = Examples(SEED)
    for version in cls.valid_versions:
        for _ in range(12):
            message = examples.message(cls, version)
            encoded = message.encode(version)
            where = f"{cls.__name__} v{version} MILLRACE_SEED={SEED}: {message}"
            assert encoded == reference.encode(message, version), where
            for buffer in (encoded, bytearray(encoded), memoryview(bytearray(encoded))):
                decoded, end = cls.decode(buffer, version)
                assert decoded == message, where
                assert end == len(encoded), where


@pytest.mark.parametrize("cls", CLASSES, ids=NAMES)
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_hypothesis_messages_survive_the_round_trip(
    cls: type[Message], data: st.DataObject
) -> None:
    version = data.draw(st.sampled_from(cls.valid_versions))
    message = Examples(data.draw(st.integers(0, 2**32))).message(cls, version)
    for field in cls.fields:
        if field.kind == "string" and field.since <= version <= field.until:
            text = data.draw(st.text(max_size=200), label=field.name)
            setattr(message, field.name, text)
    prefix = data.draw(st.binary(max_size=5))
    encoded = message.encode(version)
    decoded, end = cls.decode(prefix + encoded + b"rest", version, len(prefix))
    assert (decoded, end) == (message, len(prefix) + len(encoded))


@pytest.mark.parametrize("cls", CLASSES, ids=NAMES)
def test_unknown_tagged_fields_are_skipped(cls: type[Message]) -> None:
    examples = Examples(SEED)
    for version in cls.valid_versions:
        if version < cls.flexible_from:
            continue
        for _ in range(6):
            message = examples.message(cls, version)
            encoded = reference.encode(message, version, examples.unknown_tags)
            decoded, end = cls.decode(encoded, version)
            assert decoded == message, f"v{version} MILLRACE_SEED={SEED}"
            assert end == len(encoded)


@pytest.mark.parametrize("cls", CLASSES, ids=NAMES)
def test_every_prefix_is_a_wire_error(cls: type[Message]) -> None:
    examples = Examples(SEED)
    for version in cls.valid_versions:
        encoded = examples.message(cls, version).encode(version)
        step = max(1, len(encoded) // 150)
        for length in [*range(min(len(encoded), 80)), *range(80, len(encoded), step)]:
            with pytest.raises(WireError):
                cls.decode(encoded[:length], version)


@pytest.mark.parametrize("cls", CLASSES, ids=NAMES)
def test_mutated_bytes_decode_or_are_a_wire_error(cls: type[Message]) -> None:
    examples = Examples(SEED)
    pick = examples.random
    for version in cls.valid_versions:
        encoded = examples.message(cls, version).encode(version)
        for _ in range(200 // len(cls.valid_versions) + 20):
            mutated = bytearray(encoded)
            for _ in range(pick.choice((1, 1, 2, 5)) if mutated else 0):
                mutated[pick.randrange(len(mutated))] = pick.choice((0, 1, 0x7F, 0x80, 0xFF, 0x40))
            try:
                decoded, end = cls.decode(mutated, version)
            except WireError:
                continue
            assert end <= len(mutated)
            assert len(repr(decoded)) < 200 * len(mutated) + 5000


@pytest.mark.parametrize("cls", CLASSES, ids=NAMES)
def test_null_is_refused_where_the_schema_forbids_it(cls: type[Message]) -> None:
    for version in cls.valid_versions:
        for field in cls.fields:
            if field.kind not in ("string", "bytes", "array") or field.nullable_in(version):
                continue
            if not field.in_version(version) or field.tag is not None:
                continue
            message = cls()
            setattr(message, field.name, None)
            with pytest.raises(EncodeError):
                message.encode(version)
            # Our encoder refuses the null, so the second encoder writes it.
            with pytest.raises(WireError):
                cls.decode(reference.encode(message, version), version)


def test_annotations_say_none_where_null_is_possible() -> None:
    seen: set[type[Struct]] = set()
    todo: list[type[Struct]] = list(CLASSES)
    while todo:
        cls = todo.pop()
        if cls in seen:
            continue
        seen.add(cls)
        hints = typing.get_type_hints(cls)
        for field in cls.fields:
            if isinstance(field.element, type):
                todo.append(field.element)
            if field.kind == "records":
                continue
            optional = type(None) in typing.get_args(hints[field.name])
            is_left_out = field.kind == "struct" and field.tag is not None
            expected = field.nullable is not None or is_left_out
            assert optional == expected, f"{cls.__name__}.{field.name}"
    assert len(seen) > 80


KNOWN_BEYOND_OFFERED = {
    ApiKey.PRODUCE: range(3, 10),
    ApiKey.FETCH: range(4, 19),
    ApiKey.ADD_PARTITIONS_TO_TXN: range(5),
}
"""The APIs whose classes have other versions than those that clients are offered."""


def test_the_table_of_versions_agrees_with_the_classes() -> None:
    for key in DECLARED:
        for cls in (request_class(key), response_class(key)):
            assert cls.api_key == key
            assert cls.flexible_from == key.flexible_from
            assert cls.valid_versions == KNOWN_BEYOND_OFFERED.get(key, key.valid_versions)
            if key in BETWEEN_BROKERS:
                assert set(BETWEEN_BROKERS[key]) <= set(cls.valid_versions)
    assert set(SERVED) | UNSERVED == set(DECLARED)
    assert not set(SERVED) & UNSERVED
    assert all(SERVED[key] == key.valid_versions for key in SERVED)
    assert request_class(18) is request_class(ApiKey.API_VERSIONS)


def test_what_is_not_known_is_unknown_version() -> None:
    for key in (-1, 7, 71, 30000):
        with pytest.raises(UnknownVersion):
            request_class(key)
    for cls, version in [(CLASSES[0], 2), (CLASSES[0], 10), (CLASSES[0], -1)]:
        with pytest.raises(UnknownVersion):
            cls.decode(b"", version)
        with pytest.raises(UnknownVersion):
            cls().encode(version)


def test_values_that_a_version_cannot_carry_are_refused_or_dropped() -> None:
    with pytest.raises(EncodeError, match="isolation_level"):
        ListOffsetsRequest(isolation_level=1).encode(1)
    old = MetadataResponse(cluster_id="kept out").encode(1)
    assert MetadataResponse.decode(old, 1)[0] == MetadataResponse()


def test_numbers_out_of_range_are_an_encode_error() -> None:
    nothing: Any = None
    for bad in (
        ProduceRequest(acks=40000),
        ProduceRequest(timeout_ms=nothing),
        ProduceRequest(topic_data=[nothing]),
        FindCoordinatorRequest(key="\ud800"),
    ):
        with pytest.raises(EncodeError):
            bad.encode(3)
    with pytest.raises(EncodeError):
        FindCoordinatorRequest(key="x" * 40000).encode(0)


def test_structs_are_plain_data() -> None:
    one, other = MetadataRequest(topics=[]), MetadataRequest()
    assert one == other
    assert one.topics is not None
    one.topics.append(MetadataRequestTopic(name="logs.access"))
    assert one != other
    assert MetadataRequest().topics == []
    assert one != object()
    assert "allow_auto_topic_creation=True" in repr(one)
    assert MetadataRequestTopic().topic_id == ZERO_UUID
    untyped: Any = MetadataRequest
    with pytest.raises(TypeError):
        untyped(topic=[])
    with pytest.raises(AttributeError):
        untyped().topic = []
    with pytest.raises(TypeError):
        hash(one)


def test_chunks_keep_regions_and_large_records_apart() -> None:
    class Region:
        """A part of a file of which only the length matters."""

        def __len__(self) -> int:
            return 5000

    region, large, small = Region(), memoryview(bytes(CHUNK_SIZE_BYTES)), b"small"
    partitions = [PartitionData(records=records) for records in (region, small, large, None)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    for version in FetchResponse.valid_versions:
        chunks = response.encode_chunks(version)
        assert [type(chunk) for chunk in chunks] == [bytes, Region, bytes, memoryview, bytes]
        assert chunks[1] is region
        assert chunks[3] is large
        joined = b"".join(bytes(5000) if chunk is region else chunk for chunk in chunks)
        partitions[0].records = bytes(5000)
        assert joined == response.encode(version)
        partitions[0].records = region
        with pytest.raises(EncodeError):
            response.encode(version)
        with pytest.raises(EncodeError):
            headers.encode_response(response, version, 1, ApiKey.FETCH)
        framed = headers.encode_response_chunks(response, version, 1, ApiKey.FETCH)
        assert int.from_bytes(framed[0][:4], "big") + 4 == sum(map(len, framed))


def test_a_string_is_no_longer_than_every_version_can_carry() -> None:
    for version in (3, 4):
        for size in (0x7FFF, 0x8000):
            text = "x" * size
            request = FindCoordinatorRequest(key=text)
            if version >= 4:
                request = FindCoordinatorRequest(coordinator_keys=[text])
            data = request.encode(version)
            if size == 0x7FFF:
                assert FindCoordinatorRequest.decode(data, version)[0] == request
            else:
                with pytest.raises(
                    BadLength, match="has 32768 bytes, but a string has at most 32767"
                ):
                    FindCoordinatorRequest.decode(data, version)


def test_counts_are_bounded_however_small_the_elements_are() -> None:
    many = (LIMITS.element_count_max + 2).to_bytes(4, "big")
    with pytest.raises(BadLength, match="250002 elements"):
        MetadataRequest.decode(many + bytes(2 * LIMITS.element_count_max + 4), 1)
    # Nested arrays share one allowance: here 26 resources ask for 9,999 empty names each.
    resource = DescribeConfigsResource(configuration_keys=[""] * 9_999)
    allowed = DescribeConfigsRequest(resources=[resource] * 25).encode(4)
    assert len(DescribeConfigsRequest.decode(allowed, 4)[0].resources) == 25
    with pytest.raises(BadLength, match="at most"):
        DescribeConfigsRequest.decode(
            DescribeConfigsRequest(resources=[resource] * 26).encode(4), 4
        )


def test_numbers_share_one_allowance_as_well() -> None:
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=list(range(25_000)))
    allowed = OffsetFetchRequest(group_id="g", topics=[topic] * 10).encode(5)
    assert len(OffsetFetchRequest.decode(allowed, 5)[0].topics or []) == 10
    with pytest.raises(BadLength, match="partition_indexes has 25000 elements, expected at most 0"):
        OffsetFetchRequest.decode(
            OffsetFetchRequest(group_id="g", topics=[topic] * 11).encode(5), 5
        )


def test_more_elements_than_bytes_are_refused_before_they_are_made() -> None:
    for version, count in ((1, "0000c350"), (9, "d18603")):
        with pytest.raises(BufferUnderflow, match="50000 elements"):
            MetadataRequest.decode(bytes.fromhex(count) + bytes(1000), version)


def test_a_tagged_field_must_fill_its_size() -> None:
    whole = FetchRequest(cluster_id="abc").encode(12)
    assert whole.endswith(b"\x01\x00\x04\x04abc")
    for size in (b"\x03", b"\x05"):
        with pytest.raises(BadTags):
            FetchRequest.decode(whole[:-5] + size + whole[-4:] + b"rest", 12)


def test_a_tagged_struct_at_its_defaults_is_left_out() -> None:
    def encoded(leader: LeaderIdAndEpoch | None) -> bytes:
        partition = PartitionData(current_leader=leader, records=b"")
        topic = FetchableTopicResponse(topic="t", partitions=[partition])
        return FetchResponse(responses=[topic]).encode(12)

    assert encoded(LeaderIdAndEpoch()) == encoded(None)
    assert encoded(LeaderIdAndEpoch(leader_id=1)) != encoded(None)


def test_tags_are_written_in_ascending_order_however_they_are_declared() -> None:
    class Disorder(Message, api_key=-1, versions=(0, 0), flexible=0):
        """A message whose tags are declared in reverse order."""

        last: int = int8(tag=9)
        first: int = int8(tag=2)

    assert Disorder(last=1, first=2).encode(0) == bytes.fromhex("02 0201 02 0901 01")
    assert Disorder.decode(bytes.fromhex("02 0901 01 0201 02"), 0)[0] == Disorder(last=1, first=2)


def test_records_are_slices_of_the_frame() -> None:
    frame = bytearray(
        ProduceRequest(
            topic_data=[
                TopicProduceData(
                    name="t", partition_data=[PartitionProduceData(index=0, records=b"batch")]
                )
            ]
        ).encode(9)
    )
    request, _ = ProduceRequest.decode(frame, 9)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[:] = b"patch"
    assert b"patch" in frame
