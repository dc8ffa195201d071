"""The smallest parts of the wire format, as functions that the generated codecs call.

This module is pure. Readers have the form `(buffer, position) -> (value, position)`. Every length
is compared with the remaining bytes before memory is allocated. `limits` has the limits that all
readers share.
"""

import uuid
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, NoReturn, TypeAlias

from protocol.errors import (
    BadLength,
    BadTags,
    BadVarint,
    BufferUnderflow,
    NullNotAllowed,
)
from protocol.wire.limits import LIMITS

Buffer: TypeAlias = bytes | bytearray | memoryview

SMALL_COUNT = 16
"""Arrays with fewer numbers than this are read and written with a compiled struct."""

UVARINT_1 = tuple(bytes((n,)) for n in range(128))


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned number of at most 32 bits in at most five bytes, lowest seven bits first."""
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    shift = 7
    while True:
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise BadVarint("a variable-length number of 32 bits has more than five bytes")
    if byte == 0:
        raise BadVarint("a variable-length number is not in its shortest form")
    if value > 0xFFFFFFFF:
        raise BadVarint("a variable-length number exceeds 32 bits")
    return value, position + 1


def encode_uvarint(value: int) -> bytes:
    """Return the shortest encoding of a non-negative number."""
    if value < 0x80:
        return UVARINT_1[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a signed, zigzag-encoded number of at most 64 bits in at most ten bytes."""
    byte = buffer[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    shift = 7
    while True:
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise BadVarint("a variable-length number of 64 bits has more than ten bytes")
    if byte == 0:
        raise BadVarint("a variable-length number is not in its shortest form")
    if value > 0xFFFFFFFFFFFFFFFF:
        raise BadVarint("a variable-length number exceeds 64 bits")
    return (value >> 1) ^ -(value & 1), position + 1


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a signed, zigzag-encoded number of at most 32 bits in at most five bytes."""
    low = buffer[position]
    if low >= 0x80:
        high = buffer[position + 1]
        if 0 < high < 0x80:
            return (high << 6 | low >> 1 & 0x3F) ^ -(low & 1), position + 2
    value, position = read_uvarint(buffer, position)
    return (value >> 1) ^ -(value & 1), position


def encode_varlong(value: int) -> bytes:
    """Return the shortest zigzag encoding of a signed number of at most 64 bits."""
    return encode_uvarint((value << 1) ^ (value >> 63))


encode_varint = encode_varlong
"""The encoder of 32-bit numbers.

It is the one of 64-bit numbers, because both zigzag encodings give the same bytes.
"""


def read_tag_count(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read the number of tagged fields. Raise BadTags if it is above the limit."""
    count, position = read_uvarint(buffer, position)
    if count > LIMITS.tag_count_max:
        raise BadTags(f"found {count} tagged fields, expected at most {LIMITS.tag_count_max}")
    return count, position


def read_tag(buffer: Buffer, position: int, limit: int) -> tuple[int, int, int]:
    """Read one tag. Return its number, and the start and end of its content."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    end = position + size
    if end > limit:
        left = limit - position
        raise BufferUnderflow(f"tagged field {tag} has {size} bytes, but {left} are left")
    return tag, position, end


def skip_tags(buffer: Buffer, position: int, limit: int) -> int:
    """Skip all tagged fields of a struct, because none of them is known."""
    count, position = read_tag_count(buffer, position)
    for _ in range(count):
        _, _, position = read_tag(buffer, position, limit)
    return position


STRING_BYTES_MAX = 0x7FFF
"""The most bytes of a string.

Versions with an int16 length cannot write more, and Kafka refuses longer strings in all versions.
"""


def fail_string(length: int, what: str) -> NoReturn:
    """Raise the error for a string that is too long."""
    raise BadLength(f"{what} has {length} bytes, but a string has at most {STRING_BYTES_MAX}")


def fail_length(length: int, left: int, what: str) -> NoReturn:
    """Raise the error for an invalid length: null, negative, or more than the remaining bytes."""
    if length == -1:
        raise NullNotAllowed(f"{what} is null")
    if length < 0:
        raise BadLength(f"{what} has length {length}")
    raise BufferUnderflow(f"{what} has {length} bytes, but {left} are left")


def fail_count(count: int, count_max: int, left: int, what: str) -> NoReturn:
    """Raise the error for an invalid count of an array."""
    if count == -1:
        raise NullNotAllowed(f"{what} is null")
    if count < 0 or count > count_max:
        raise BadLength(f"{what} has {count} elements, expected at most {count_max}")
    raise BufferUnderflow(f"{what} has {count} elements, but only {left} bytes are left")


def fail_tag(tag: int, size: int, what: str) -> NoReturn:
    """Raise the error for a tagged field whose declared size differs from its content."""
    raise BadTags(f"{what}: tagged field {tag} does not fill its declared {size} bytes")


def fail_tags(what: str) -> NoReturn:
    """Raise the error for an unknown tagged field where none may be skipped."""
    raise BadTags(f"{what} has an unknown tagged field")


def fail_marker(marker: int, what: str) -> NoReturn:
    """Raise the error for an invalid marker of a nullable struct, which must be 1 or -1."""
    if marker == -1:
        raise NullNotAllowed(f"{what} is null")
    raise BadLength(f"{what} starts with marker {marker}, not 1 or -1")


_set_attribute = object.__setattr__
_UUID_IS_SAFE = uuid.SafeUUID.unknown


@lru_cache(maxsize=4096)
def uuid_from_bytes(raw: bytes) -> uuid.UUID:
    """Return an id from its 16 bytes. Ids are cached, because topic ids repeat in every message."""
    value = object.__new__(uuid.UUID)
    _set_attribute(value, "int", int.from_bytes(raw, "big"))
    _set_attribute(value, "is_safe", _UUID_IS_SAFE)
    return value


@lru_cache(maxsize=32)
def array_unpackers(code: str) -> tuple[Callable[[Buffer, int], tuple[Any, ...]], ...]:
    """Return `unpack_from` for 0 to 15 big-endian numbers with this struct code."""
    return tuple(Struct(f">{n}{code}").unpack_from for n in range(SMALL_COUNT))


@lru_cache(maxsize=32)
def array_packers(code: str) -> tuple[Callable[..., bytes], ...]:
    """Return `pack` for 0 to 15 big-endian numbers with this struct code."""
    return tuple(Struct(f">{n}{code}").pack for n in range(SMALL_COUNT))
