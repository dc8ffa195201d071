"""Encoded records equal those of aiokafka's and kafka-python's builders, byte for byte."""

import random
import sys
from types import FrameType

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from collector.text.encode import (
    FEW_LINES,
    Header,
    Piece,
    encode,
    encoded_size_max,
    fitting_count,
    record_overhead_max,
    varint,
)
from collector.text.lines import Block
from tests.unit.collector.blocks import blocks_of, seed, values_of

HEADER_BYTES = 61


# One header has the bytes that the encoder searches in lines. It must not take them for line ends.
HEADERS: tuple[Header, ...] = ((b"host", b"web-1"), (b"odd", b"\r\n\0" * 30), (b"empty", b""))


def reference(
    builder: type, key: bytes | None, lines: list[bytes], headers: tuple[Header, ...] = ()
) -> bytes:
    named = [(name.decode(), content) for name, content in headers]
    made = builder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, line in enumerate(lines):
        assert made.append(offset, 1_000, key, line, named) is not None
    return bytes(made.build())[HEADER_BYTES:]


def one_block(data: bytes, *, cut_cr: bool = True) -> Block:
    (block,) = blocks_of(data, cut_cr=cut_cr)
    return block


def random_lines(rng: random.Random, count: int) -> list[bytes]:
    def line() -> bytes:
        length = rng.choice((0, 0, 1, 2, 40, 63, 64, 65, 120, 300, 9000))
        return bytes(rng.randbytes(length).replace(b"\n", b"\0"))

    return [line() for _ in range(count)]


@pytest.mark.parametrize("builder", [AiokafkaBuilder, KafkaPythonBuilder])
@pytest.mark.parametrize("count", [1, FEW_LINES, FEW_LINES + 1, 64, 65, 700])
@pytest.mark.parametrize("key", [None, b"access/access.log", b"k" * 200])
@pytest.mark.parametrize("headers", [(), HEADERS])
def test_records_equal_the_reference(
    builder: type, count: int, key: bytes | None, headers: tuple[Header, ...]
) -> None:
    number = seed()
    lines = random_lines(random.Random(number), count)
    block = one_block(b"".join(line + b"\n" for line in lines), cut_cr=False)
    assert encode([Piece(key, block, headers)]).payload == reference(
        builder, key, lines, headers
    ), f"MILLRACE_SEED={number}"


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("headers", [(), HEADERS])
def test_cr_is_cut_only_before_a_newline(line_end: bytes, headers: tuple[Header, ...]) -> None:
    lines = [b"", b"a\rb", b"\r", b"x" * 100, b"last"] * 5
    block = one_block(b"".join(line + line_end for line in lines))
    expected = [line.removesuffix(b"\r") if line_end == b"\n" else line for line in lines]
    assert encode([Piece(b"k", block, headers)]).payload == reference(
        AiokafkaBuilder, b"k", expected, headers
    )
    kept = one_block(b"".join(line + b"\r\n" for line in lines), cut_cr=False)
    with_cr = [line + b"\r" for line in lines]
    assert encode([Piece(b"k", kept, headers)]).payload == reference(
        AiokafkaBuilder, b"k", with_cr, headers
    )


def test_headers_of_many_lines_cost_no_call_for_each() -> None:
    """The bytes between two lines include the headers, so the number of calls does not depend on
    the number of lines."""
    piece = Piece(b"k", one_block(b"x\n" * 50_000), HEADERS)
    calls = 0

    def count_calls(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count_calls)
    try:
        encode([piece])
    finally:
        sys.setprofile(None)
    assert calls < 1_000


def test_a_mebibyte_of_newlines() -> None:
    block = one_block(b"\n" * (1 << 20))
    assert block.count == 1 << 20
    room = 100_000
    count = fitting_count(Piece(b"k" * 40, block), room)
    first, rest = block.split_at(count)
    payload = encode([Piece(b"k" * 40, first)]).payload
    assert room * 0.97 < len(payload) <= room
    assert payload == reference(AiokafkaBuilder, b"k" * 40, [b""] * count)
    assert first.end == rest.start == count


def test_one_byte_lines_under_a_path_of_200_bytes() -> None:
    key = b"p" * 200
    block = one_block(b"x\n" * 50_000)
    count = fitting_count(Piece(key, block), 1_000_000)
    payload = encode([Piece(key, block.split_at(count)[0])]).payload
    assert len(payload) <= 1_000_000
    assert len(payload) > 990_000
    assert payload == reference(AiokafkaBuilder, key, [b"x"] * count)


def test_pieces_of_several_files_are_numbered_through() -> None:
    pieces = [
        Piece(b"a", one_block(b"1\n2\n")),
        Piece(None, one_block(b"".join(b"%d\n" % i for i in range(100)))),
        Piece(b"c", one_block(b"x\r\n" * 20)),
    ]
    found = values_of(pieces)
    assert len(found) == 122
    assert found[1] == (b"a", b"2")
    assert found[2] == (None, b"0")
    assert found[-1] == (b"c", b"x")


def test_headers_travel_with_the_record() -> None:
    piece = Piece(b"k", one_block(b"half\n"), ((b"millrace.unfinished", b"1"),))
    records = encode([piece])
    assert bytes(records.payload).endswith(b"half\x02\x26millrace.unfinished\x021")
    assert encoded_size_max(piece) >= len(records.payload)


@given(
    st.lists(st.binary(max_size=200).map(lambda line: line.replace(b"\n", b"\r")), min_size=1),
    st.sampled_from((1, 20)),
    st.none() | st.binary(max_size=80),
    st.booleans(),
    st.integers(0, 3000),
    st.sampled_from(((), HEADERS)),
)
def test_any_lines_come_back_and_sizes_are_never_too_small(
    lines: list[bytes],
    times: int,
    key: bytes | None,
    cut_cr: bool,
    room: int,
    headers: tuple[Header, ...],
) -> None:
    lines = lines * times
    block = one_block(b"".join(line + b"\n" for line in lines), cut_cr=cut_cr)
    piece = Piece(key, block, headers)
    expected = [line.removesuffix(b"\r") if cut_cr else line for line in lines]
    assert values_of([piece]) == [(key, line) for line in expected]
    assert len(encode([piece]).payload) <= encoded_size_max(piece)
    count = fitting_count(piece, room)
    if 0 < count < block.count:
        first, rest = block.split_at(count)
        parts = [piece._replace(block=first), piece._replace(block=rest)]
        assert len(encode(parts[:1]).payload) <= room
        assert values_of(parts) == values_of([piece])


@given(st.integers(0, 1 << 20), st.none() | st.binary(max_size=300))
def test_overhead_bounds_a_single_record(length: int, key: bytes | None) -> None:
    block = one_block(b"x" * length + b"\n")
    assert encoded_size_max(Piece(key, block)) <= length + record_overhead_max(key)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001"), (-65, "8101"), (8192, "808001")],
)
def test_varint(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded
