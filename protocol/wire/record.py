"""Single records inside a batch: fast reading, and writing.

This module is pure. The layout of a record:

    length varint, attributes int8 (0), timestamp delta varlong, offset delta varint,
    key length varint (-1: null), key, value length varint (-1: null), value,
    header count varint, and per header: key length varint, key, value length varint, value

All deltas refer to the header of the batch. `records` reads and writes whole batches.
"""

from collections.abc import Generator, Iterator, Sequence
from struct import Struct as Packed
from struct import error as StructError
from typing import NamedTuple

from protocol.errors import BadString, BufferUnderflow, CorruptBatch
from protocol.wire.primitives import (
    encode_varint,
    encode_varlong,
    read_varint,
    read_varlong,
)

LEAST_RECORD_BYTES = 7
"""The bytes of the shortest record: length, attributes, two deltas, null key, null value, no
headers."""

_SEQUENCE_MAX = 0x7FFFFFFF
_new_record = tuple.__new__
_MARKER_KEY = Packed(">hh")
_MARKER_VALUE = Packed(">hi")
_MARKER_VERSION = 0

Headers = Sequence[tuple[str, bytes | None]]


class NewRecord(NamedTuple):
    """A record to write."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


class Record(NamedTuple):
    """A record read from a batch. `sequence` is -1 without a producer."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    sequence: int


class Marker(NamedTuple):
    """The transaction marker, which is the only record of its control batch."""

    is_commit: bool
    coordinator_epoch: int


def read_marker(record: Record) -> Marker | None:
    """Return the transaction marker of a control batch's record; None for other control records.

    The other kinds (leader changes, snapshots) belong to the metadata log, and readers skip them.
    """
    try:
        _, kind = _MARKER_KEY.unpack_from(record.key or b"")
        if kind not in (0, 1):
            return None
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
    except StructError as error:
        raise CorruptBatch(f"control record ends early: {error}") from None
    return Marker(kind == 1, coordinator_epoch)


def marker_record(marker: Marker, now_ms: int) -> NewRecord:
    """Return the only record of the control batch that ends a transaction."""
    key = _MARKER_KEY.pack(_MARKER_VERSION, int(marker.is_commit))
    return NewRecord(key, _MARKER_VALUE.pack(_MARKER_VERSION, marker.coordinator_epoch), now_ms)


def append_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
) -> None:
    """Append one encoded record to a payload for `assemble_batch`."""
    parts = [
        b"\0",
        encode_varlong(timestamp_delta),
        encode_varint(offset_delta),
        b"\1" if key is None else encode_varint(len(key)),
        key or b"",
        b"\1" if value is None else encode_varint(len(value)),
        value or b"",
        encode_varint(len(headers)),
    ]
    for name, content in headers:
        raw = name.encode()
        parts += (encode_varint(len(raw)), raw)
        parts += (b"\1", b"") if content is None else (encode_varint(len(content)), content)
    body = b"".join(parts)
    out += encode_varint(len(body))
    out += body


Place = tuple[int, int, int]
"""The offset, timestamp and key size of one record; the size of a null key is -1."""


RUN_RECORDS = 100
"""The number of records whose positions `scan_places` yields at a time."""

RUN_HEADERS = 500
"""The number of headers after which `scan_places` yields within a record."""


def scan_places(
    payload: bytes, count: int, base_offset: int, base_timestamp: int, append_timestamp: int | None
) -> Iterator[list[Place]]:
    """Yield the positions of the records' parts, with the checks of `read_records`, without
    decoding contents.

    Numbers of one to three bytes are read without a call, because calls would double the time. The
    positions are yielded in lists, which can be empty. Each list takes some milliseconds, so an
    event loop can do other work in between.
    """
    try:
        yield from _scan_places(payload, count, base_offset, base_timestamp, append_timestamp)
    except IndexError:
        raise CorruptBatch("record batch ends inside a record") from None


def _scan_places(
    payload: bytes, count: int, base_offset: int, base_timestamp: int, append_timestamp: int | None
) -> Iterator[list[Place]]:
    places: list[Place] = []
    position = 0
    size = len(payload)
    for _ in range(count):
        low = payload[position]
        if low < 0x80:
            length = low >> 1 if not low & 1 else -1
            position += 1
        elif 0 < (high := payload[position + 1]) < 0x80:
            length = high << 6 | low >> 1 & 0x3F if not low & 1 else -1
            position += 2
        else:
            length, position = read_varint(payload, position)
        end = position + length
        if length < LEAST_RECORD_BYTES - 1 or end > size:
            raise CorruptBatch(f"a record has {length} bytes, but {size - position} are left")
        low = payload[position + 1]
        if low < 0x80:
            delta = low >> 1 ^ -(low & 1)
            position += 2
        elif 0 < (middle := payload[position + 2]) < 0x80:
            delta = (middle << 6 | low >> 1 & 0x3F) ^ -(low & 1)
            position += 3
        elif 0 < (high := payload[position + 3]) < 0x80 <= middle:
            delta = (high << 13 | (middle & 0x7F) << 6 | low >> 1 & 0x3F) ^ -(low & 1)
            position += 4
        else:
            delta, position = read_varlong(payload, position + 1)
        timestamp = base_timestamp + delta if append_timestamp is None else append_timestamp
        low = payload[position]
        if low < 0x80:
            delta = low >> 1 ^ -(low & 1)
            position += 1
        elif 0 < (middle := payload[position + 1]) < 0x80:
            delta = (middle << 6 | low >> 1 & 0x3F) ^ -(low & 1)
            position += 2
        elif 0 < (high := payload[position + 2]) < 0x80 <= middle:
            delta = (high << 13 | (middle & 0x7F) << 6 | low >> 1 & 0x3F) ^ -(low & 1)
            position += 3
        else:
            delta, position = read_varint(payload, position)
        key_size, position = _skip_sized(payload, position)
        value_size, position = _skip_sized(payload, position)
        if key_size < -1 or value_size < -1 or position >= end:
            raise CorruptBatch("a key or value does not fit into its record")
        position += 1
        if payload[position - 1]:
            position = yield from _skip_headers(payload, position - 1, end)
        if position != end:
            raise CorruptBatch(f"a record ends at byte {position}, but its length says {end}")
        places.append((base_offset + delta, timestamp, key_size))
        if len(places) == RUN_RECORDS:
            yield places
            places = []
    if position != size:
        raise CorruptBatch(f"{size - position} bytes are left after the last record")
    yield places


