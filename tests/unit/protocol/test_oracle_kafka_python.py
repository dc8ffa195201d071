"""kafka-python 3 as the oracle: its schemas, its encoder and its decoder against ours.

It compiles Kafka's own JSON definitions at import, so agreement here is agreement with Kafka.
"""

import re
import warnings
from importlib import import_module
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages import headers
from protocol.messages.cluster import ApiVersionsResponse
from protocol.types import ZERO_UUID
from protocol.wire.schema import VERSION_MAX, Field, Message, Struct
from tests.unit.protocol.examples import SEED, Examples, message_classes

with warnings.catch_warnings():
    # Its schemas are compiled at import, through functions that Python has deprecated.
    warnings.simplefilter("ignore")
    from kafka.protocol import admin, consumer, metadata, producer
    from kafka.protocol.schemas import load_json

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CLASSES = message_classes()
NAMES = [cls.__name__ for cls in CLASSES]

RENAMED = {
    "OffsetForLeaderEpochEndOffset": "EpochEndOffset",
    "AlterConfigsRequestConfig": "AlterableConfig",
    "AlterConfigsRequestResource": "AlterConfigsResource",
    "DescribeTransactionsTransactionState": "TransactionState",
    "ListTransactionsTransactionState": "TransactionState",
}

# Defaults in which we differ from Kafka's definitions on purpose: an error message or a
# documentation that nobody set is null, which is what Kafka's brokers send too, and lists of
# eligible leaders are empty, because Java clients fail on null.
OUR_DEFAULTS: dict[str, Any] = {
    "error_message": None,
    "documentation": None,
    "eligible_leader_replicas": [],
    "last_known_elr": [],
}


def their_class(cls: type[Message]) -> Any:
    """kafka-python's class of the same name."""
    for package in (producer, consumer, metadata, admin):
        found = getattr(package, cls.__name__, None)
        if found is not None:
            return found
    raise AssertionError(f"kafka-python has no {cls.__name__}")


def is_bits(field: Field, holder: type) -> bool:
    """Authorised operations are a number to us and mostly a set of bits to kafka-python."""
    return (
        field.name.endswith("authorized_operations")
        and field.kind == "int32"
        and not holder.__name__.startswith("DescribeTopicPartitions")
    )


def bits(value: int) -> set[int] | None:
    """The set it has for such a number; None for "not asked for"."""
    return {bit for bit in range(32) if value >> bit & 1} if value != -(2**31) else None


def their_name(field: Field, holder: type) -> str:
    """The name of a field in kafka-python."""
    return "authorized_operations" if is_bits(field, holder) else field.name


def to_theirs(value: Struct, target: Any, version: int) -> Any:
    """The same values in kafka-python's containers."""
    values = {}
    for field in value.fields:
        if not field.since <= version <= field.until:
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
    """Compare a message of ours with what kafka-python made of its bytes."""
    for field in ours.fields:
        if not field.since <= version <= field.until:
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


@pytest.mark.parametrize("cls", CLASSES, ids=NAMES)
def test_same_bytes_in_both_directions(cls: type[Message]) -> None:
    examples = Examples(SEED)
    target = their_class(cls)
    for version in cls.valid_versions:
        for _ in range(8):
            ours = examples.message(cls, version)
            if isinstance(ours, ApiVersionsResponse):
                # With an error kafka-python reads version 0, whatever was asked for.
                ours.error_code = 0
            encoded = ours.encode(version)
            where = f"{cls.__name__} v{version} MILLRACE_SEED={SEED}"
            assert_same(ours, target.decode(encoded, version=version), version, cls.__name__)
            theirs = to_theirs(ours, target, version).encode(version=version)
            assert bytes(theirs) == encoded, where
            assert cls.decode(theirs, version) == (ours, len(encoded)), where


@pytest.mark.parametrize("cls", CLASSES, ids=NAMES)
def test_declarations_equal_kafkas_own(cls: type[Message]) -> None:
    definition = load_json(cls.__name__)
    assert definition["apiKey"] == cls.api_key
    assert parse_range(definition["flexibleVersions"])[0] == cls.flexible_from
    least, most = parse_range(definition["validVersions"])
    assert least <= cls.valid_versions[0] or cls.api_key == 0
    assert cls.valid_versions[-1] <= most
    compare_fields(cls, definition["fields"], cls.valid_versions[0], cls.valid_versions[-1])


def compare_fields(cls: type[Struct], definitions: Any, first: int, last: int) -> None:
    """Every field of Kafka's that our versions have, in order, with all its properties."""
    inside = [d for d in definitions if overlaps(parse_range(d["versions"]), (first, last))]
    assert [snake(d["name"]) for d in inside] == [field.name for field in cls.fields]
    for field, definition in zip(cls.fields, inside, strict=True):
        compare_field(field, definition, first, last)


def compare_field(field: Field, definition: Any, first: int, last: int) -> None:
    where = f"{definition['name']}: {field}"
    since, until = parse_range(definition["versions"])
    carried = range(max(since, first), min(until, last) + 1)
    assert [v for v in range(first, last + 1) if field.in_version(v)] == list(carried), where
    nullable = parse_range(definition.get("nullableVersions", "none"))
    for version in carried:
        expected = nullable[0] <= version <= nullable[1]
        if definition.get("type") != "records":
            assert field.nullable_in(version) == expected, where
    assert field.tag == definition.get("tag"), where
    if len(carried) < last + 1 - first:
        assert field.ignorable == (definition.get("ignorable") is True), where
    compare_type(field, definition, carried)
    if field.kind not in ("array", "struct", "uuid", "records"):
        expected = OUR_DEFAULTS.get(field.name, default_of(definition))
        assert field.default == expected, where


def compare_type(field: Field, definition: Any, carried: range) -> None:
    kind = definition["type"]
    element: Any = field.element
    if kind.startswith("[]"):
        assert field.kind == "array"
        kind = kind[2:]
        if not isinstance(element, type):
            assert element.kind == kind
            return
    if isinstance(element, type):
        assert RENAMED.get(element.__name__, element.__name__) == kind
        compare_fields(element, definition["fields"], carried[0], carried[-1])
    else:
        assert field.kind == kind


def default_of(definition: Any) -> Any:
    default = definition.get("default")
    if default == "null":
        return None
    if definition["type"] == "string":
        return default or ""
    if definition["type"] == "bytes":
        return b""
    if definition["type"] == "bool":
        return str(default).lower() == "true"
    return int(str(default or 0), 0)


def parse_range(text: str) -> tuple[int, int]:
    if text == "none":
        return VERSION_MAX, -1
    first, separator, last = text.partition("-")
    if text.endswith("+"):
        return int(text[:-1]), VERSION_MAX
    return int(first), int(last if separator else first)


def overlaps(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def snake(name: str) -> str:
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


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
