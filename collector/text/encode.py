"""Encode lines as the records of a Kafka record batch, one block at a time.

This module is pure. All records of a `Piece` have the same headers, so each record ends with the
same *tail* (a zero byte if there are no headers). The tail replaces the newline of the line. There
is one timestamp per batch, so every timestamp delta is 0:

    record = length, attributes 0, timestamp delta 0, offset delta, key, value, tail
    tail   = header count, headers

All integers except the attributes are zigzag varints. So the bytes between two lines differ in
three integers only: length, offset delta and length of the value. One `replace` puts the tail and a
template of the next record after each line. Then the integers are filled in as arrays. If they have
different widths, the template has room for the widest, and one masked copy removes the surplus
bytes. The cost is about 0.5 ns per byte, or 1.5 ns with the masked copy.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collector.text.encodings import CARRIAGE_RETURN, Positions
from collector.text.lines import Block, RecordKind

Octets = NDArray[np.uint8]
Flags = NDArray[np.bool_]

# Below this number of lines, array operations cost more than a loop.
FEW_LINES = 8
# Removing one byte by slices costs as much as masking this many bytes.
FEW_BYTES = 150
# Three bytes hold any offset delta of a batch below 2^20 records. A batch with more records would
# need 7 MiB even if all its lines were empty.
DELTA_BYTES_MAX = 3
RECORDS_MAX = 1 << 20

Header = tuple[bytes, bytes]


class Piece(NamedTuple):
    """A block with the record key and the headers that all of its records get."""

    key: bytes | None
    block: Block
    headers: tuple[Header, ...] = ()


class Records(NamedTuple):
    """The encoded records of a batch, uncompressed. Their offset deltas start at 0."""

    payload: bytes | memoryview
    record_count: int


class _Stretch(NamedTuple):
    """Consecutive lines whose offset deltas take the same number of bytes as varints."""

    data: memoryview
    newlines: Positions
    cut_cr: bool


def varint(value: int) -> bytes:
    """Return `value` as a zigzag varint."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def varint_width(zigzag: int) -> int:
    """Return how many bytes the varint of a zigzag-encoded integer takes."""
    return max(1, (zigzag.bit_length() + 6) // 7)


def encode(pieces: Sequence[Piece]) -> Records:
    """Return the records of all pieces in their order."""
    parts: list[bytes | memoryview] = []
    count = 0
    for piece in pieces:
        block = piece.block
        if block.count <= FEW_LINES or block.kind is RecordKind.EVENTS:
            parts.append(_encode_few(piece, count))
        else:
            parts += _encode_block(piece, count)
        count += block.count
    return Records(parts[0] if len(parts) == 1 else b"".join(parts), count)


def _encode_record(delta: int, key: bytes, value: memoryview, tail: bytes) -> bytes:
    """Return one encoded record with timestamp delta 0; `key` and `tail` are encoded already."""
    front = b"\x00\x00" + varint(delta) + key + varint(len(value))
    return b"".join((varint(len(front) + len(value) + len(tail)), front, value, tail))


def fitting_count(piece: Piece, room_bytes: int) -> int:
    """Return how many of the piece's first records fit into `room_bytes` when encoded.

    The result is computed from the newlines alone, before encoding. It is never too high, because
    it assumes the widest offset delta.
    """
    if size_bound(piece) <= room_bytes:
        return piece.block.count
    return int(np.searchsorted(np.cumsum(_sizes_max(piece)), room_bytes, side="right"))


def encoded_size_max(piece: Piece) -> int:
    """Return an upper bound of the encoded size of a piece. It assumes the widest offset deltas."""
    if piece.block.count <= FEW_LINES:
        return size_bound(piece)
    return int(_sizes_max(piece).sum())


def size_bound(piece: Piece) -> int:
    """Return a rough upper bound of the encoded size, computed without the lengths of the lines.

    It is about ten bytes per line too high.
    """
    # The overhead and `header_octets` both include the header count, and the block's data include a
    # newline that is not sent. So two bytes per record are subtracted.
    overhead = record_overhead_max(piece.key) + len(header_octets(piece.headers)) - 2
    return len(piece.block.data) + piece.block.count * overhead


def record_overhead_max(key: bytes | None) -> int:
    """Return the most bytes that a record without headers takes in addition to its value."""
    return 5 + 2 + DELTA_BYTES_MAX + len(_key_octets(key)) + 5 + 1


def header_octets(headers: Sequence[Header]) -> bytes:
    """Return the bytes that end a record: the header count and the headers."""
    out = bytearray(varint(len(headers)))
    for name, content in headers:
        out += varint(len(name)) + name + varint(len(content)) + content
    return bytes(out)


def _key_octets(key: bytes | None) -> bytes:
    return b"\x01" if key is None else varint(len(key)) + key


def _lengths(newlines: Positions) -> Positions:
    """Return the length of each line without its newline but with its CR, if it has one."""
    lengths = newlines.copy()
    lengths[1:] -= newlines[:-1]
    lengths[1:] -= 1
    return lengths


def _varint_sizes(zigzag: Positions) -> Positions:
    """Return how many bytes the varint of each zigzag-encoded, non-negative integer takes."""
    sizes = np.ones(len(zigzag), dtype=np.int64)
    most = int(zigzag.max())
    limit = 1 << 7
    while most >= limit:
        sizes += zigzag >= limit
        limit <<= 7
    return sizes


def _sizes_max(piece: Piece) -> Positions:
    lengths = _lengths(piece.block.newlines)
    headers = header_octets(piece.headers)
    fixed = 2 + DELTA_BYTES_MAX + len(_key_octets(piece.key)) + len(headers)
    inner = lengths + fixed + _varint_sizes(lengths << 1)
    return inner + _varint_sizes(inner << 1)


def _encode_few(piece: Piece, first_delta: int) -> bytes:
    """Encode records one by one.

    Use it for blocks with few records, and for records with newlines.
    """
    block = piece.block
    key, tail = _key_octets(piece.key), header_octets(piece.headers)
    out = []
    begin = 0
    for delta, newline in enumerate(block.newlines.tolist(), first_delta):
        end = newline
        if block.cut_cr and end > begin and block.data[end - 1] == CARRIAGE_RETURN:
            end -= 1
        out.append(_encode_record(delta, key, block.data[begin:end], tail))
        begin = newline + 1
    return b"".join(out)


def _encode_block(piece: Piece, first_delta: int) -> list[bytes | memoryview]:
    """Encode all records of a block of LINES with array operations.

    Lines whose offset deltas take the same number of bytes are encoded together.
    """
    parts: list[bytes | memoryview] = []
    block, key, tail = piece.block, _key_octets(piece.key), header_octets(piece.headers)
    first, count = 0, block.count
    while first < count:
        width = varint_width(2 * (first_delta + first))
        last = min(count, (1 << (7 * width - 1)) - first_delta)
        begin = int(block.newlines[first - 1]) + 1 if first else 0
        end = int(block.newlines[last - 1]) + 1
        newlines = block.newlines[first:last] - begin
        lines = _Stretch(block.data[begin:end], newlines, block.cut_cr)
        parts += _encode_stretch(lines, key, tail, first_delta + first)
        first = last
    return parts


def _encode_stretch(
    lines: _Stretch, key: bytes, tail: bytes, first_delta: int
) -> list[bytes | memoryview]:
    """Return the encoded records of consecutive lines; `key` and `tail` are encoded already."""
    text, standing = bytearray(lines.data), _lengths(lines.newlines)
    with_cr = _with_cr(lines.data, lines.newlines, standing) if lines.cut_cr else None
    lengths = standing if with_cr is None else standing - with_cr
    if with_cr is not None and text.count(b"\r") == np.count_nonzero(with_cr):
        text, standing, with_cr = text.replace(b"\r", b""), lengths, None
    delta_width = varint_width(2 * first_delta)
    values = lengths << 1
    value_widths = _varint_sizes(values)
    totals = (lengths + (value_widths + (2 + delta_width + len(key) + len(tail)))) << 1
    total_widths = _varint_sizes(totals)
    total_width, value_width = int(total_widths.max()), int(value_widths.max())
    template = bytes(total_width + 2 + delta_width) + key + bytes(value_width)
    filled = text.replace(b"\n", tail + template)
    # The template after line i is the start of record i + 1. The template after the last line is
    # removed.
    del filled[-len(template) :]
    heads = np.cumsum(standing[:-1] + (len(tail) + len(template))) - len(template)
    deltas = np.arange(first_delta, first_delta + len(lengths), dtype=np.int64) << 1
    value_offset = len(template) - value_width
    octets = np.frombuffer(filled, dtype=np.uint8)
    surplus = [
        *_fill_column(octets, heads, totals[1:], total_widths[1:], total_width),
        *_fill_column(octets, heads + value_offset, values[1:], value_widths[1:], value_width),
    ]
    _fill_column(octets, heads + (total_width + 2), deltas[1:], None, delta_width)
    if with_cr is not None:
        surplus.append(np.append(heads, len(filled))[with_cr] - (len(tail) + 1))
    first = (int(number) >> 1 for number in (totals[0], deltas[0], values[0]))
    front = _front(key, *first)
    return [front, *_without(filled, np.concatenate(surplus) if surplus else heads[:0])]


def _with_cr(data: memoryview, newlines: Positions, lengths: Positions) -> Flags | None:
    """Return for each line whether it ends in a CR; None if no line does."""
    before = np.frombuffer(data, dtype=np.uint8)[newlines - 1]
    with_cr = (before == CARRIAGE_RETURN) & (lengths > 0)
    return with_cr if with_cr.any() else None


def _front(key: bytes, total: int, delta: int, length: int) -> bytes:
    """Return the encoded bytes that precede the value of one record."""
    return varint(total) + b"\0\0" + varint(delta) + key + varint(length)


def _without(filled: bytearray, places: Positions) -> list[bytes | memoryview]:
    """Return the data without the bytes at some indices, as slices.

    Few bytes are removed by slicing, many bytes by a mask.
    """
    view = memoryview(filled)
    if len(places) * FEW_BYTES > len(filled):
        keep = np.ones(len(filled), dtype=np.bool_)
        keep[places] = False
        return [np.frombuffer(filled, dtype=np.uint8)[keep].data]
    left_out = np.sort(places).tolist()
    begins = (0, *(place + 1 for place in left_out))
    return [view[begin:end] for begin, end in zip(begins, (*left_out, len(filled)), strict=True)]


def _fill_column(
    octets: Octets, places: Positions, zigzag: Positions, sizes: Positions | None, width: int
) -> list[Positions]:
    """Write a varint at each index in `places`, and return the indices of surplus bytes.

    Every varint has room for `width` bytes. A narrower varint leaves surplus bytes, which the
    caller removes.
    """
    surplus = []
    for index in range(width):
        rest = zigzag >> (7 * index)
        octets[places + index] = rest & 0x7F | ((rest > 0x7F) << np.int64(7))
        if index and sizes is not None:
            surplus.append(places[sizes <= index] + index)
    return surplus
