"""Rewrites batches with some of their records removed.

This module is pure. Base offset, last offset delta, producer, base sequence and leader epoch stay,
so that readers see the same offsets and sequences. Record bytes are copied unchanged, because their
deltas stay valid. Only a delete horizon requires encoding the records again, because it replaces
the base timestamp (KIP-534).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress as select

from protocol.wire.primitives import read_varint
from protocol.wire.record import Record, append_record
from protocol.wire.records import (
    CODEC_BITS,
    HEADER_BYTES,
    BatchHeader,
    compress,
    decompress,
    with_records,
)

HAS_DELETE_HORIZON = 0x40
"""Bit 6 of the attributes: the base timestamp is the time from which tombstones and markers can be
removed."""

_ANY_SIZE = 2**31 - 1


def delete_horizon(header: BatchHeader) -> int | None:
    """Return the time from which tombstones of the batch can be removed; None before the first
    cleaning."""
    return header.base_timestamp if header.attributes & HAS_DELETE_HORIZON else None


def payload_of(header: BatchHeader, batch: memoryview) -> bytes:
    """Decompress the records of a batch. The caller has already read them within its limit."""
    packed = batch[HEADER_BYTES:]
    if header.attributes & CODEC_BITS:
        return bytes(decompress(header.codec, packed, _ANY_SIZE))
    return bytes(packed)


def without(
    header: BatchHeader, payload: bytes, records: Sequence[Record], kept: Sequence[bool]
) -> bytes:
    """Return the batch with only the records marked in `kept`.

    At least one record must be marked.
    """
    spans = select(_spans(payload, len(records)), kept)
    content = b"".join([payload[start:end] for start, end in spans])
    left = list(select(records, kept))
    return _packed(header, header.base_timestamp, header.attributes, content, left)


def with_horizon(header: BatchHeader, records: Sequence[Record], horizon_ms: int) -> bytes:
    """Return the batch with the given records and the delete horizon: the time until which
    tombstones are kept."""
    content = bytearray()
    for record in records:
        # With LogAppendTime all records have the batch's time, whatever their delta says.
        delta = 0 if header.is_log_append_time else record.timestamp_ms - horizon_ms
        append_record(
            content,
            record.offset - header.base_offset,
            delta,
            record.key,
            record.value,
            record.headers,
        )
    attributes = header.attributes | HAS_DELETE_HORIZON
    return _packed(header, horizon_ms, attributes, bytes(content), records)


def emptied(header: BatchHeader) -> bytes:
    """Return the batch without records. It keeps its producer's epoch and last sequence."""
    attributes = header.attributes & ~(CODEC_BITS | HAS_DELETE_HORIZON)
    empty = header._replace(
        attributes=attributes, max_timestamp=-1, base_timestamp=-1, record_count=0
    )
    return bytes(with_records(empty, b""))


def _packed(
    header: BatchHeader,
    base_timestamp_ms: int,
    attributes: int,
    content: bytes,
    records: Sequence[Record],
) -> bytes:
    max_timestamp_ms = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp_ms = max(record.timestamp_ms for record in records)
    changed = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp_ms,
        max_timestamp=max_timestamp_ms,
        record_count=len(records),
    )
    if attributes & CODEC_BITS:
        content = bytes(compress(header.codec, content))
    return bytes(with_records(changed, content))


def _spans(payload: bytes, count: int) -> list[tuple[int, int]]:
    """Return start and end of each record. The payload has already been parsed once."""
    spans = []
    position = 0
    for _ in range(count):
        length, start = read_varint(payload, position)
        spans.append((position, start + length))
        position = start + length
    return spans
