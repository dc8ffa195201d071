"""Variable-length numbers, tagged sections and ids."""

import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.errors import BadTags, BadVarint, BufferUnderflow
from protocol.wire import primitives as p
from tests.unit.protocol.reference import uvarint

U32 = st.integers(0, 2**32 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)


@given(U32, st.binary(max_size=3))
@example(0x7F, b"")
@example(0x80, b"")
@example(0x3FFF, b"")
@example(0x4000, b"")
def test_unsigned_numbers(value: int, before: bytes) -> None:
    encoded = p.encode_uvarint(value)
    assert encoded == uvarint(value)
    end = len(before) + len(encoded)
    assert p.read_uvarint(before + encoded + b"\xff", len(before)) == (value, end)


@given(I32)
@example(-(2**31))
@example(63)
@example(-64)
@example(8191)
def test_signed_numbers(value: int) -> None:
    encoded = p.encode_varint(value)
    assert encoded == uvarint((value << 1) ^ (value >> 31) if value < 0 else value << 1)
    assert p.read_varint(encoded, 0) == (value, len(encoded))
    assert p.read_varlong(memoryview(encoded), 0) == (value, len(encoded))


@given(I64)
@example(-(2**63))
@example(2**63 - 1)
def test_long_numbers(value: int) -> None:
    encoded = p.encode_varlong(value)
    assert len(encoded) <= 10
    assert p.read_varlong(bytearray(encoded), 0) == (value, len(encoded))


@pytest.mark.parametrize(
    "raw",
    ["80 80 80 80 80 00", "ff ff ff ff ff 01", "ff ff ff ff 10", "80 00", "81 80 00"],
)
def test_malformed_numbers_of_32_bits(raw: str) -> None:
    for read in (p.read_uvarint, p.read_varint):
        with pytest.raises(BadVarint):
            read(bytes.fromhex(raw), 0)


@pytest.mark.parametrize("raw", ["80" * 10 + "01", "ff" * 9 + "02", "80 00", "ff" * 9 + "80 00"])
def test_malformed_numbers_of_64_bits(raw: str) -> None:
    with pytest.raises(BadVarint):
        p.read_varlong(bytes.fromhex(raw), 0)


def test_the_largest_numbers_are_read() -> None:
    assert p.read_uvarint(bytes.fromhex("ffffffff0f"), 0) == (2**32 - 1, 5)
    assert p.read_varlong(bytes.fromhex("ffffffffffffffffff01"), 0) == (-(2**63), 10)


def test_too_many_tagged_fields_are_refused() -> None:
    allowed = b"\x40" + b"".join(uvarint(n) + b"\0" for n in range(64))
    assert p.skip_tags(allowed, 0, len(allowed)) == len(allowed)
    one_more = b"\x41" + b"".join(uvarint(n) + b"\0" for n in range(65))
    with pytest.raises(BadTags):
        p.skip_tags(one_more, 0, len(one_more))


def test_a_tagged_field_must_not_reach_beyond_the_end() -> None:
    with pytest.raises(BufferUnderflow):
        p.skip_tags(b"\x01\x05\x04abc", 0, 6)


def test_ids() -> None:
    for value in (uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.uuid4()):
        read = p.uuid_from_bytes(value.bytes)
        assert read == value
        assert hash(read) == hash(value)
        assert str(read) == str(value)
        assert read.is_safe is value.is_safe
