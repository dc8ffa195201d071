"""Lines into the records of a Kafka record batch, a block at a time.

Floor: above `lines`. Pure. A record without headers ends in a zero byte (its header count) exactly
where its line's newline stood. So the newlines are overwritten with zeros, the bytes before each
line (lengths, offset delta, key) are computed as arrays for all lines at once, and both are merged
by one mask over the output. One timestamp per batch makes every timestamp delta 0; one key per
file makes it a constant. The cost is a few nanoseconds per byte, whatever the number of lines.

    record = length, attributes 0, timestamp delta 0, offset delta, key, value, header count 0

All integers but the attributes are zigzag varints.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collector.lines import CARRIAGE_RETURN, Block, Positions

Octets = NDArray[np.uint8]

# Below this an array operation costs more than the loop it replaces.
FEW_LINES = 8
# A batch of 2^20 records would need 7 MiB even if all lines were empty: three bytes hold any
# offset delta of a batch up to that size.
DELTA_BYTES_MAX = 3
RECORDS_MAX = 1 << 20

Header = tuple[bytes, bytes]


class Piece(NamedTuple):
    """A block under the record key of its file; each of its records carries the headers."""

    key: bytes | None
    block: Block
    headers: tuple[Header, ...] = ()


class Records(NamedTuple):
    """Encoded records, numbered from offset delta 0: a batch's payload before compression."""

    payload: bytes
    record_count: int


def varint(value: int) -> bytes:
    """`value` as a zigzag varint."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def encode(pieces: Sequence[Piece]) -> Records:
    """The records of all pieces in their order."""
    parts: list[bytes | memoryview] = []
    count = 0
    for piece in pieces:
        if piece.block.count <= FEW_LINES or piece.headers:
            parts.append(_encode_few(piece, count))
        else:
            parts.append(_encode_block(piece.key, piece.block, count).data)
        count += piece.block.count
    return Records(b"".join(parts), count)


def encode_record(
    delta: int, key: bytes | None, value: bytes | memoryview, headers: Sequence[Header] = ()
) -> bytes:
    """One record with timestamp delta 0."""
    tail = header_octets(headers)
    front = b"\x00\x00" + varint(delta) + _key_octets(key) + varint(len(value))
    return b"".join((varint(len(front) + len(value) + len(tail)), front, value, tail))


def fitting_count(piece: Piece, room_bytes: int) -> int:
    """How many of the piece's first records take at most `room_bytes` when encoded.

    Computed from the newlines alone, before anything is encoded, and never too small a size: the
    offset delta counts with the most bytes it can have.
    """
    return int(np.searchsorted(np.cumsum(_sizes_max(piece)), room_bytes, side="right"))


def encoded_size_max(piece: Piece) -> int:
    """An upper bound of the piece's encoded size; the offset deltas may take less."""
    return int(_sizes_max(piece).sum())


def record_overhead_max(key: bytes | None) -> int:
    """The most bytes a record without headers takes beside its value."""
    return 5 + 2 + DELTA_BYTES_MAX + len(_key_octets(key)) + 5 + 1


def header_octets(headers: Sequence[Header]) -> bytes:
    """A record's end: the header count and the headers."""
    out = bytearray(varint(len(headers)))
    for name, content in headers:
        out += varint(len(name)) + name + varint(len(content)) + content
    return bytes(out)


def _key_octets(key: bytes | None) -> bytes:
    return b"\x01" if key is None else varint(len(key)) + key


def _lengths(block: Block) -> Positions:
    """The length of each line without its newline, CR included."""
    lengths = np.diff(block.newlines, prepend=-1)
    lengths -= 1
    return lengths


def _varint_sizes(zigzag: Positions) -> Positions:
    """How many bytes each already zigzagged, non-negative number takes."""
    sizes = np.ones(len(zigzag), dtype=np.int64)
    most = int(zigzag.max())
    limit = 1 << 7
    while most >= limit:
        sizes += zigzag >= limit
        limit <<= 7
    return sizes


