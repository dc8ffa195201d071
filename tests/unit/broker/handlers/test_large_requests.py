"""The cost of a request with the maximum number of elements, measured in function calls and not in
time.

The test fills each array of every served API in two ways: with different names that do not exist,
and with one existing name repeated. A call takes 0.1 to 0.2 microseconds.
"""

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from protocol.errors import WireError
from protocol.messages.api import SERVED, ApiKey, client_versions, request_class
from protocol.wire.schema import Field, Struct
from tests.unit.broker.rig import Asked, Rig
from tests.unit.storage.kit import broker_config

ELEMENTS = 500
CALLS_MAX = 1_000_000
"""The largest number of calls for one request, so that it does not hold the loop for longer than a
fifth of a second."""

PARTITIONS = 3

Path = tuple[Field, ...]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig(auto_create_topics_enable=False)
    rig.create("t", PARTITIONS)
    yield rig


def array_paths(cls: type[Struct], version: int) -> Iterator[Path]:
    """Yield the path to every array of a message, through arrays and structs."""
    for field in cls.fields:
        if not field.in_version(version) or field.kind not in ("array", "struct"):
            continue
        if field.kind == "array":
            yield (field,)
        if isinstance(field.element, type):
            for rest in array_paths(field.element, version):
                yield (field, *rest)


def filled(cls: type[Struct], path: Path, version: int, *, is_known: bool) -> Any:
    """Return a struct with one element in each array of the path, and many in the last one."""
    value = cls()
    for field in cls.fields:
        if field.kind == "string" and field.in_version(version):
            setattr(value, field.name, "t" if is_known else "nowhere")
    if not path:
        return value
    field, rest = path[0], path[1:]
    if field.kind == "struct":
        assert isinstance(field.element, type)
        setattr(value, field.name, filled(field.element, rest, version, is_known=is_known))
        return value
    count = 1 if rest else ELEMENTS
    elements = [element(field, rest, version, is_known=is_known) for _ in range(count)]
    if not is_known:
        for number, one in enumerate(elements):
            elements[number] = numbered(one, number)
    setattr(value, field.name, elements)
    return value


def element(field: Field, rest: Path, version: int, *, is_known: bool) -> Any:
    if isinstance(field.element, type):
        return filled(field.element, rest, version, is_known=is_known)
    assert field.element is not None
    if field.element.kind == "string":
        return "t" if is_known else "nowhere"
    return field.element.new_default()


def numbered(one: Any, number: int) -> Any:
    """Give the value a different name or number."""
    if isinstance(one, str):
        return f"{one}{number}"
    if isinstance(one, int):
        return number
    if isinstance(one, Struct):
        for field in one.fields:
            if field.kind == "string" and getattr(one, field.name) is not None:
                setattr(one, field.name, f"{getattr(one, field.name)}{number}")
            elif field.kind == "int32" and "partition" in field.name:
                setattr(one, field.name, number)
    return one


def calls_of(rig: Rig, asked: Asked) -> int:
    """Count the function calls of the broker for a request, including functions written in C."""
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        rig.start_request(asked)
        rig.turn()
    except WireError:
        pass
    finally:
        sys.setprofile(None)
    return count


def requests(key: ApiKey) -> Iterator[tuple[str, int, Any]]:
    cls = request_class(key)
    version = client_versions(key)[-1]
    for path in array_paths(cls, version):
        name = ".".join(field.name for field in path)
        for is_known in (False, True):
            yield name, version, filled(cls, path, version, is_known=is_known)


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name.lower())
def test_a_request_at_the_limit_costs_a_bounded_number_of_calls(rig: Rig, key: ApiKey) -> None:
    config = broker_config()
    limit = max(config.max_request_elements, config.max_request_numbers)
    for name, version, request in requests(key):
        count = calls_of(rig, Asked(request, version, "HOST"))
        rig.flusher.sync()
        rig.turn()
        print(f"{key.name} {name}: {count / ELEMENTS:.1f} calls an element")
        assert count * limit // ELEMENTS < CALLS_MAX, name
