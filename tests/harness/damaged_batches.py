"""Batches that a client can send with a right checksum although their contents are wrong.

Each case has the answers of our broker on a listener with a login, and of Apache Kafka 4.3.1. The
answers differ in three ways. Kafka answers UNKNOWN_SERVER_ERROR to some faults, where our broker
says what is wrong. Kafka stores some batches that other readers reject. Our broker has limits on
decompression.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from protocol.errors import ErrorCode
from protocol.wire.compression import Codec, compress
from protocol.wire.crc32c import crc32c
from protocol.wire.primitives import encode_varint, encode_varlong
from protocol.wire.record import NewRecord, append_record
from protocol.wire.records import assemble_batch, build_batch

NONE = ErrorCode.NONE
INVALID = ErrorCode.INVALID_RECORD
UNTIMELY = ErrorCode.INVALID_TIMESTAMP
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
CORRUPT = ErrorCode.CORRUPT_MESSAGE
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE

_CODECS_AT = 22
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_CONTROL = 0x20
_DAY_MS = 86_400_000
BOMB_BYTES = 24 << 20
"""More than `max.decompressed.batch.bytes`, which is 20 MiB by default."""


class Damaged(NamedTuple):
    """One batch, with the expected answers."""

    name: str
    batch: bytes
    ours: ErrorCode
    kafkas: ErrorCode


def sealed(batch: bytes | bytearray) -> bytes:
    """Return the batch with the right checksum."""
    out = bytearray(batch)
    struct.pack_into(">I", out, _CRC_AT, crc32c(bytes(out[_ATTRIBUTES_AT:])))
    return bytes(out)


def claiming(codec: Codec, packed: bytes, now_ms: int, count: int = 1) -> bytes:
    """Return a batch that claims to hold `count` records compressed by `codec`."""
    batch = assemble_batch(
        packed, record_count=count, base_timestamp_ms=now_ms, max_timestamp_ms=now_ms
    )
    batch[_CODECS_AT] |= codec
    return sealed(batch)


def one(delta: int = 0, later_ms: int = 0, value: bytes = b"v") -> bytes:
    """Return one encoded record."""
    out = bytearray()
    append_record(out, delta, later_ms, b"k", value)
    return bytes(out)


def fields(
    *,
    key: bytes = encode_varint(1) + b"k",
    value: bytes = encode_varint(1) + b"v",
    headers: bytes = encode_varint(0),
    rest: bytes = b"",
) -> bytes:
    """Return one encoded record with these bytes in the places of its fields."""
    body = b"\0" + encode_varlong(0) + encode_varint(0) + key + value + headers + rest
    return encode_varint(len(body)) + body


_NULL = encode_varint(-1)
_HEADER = encode_varint(1)

RECORDS: tuple[tuple[str, int, bytes, ErrorCode, ErrorCode, ErrorCode], ...] = (
    # name, claimed records, payload, ours, Kafka's uncompressed, Kafka's compressed
    ("nothing wrong", 2, one() + one(1), NONE, NONE, NONE),
    ("fewer records than claimed", 2, one(), INVALID, INVALID, INVALID),
    ("more records than claimed", 1, one() + one(1), INVALID, INVALID, INVALID),
    ("bytes behind the last record", 1, one() + b"zz", INVALID, INVALID, INVALID),
    ("a gap in the offsets", 2, one() + one(2), INVALID, NONE, UNKNOWN),
    ("offsets from 1 on", 2, one(1) + one(2), INVALID, NONE, UNKNOWN),
    ("offsets in reverse", 2, one(1) + one(0), INVALID, NONE, UNKNOWN),
    ("an offset twice", 2, one() + one(), INVALID, NONE, UNKNOWN),
    ("a negative length", 1, encode_varint(-1) + one(), INVALID, INVALID, INVALID),
    ("a length beyond the end", 1, encode_varint(500) + one()[1:], INVALID, INVALID, NONE),
    ("a length that is too small", 1, encode_varint(5) + one()[1:], INVALID, INVALID, NONE),
    ("a length without an end", 1, b"\xff" * 6 + b"\1" + one(), INVALID, UNKNOWN, INVALID),
    ("a key beyond its record", 1, fields(key=encode_varint(50) + b"k"),
     INVALID, INVALID, INVALID),
    ("a key of -2 bytes", 1, fields(key=encode_varint(-2)), INVALID, NONE, NONE),
    ("a value beyond its record", 1, fields(value=encode_varint(50) + b"v"),
     INVALID, INVALID, INVALID),
    ("a value of -2 bytes", 1, fields(value=encode_varint(-2)), INVALID, NONE, NONE),
    ("-1 headers", 1, fields(headers=encode_varint(-1)), INVALID, INVALID, INVALID),
    ("more headers than bytes", 1, fields(headers=encode_varint(1_000)),
     INVALID, INVALID, INVALID),
    ("a header without a name", 1, fields(headers=_HEADER + _NULL + _NULL),
     INVALID, INVALID, INVALID),
    ("a header's name beyond its record", 1,
     fields(headers=_HEADER + encode_varint(100) + b"ab" + _NULL), INVALID, INVALID, INVALID),
    ("a header's value beyond its record", 1,
     fields(headers=_HEADER + encode_varint(1) + b"a" + encode_varint(100)),
     INVALID, INVALID, INVALID),
    ("a header's name that is no UTF-8", 1,
     fields(headers=_HEADER + encode_varint(1) + b"\xff" + _NULL), INVALID, NONE, NONE),
    ("bytes behind a record's headers", 1, fields(rest=b"xx"), INVALID, INVALID, INVALID),
    ("a record too far in the future", 2, one() + one(1, 10 * _DAY_MS),
     UNTIMELY, UNTIMELY, UNTIMELY),
    ("a largest time that is too small", 2, one() + one(1, 1_000), NONE, NONE, NONE),
)  # fmt: skip


def damaged_batches(now_ms: int) -> list[Damaged]:
    """Return all cases. The records have this time."""
    found = []
    for codec in Codec:
        for name, count, payload, ours, plain, packed in RECORDS:
            kafkas = packed if codec else plain
            batch = claiming(codec, bytes(compress(codec, payload)), now_ms, count)
            found.append(Damaged(f"{codec.name}: {name}", batch, ours, kafkas))
        if codec:
            found += _undecodable(codec, now_ms)
    good = build_batch([NewRecord(b"k", b"v", now_ms)])
    control = bytearray(good)
    control[_CODECS_AT] |= _CONTROL
    found.append(Damaged("a control batch", sealed(control), INVALID, INVALID))
    good[-1] ^= 1
    found.append(Damaged("a wrong checksum", bytes(good), CORRUPT, CORRUPT))
    return found


def _undecodable(codec: Codec, now_ms: int) -> list[Damaged]:
    """Return batches whose contents cannot be decompressed."""
    whole = bytes(compress(codec, one(value=bytes(range(256)) * 20)))
    bomb = bytes(compress(codec, one(value=bytes(BOMB_BYTES))))
    # snappy compresses to a twentieth, which is still more than `max.message.bytes`.
    of_bomb = (TOO_LARGE, TOO_LARGE) if codec == Codec.SNAPPY else (INVALID, NONE)
    ended = Codec.ZSTD
    return [
        Damaged(f"{codec.name}: {name}", claiming(codec, packed, now_ms), *answers)
        for name, packed, answers in (
            ("noise", b"this was never compressed", (INVALID, UNKNOWN)),
            ("a part of the data", whole[:-9], (INVALID, UNKNOWN)),
            ("no data", b"", (INVALID, INVALID if codec == ended else UNKNOWN)),
            ("too much data", bomb, of_bomb),
        )
    ]