def _sizes_max(piece: Piece) -> Positions:
    lengths = _lengths(piece.block)
    headers = header_octets(piece.headers)
    fixed = 2 + DELTA_BYTES_MAX + len(_key_octets(piece.key)) + len(headers)
    inner = lengths + fixed + _varint_sizes(lengths << 1)
    return inner + _varint_sizes(inner << 1)


def _encode_few(piece: Piece, first_delta: int) -> bytes:
    """The plain way, line by line, for blocks of a handful of lines."""
    block = piece.block
    out = []
    begin = 0
    for delta, newline in enumerate(block.newlines.tolist(), first_delta):
        end = newline
        if block.cut_cr and end > begin and block.data[end - 1] == CARRIAGE_RETURN:
            end -= 1
        out.append(encode_record(delta, piece.key, block.data[begin:end], piece.headers))
        begin = newline + 1
    return b"".join(out)


def _encode_block(key: bytes | None, block: Block, first_delta: int) -> Octets:
    """All records of a block of LINES by array operations only."""
    octets = np.frombuffer(block.data, dtype=np.uint8).copy()
    newlines, lengths = block.newlines, _lengths(block)
    runs = lengths + 1  # bytes taken over from the block: the value and the closing zero
    kept = octets
    if block.cut_cr:
        before = newlines - 1
        with_cr = (lengths > 0) & (octets[before] == CARRIAGE_RETURN)
        if with_cr.any():
            lengths = lengths - with_cr
            runs = runs - with_cr
            octets[newlines] = 0
            keep = np.ones(len(octets), dtype=np.bool_)
            keep[before[with_cr]] = False
            kept = octets[keep]
    if kept is octets:
        octets[newlines] = 0
    heads, head_sizes = _heads(key, lengths, first_delta)
    return _merge(heads, head_sizes, kept, runs)


def _heads(key: bytes | None, lengths: Positions, first_delta: int) -> tuple[Octets, Positions]:
    """What stands before each value, all records one after another, and each one's size."""
    count = len(lengths)
    key_octets = np.frombuffer(_key_octets(key), dtype=np.uint8)
    deltas = np.arange(first_delta, first_delta + count, dtype=np.int64) << 1
    values = lengths << 1
    inner = _varint_sizes(deltas) + _varint_sizes(values) + lengths + (2 + len(key_octets) + 1)
    totals = inner << 1
    widths = [_varint_width(int(column.max())) for column in (totals, deltas, values)]
    matrix = np.zeros((count, sum(widths) + 2 + len(key_octets)), dtype=np.uint8)
    filled = np.ones(matrix.shape, dtype=np.bool_)
    column = _fill_varints(matrix, filled, 0, totals, widths[0]) + 2
    column = _fill_varints(matrix, filled, column, deltas, widths[1])
    matrix[:, column : column + len(key_octets)] = key_octets
    _fill_varints(matrix, filled, column + len(key_octets), values, widths[2])
    sizes = filled.sum(axis=1, dtype=np.int64)
    return matrix[filled], sizes


def _varint_width(zigzag: int) -> int:
    return max(1, (zigzag.bit_length() + 6) // 7)


def _fill_varints(
    matrix: Octets, filled: NDArray[np.bool_], column: int, zigzag: Positions, width: int
) -> int:
    """Write one varint per row from `column` on; bytes a row does not need stay unfilled."""
    for index in range(width):
        rest = zigzag >> (7 * index)
        more = rest > 0x7F
        matrix[:, column + index] = (rest & 0x7F) | (more << np.int64(7))
        if index:
            filled[:, column + index] = rest > 0
    return column + width


def _merge(heads: Octets, head_sizes: Positions, kept: Octets, runs: Positions) -> Octets:
    """Head, line, head, line …: two masked copies into the output."""
    count = len(runs)
    edges = np.empty(2 * count, dtype=np.int64)
    edges[0::2] = head_sizes
    edges[1::2] = runs
    flags = np.zeros(2 * count, dtype=np.bool_)
    flags[1::2] = True
    is_line = np.repeat(flags, edges)
    out = np.empty(len(is_line), dtype=np.uint8)
    out[is_line] = kept
    out[~is_line] = heads
    return out
