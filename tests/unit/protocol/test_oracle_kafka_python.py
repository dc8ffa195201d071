"""Our schemas, encoder and decoder, compared with those of kafka-python 3.

kafka-python compiles Kafka's own JSON definitions at import, so agreement with it is agreement with
Kafka.
"""

import warnings
from importlib import import_module
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages import headers
from protocol.messages.api import ApiKey
from protocol.messages.cluster import ApiVersionsResponse
from protocol.types import ZERO_UUID
from protocol.wire.schema import Field, Message, Struct
from tests.unit.protocol.definitions import assert_declared_alike, is_added
from tests.unit.protocol.examples import SEED, Examples, kafkas_classes

with warnings.catch_warnings():
    # kafka-python compiles its schemas at import, with functions that Python has deprecated.
    warnings.simplefilter("ignore")
    from kafka.protocol import admin, consumer, metadata, producer, sasl
    from kafka.protocol.schemas import load_json

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

# kafka-python is a client, so it has no messages that only brokers send each other.
UNKNOWN_TO_IT = {
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.ALTER_PARTITION,
    ApiKey.ENVELOPE,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
}

CLASSES = [cls for cls in kafkas_classes() if cls.api_key not in UNKNOWN_TO_IT]
NAMES = [cls.__name__ for cls in CLASSES]


def their_class(cls: type[Message]) -> Any:
    """Return kafka-python's class of the same name."""
    found = find_their_class(cls)
    assert found is not None, f"kafka-python has no {cls.__name__}"
    return found


def find_their_class(cls: type[Message]) -> Any:
    for package in (producer, consumer, metadata, admin, sasl):
        if (found := getattr(package, cls.__name__, None)) is not None:
            return found
    return None


def is_bits(field: Field, holder: type) -> bool:
    """Return True for authorised operations: we use a number, and kafka-python mostly uses a set of
    bits."""
    return (
        field.name.endswith("authorized_operations")
        and field.kind == "int32"
        and not holder.__name__.startswith("DescribeTopicPartitions")
    )


def bits(value: int) -> set[int] | None:
    """Return kafka-python's set for such a number, or None if the operations were not requested."""
    return {bit for bit in range(32) if value >> bit & 1} if value != -(2**31) else None


def their_name(field: Field, holder: type) -> str:
    """Return the name of a field in kafka-python."""
    return "authorized_operations" if is_bits(field, holder) else field.name


def to_theirs(value: Struct, target: Any, version: int) -> Any:
    """Return the same values in kafka-python's containers."""
    values = {}
    for field in value.fields:
        if is_added(field) or not field.since <= version <= field.until:
            continue
        content = getattr(value, field.name)
        if isinstance(field.element, type) and content is not None:
            inner = target._struct.fields[field.name].data_class
            if field.kind == "array":
                content = [to_theirs(item, inner, version) for item in content]
            else:
                content = to_theirs(content, inner, version)
        if field.tag is not None and content == field.new_default():
            continue
        is_set = is_bits(field, type(value))
        values[their_name(field, type(value))] = bits(content) if is_set else content
    return target(version=version, **values)


def assert_same(ours: Struct, theirs: Any, version: int, path: str) -> None:
    """Compare our message with what kafka-python decoded from its bytes. It ignores the fields that
    we have added."""
    for field in ours.fields:
        if is_added(field) or not field.since <= version <= field.until:
            continue
        mine, other = getattr(ours, field.name), getattr(theirs, their_name(field, type(ours)))
        where = f"{path}.{field.name} v{version} MILLRACE_SEED={SEED}"
        if field.tag is not None and other is None:
            other = field.new_default()
        if isinstance(field.element, type) and mine is not None:
            mine = mine if field.kind == "array" else [mine]
            other = other if field.kind == "array" else [other]
            assert len(mine) == len(other), where
            for one, two in zip(mine, other, strict=True):
                assert_same(one, two, version, where)
        elif is_bits(field, type(ours)):
            assert bits(mine) == other, where
        elif field.kind == "uuid":
            assert mine == (other or ZERO_UUID), where
        else:
            assert mine == other, where


def drop_added(value: Struct) -> None:
    """Set the fields that we have added to their defaults, because kafka-python cannot write
    them."""
    for field in value.fields:
        if is_added(field):
            setattr(value, field.name, field.new_default())
        elif field.kind == "array" and isinstance(field.element, type):
            for item in getattr(value, field.name) or ():
                drop_added(item)


@pytest.mark.parametrize("cls", CLASSES, ids=NAMES)
def test_same_bytes_in_both_directions(cls: type[Message]) -> None:
    examples = Examples(SEED)
    target = their_class(cls)
    for version in cls.valid_versions:
        for _ in range(8):
            ours = examples.message(cls, version)
            if isinstance(ours, ApiVersionsResponse):
                # If there is an error code, kafka-python reads version 0, whatever version was
                # requested.
                ours.error_code = 0
            encoded = ours.encode(version)
            where = f"{cls.__name__} v{version} MILLRACE_SEED={SEED}"
            assert_same(ours, target.decode(encoded, version=version), version, cls.__name__)
            drop_added(ours)
            encoded = ours.encode(version)
            theirs = to_theirs(ours, target, version).encode(version=version)
            assert bytes(theirs) == encoded, where
            assert cls.decode(theirs, version) == (ours, len(encoded)), where


def test_it_has_no_class_for_what_is_left_out() -> None:
    left_out = [cls for cls in kafkas_classes() if cls.api_key in UNKNOWN_TO_IT]
    assert left_out
    assert [cls.__name__ for cls in left_out if find_their_class(cls) is not None] == []


@pytest.mark.parametrize("cls", CLASSES, ids=NAMES)
def test_declarations_equal_kafkas_own(cls: type[Message]) -> None:
    assert_declared_alike(cls, load_json(cls.__name__))


@pytest.mark.parametrize("cls", CLASSES, ids=NAMES)
def test_frames_with_headers_equal_theirs(cls: type[Message]) -> None:
    target = their_class(cls)
    for version in cls.valid_versions:
        ours = cls()
        theirs = to_theirs(ours, target, version)
        if cls.__name__.endswith("Request"):
            theirs.with_header(correlation_id=77, client_id="mill-1")
            mine = headers.encode_request(ours, version, 77, "mill-1")
        else:
            theirs.with_header(correlation_id=77)
            mine = headers.encode_response(ours, version, 77, cls.api_key)
        assert mine == bytes(theirs.encode(header=True, framed=True))
        frame = memoryview(mine)[4:]
        if cls.__name__.endswith("Request"):
            header, position = headers.decode_request_header(frame)
            assert header == headers.RequestHeader(
                request_api_key=cls.api_key,
                request_api_version=version,
                correlation_id=77,
                client_id="mill-1",
            )
        else:
            correlation_id, position = headers.decode_response_header(frame, cls.api_key, version)
            assert correlation_id == 77
        assert cls.decode(frame, version, position) == (ours, len(frame))


def test_error_codes_equal_theirs() -> None:
    errors = import_module("kafka.errors")
    theirs = {
        error.errno: error
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, Exception) and hasattr(error, "errno")
    }
    # kafka-python differs from Kafka here: Java's CorruptRecordException is retriable, and
    # UnknownLeaderEpochException does not ask for new metadata.
    differing = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_LEADER_EPOCH}
    for code in set(ErrorCode) - differing:
        error = theirs[int(code)]
        assert code.retriable == bool(getattr(error, "retriable", False)), code
        assert code.refreshes_metadata == bool(getattr(error, "invalid_metadata", False)), code