def read_records(
    payload: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    base_sequence: int,
    append_timestamp: int | None,
) -> Iterator[Record]:
    """Yield `count` records that fill `payload` exactly.

    `append_timestamp`, if not None, replaces the timestamps of the records.
    """
    # Numbers of one and two bytes are read without a call, because calls would double the time.
    position = 0
    size = len(payload)
    try:
        for _ in range(count):
            low = payload[position]
            if low < 0x80:
                length = low >> 1 if not low & 1 else -1
                position += 1
            else:
                length, position = read_varint(payload, position)
            end = position + length
            if length < LEAST_RECORD_BYTES - 1 or end > size:
                raise CorruptBatch(f"a record has {length} bytes, but {size - position} are left")
            timestamp = append_timestamp
            low = payload[position + 1]
            if low < 0x80:
                delta = low >> 1 ^ -(low & 1)
                position += 2
            else:
                delta, position = read_varlong(payload, position + 1)
            if timestamp is None:
                timestamp = base_timestamp + delta
            low = payload[position]
            if low < 0x80:
                delta = low >> 1 ^ -(low & 1)
                position += 1
            else:
                delta, position = read_varint(payload, position)
            key, position = _read_sized(payload, position, end)
            value, position = _read_sized(payload, position, end)
            headers: Headers = ()
            if payload[position]:
                headers, position = _read_headers(payload, position, end)
            else:
                position += 1
            if position != end:
                raise CorruptBatch(f"a record ends at byte {position}, but its length says {end}")
            sequence = (base_sequence + delta) & _SEQUENCE_MAX if base_sequence >= 0 else -1
            yield _new_record(
                Record, (base_offset + delta, timestamp, key, value, headers, sequence)
            )
    except IndexError:
        raise BufferUnderflow("record ends early") from None
    if position != size:
        raise CorruptBatch(f"{size - position} bytes are left after the last record")


def _read_sized(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Read the length and content of a key or value; the content is None for length -1."""
    low = payload[position]
    if low < 0x80:
        size = low >> 1 ^ -(low & 1)
        position += 1
    else:
        size, position = read_varint(payload, position)
    stop = position + size
    if size < 0 or stop > end:
        if size == -1:
            return None, position
        raise CorruptBatch(f"a key or value has {size} bytes, but {end - position} are left")
    return payload[position:stop], stop


def _skip_sized(payload: bytes, position: int) -> tuple[int, int]:
    """Read the size of a key or value.

    Return it, and where the content ends, which is not checked.
    """
    size = payload[position]
    if size < 0x80:
        size = size >> 1 ^ -(size & 1)
        position += 1
    elif 0 < (high := payload[position + 1]) < 0x80:
        size = (high << 6 | size >> 1 & 0x3F) ^ -(size & 1)
        position += 2
    else:
        size, position = read_varint(payload, position)
    return size, position + size if size > 0 else position


def _read_header_count(payload: bytes, position: int, end: int) -> tuple[int, int]:
    count, position = read_varint(payload, position)
    if not 0 <= count * 2 <= end - position:
        raise CorruptBatch(f"a record has {count} headers, but {end - position} bytes are left")
    return count, position


def _read_headers(payload: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = _read_header_count(payload, position, end)
    headers = []
    for _ in range(count):
        name, position = _read_header_name(payload, position, end)
        value, position = _read_sized(payload, position, end)
        headers.append((name, value))
    return headers, position


def _skip_headers(payload: bytes, position: int, end: int) -> Generator[list[Place], None, int]:
    """Skip the headers of one record, and return where they end.

    Yield empty lists in between, because 20 MB can hold ten million headers.
    """
    count, position = _read_header_count(payload, position, end)
    for number in range(1, count + 1):
        _, position = _read_header_name(payload, position, end)
        _, position = _read_sized(payload, position, end)
        if not number % RUN_HEADERS:
            yield []
    return position


def _read_header_name(payload: bytes, position: int, end: int) -> tuple[str, int]:
    name, position = _read_sized(payload, position, end)
    if name is None:
        raise CorruptBatch("a record header has no name")
    try:
        return name.decode(), position
    except UnicodeDecodeError as error:
        raise BadString(f"record header: {error}") from None
