"""Record batches of format 2: the header as a view, the records inside, and how both are built.

Floor: wire. Pure. A log, a Produce request and a Fetch answer all hold the same bytes:

    0  base_offset int64              27  base_timestamp int64
    8  batch_length int32             35  max_timestamp int64
    12 partition_leader_epoch int32   43  producer_id int64
    16 magic int8 (2)                 51  producer_epoch int16
    17 crc uint32                     53  base_sequence int32
    21 attributes int16               57  record_count int32
    23 last_offset_delta int32        61  records, compressed as a whole

`batch_length` counts what follows it. The CRC-32C covers everything from the attributes on, so a
leader may write its base offset and epoch without touching it. Attributes: bits 0 to 2 codec, 3
timestamps set by the broker, 4 transactional, 5 control. Where records are looked into, see
`record`; most readers of a batch need the header only.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from struct import Struct as Packed
from struct import error as StructError
from typing import NamedTuple

from protocol.errors import BufferUnderflow, CorruptBatch, UnsupportedMagic
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from protocol.wire.compression import Codec, compress, decompress
from protocol.wire.crc32c import crc32c
from protocol.wire.limits import LIMITS
from protocol.wire.primitives import Buffer
from protocol.wire.record import (
    LEAST_RECORD_BYTES,
    Marker,
    NewRecord,
    Place,
    Record,
    append_record,
    read_marker,
    read_records,
    scan_places,
)

__all__ = [
    "CODEC_BITS",
    "HEADER_BYTES",
    "MAGIC",
    "PLACE",
    "SEQUENCE_MAX",
    "SIZE_BEFORE_LENGTH_ENDS",
    "BatchHeader",
    "Codec",
    "Marker",
    "NewRecord",
    "Record",
    "append_record",
    "assemble_batch",
    "build_batch",
    "check_batch",
    "check_crc",
    "compress",
    "decompress",
    "iterate_batches",
    "iterate_place_runs",
    "iterate_places",
    "iterate_records",
    "patch",
    "read_header",
    "read_marker",
    "recompress",
    "stamp_control",
    "stamp_log_append_time",
    "stamp_max_timestamp",
    "stamp_producer",
    "with_records",
]

HEADER_BYTES = 61
MAGIC = 2

_HEADER = Packed(">qiibIhiqqqhii")
PLACE = Packed(">qi11xi")
"""Base offset, batch length, last offset delta: what finding a batch needs of its header."""
_BASE_OFFSET = Packed(">q")
_LENGTH = Packed(">i")
_LEADER_EPOCH = Packed(">i")
_CRC = Packed(">I")
_ATTRIBUTES = Packed(">h")
_MAX_TIMESTAMP = Packed(">q")
_PRODUCER = Packed(">qhi")

_LENGTH_AT = 8
SIZE_BEFORE_LENGTH_ENDS = 12
"""Bytes of a batch that its own length does not count."""
_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT = 43
_BATCH_LENGTH_MIN = HEADER_BYTES - SIZE_BEFORE_LENGTH_ENDS

CODEC_BITS = 0x07
"""Of the attributes: by which codec the records are packed."""
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20

SEQUENCE_MAX = 0x7FFFFFFF
"""After this sequence number a producer continues with 0."""


class BatchHeader(NamedTuple):
    """The 61 bytes in front of a batch's records, read but not believed."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return SIZE_BEFORE_LENGTH_ENDS + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record, also where compaction has removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number, -1 without a producer."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def codec(self) -> Codec:
        """How the records are compressed; unknown bits are UnsupportedCodec."""
        return Codec.of(self.attributes & CODEC_BITS)

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker set the time: every record then has `max_timestamp`."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker instead of records."""
        return bool(self.attributes & _CONTROL)


# What `_make` does, without the call around it: every batch passes here.
_new_header = tuple.__new__


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, which need not be followed by the whole batch.

    Checked here: there are enough bytes, the format is 2, and the length is possible.
    """
    try:
        header = _new_header(BatchHeader, _HEADER.unpack_from(buffer, position))
    except StructError:
        if len(buffer) - position > _MAGIC_AT:
            _check_magic(buffer[position + _MAGIC_AT])
        left = len(buffer) - position
        raise BufferUnderflow(f"batch header of {HEADER_BYTES} bytes, {left} are left") from None
    if header.magic != MAGIC:
        _check_magic(header.magic)
    if header.batch_length < _BATCH_LENGTH_MIN:
        raise CorruptBatch(f"batch length {header.batch_length} is less than a header")
    return header


def _check_magic(magic: int) -> None:
    if magic in (0, 1):
        raise UnsupportedMagic(f"message format {magic} is not supported, only record batches are")
    if magic != MAGIC:
        raise CorruptBatch(f"batch has magic {magic}, not {MAGIC}")


def iterate_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every whole batch of a buffer, with its bytes as a slice; a partial one at the end is left.

    A fetch may end in the middle of a batch. Impossible lengths and old formats raise.
    """
    view = memoryview(buffer)
    position = 0
    end = len(view)
    while end - position >= HEADER_BYTES:
        header = read_header(view, position)
        next_position = position + header.size_bytes
        if next_position > end:
            return
        yield header, view[position:next_position]
        position = next_position
    if end - position > _MAGIC_AT:
        # An old format's message may be shorter than our header: say so rather than overlook it.
        _check_magic(view[position + _MAGIC_AT])


def check_crc(batch: Buffer) -> bool:
    """Whether the checksum of one whole batch is right."""
    (stored,) = _CRC.unpack_from(batch, _CRC_AT)
    return bool(crc32c(memoryview(batch)[_ATTRIBUTES_AT:]) == stored)


def check_batch(batch: Buffer) -> BatchHeader:
    """The header of a batch that fills `batch` exactly, is whole and contradicts itself nowhere.

    What a broker asks of every batch before it looks at anything else: size, CRC, and a record
    count that fits offsets and bytes. Anything else is CorruptBatch.
    """
    header = read_header(batch)
    if header.size_bytes != len(batch):
        raise CorruptBatch(f"batch of {header.size_bytes} bytes in a space of {len(batch)}")
    if not check_crc(batch):
        raise CorruptBatch("the batch's CRC-32C is wrong")
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise CorruptBatch(f"{count} records up to offset delta {header.last_offset_delta}")
    if not header.attributes & CODEC_BITS:
        _check_count(count, len(batch) - HEADER_BYTES)
    return header


def _check_count(count: int, size_bytes: int) -> None:
    if count < 0 or count * LEAST_RECORD_BYTES > size_bytes:
        raise CorruptBatch(f"{count} records cannot lie in {size_bytes} bytes")


def patch(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the log's base offset and the leader's epoch into a batch in place."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)


def stamp_producer(
    batch: bytearray | memoryview,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    is_transactional: bool = False,
) -> None:
    """Write a producer's identity and sequence into a batch in place, and its CRC anew."""
    if is_transactional:
        (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
        _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes | _TRANSACTIONAL)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _stamp_crc(batch)


def stamp_control(batch: bytearray | memoryview) -> None:
    """Mark a batch as one of control records in place, and write its CRC anew."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes | _CONTROL)
    _stamp_crc(batch)


def stamp_log_append_time(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Mark a batch as timed by the broker in place, and write its CRC anew."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes | _LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, timestamp_ms)
    _stamp_crc(batch)


def stamp_max_timestamp(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Write the largest timestamp of a batch's records into its header, and its CRC anew."""
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, timestamp_ms)
    _stamp_crc(batch)


def _stamp_crc(batch: bytearray | memoryview) -> None:
    # The slice must be given back at once: a bytearray with a live view cannot grow.
    with memoryview(batch) as view, view[_ATTRIBUTES_AT:] as covered:
        _CRC.pack_into(batch, _CRC_AT, crc32c(covered))


def iterate_records(batch: Buffer, limit_bytes: int | None = None) -> Iterator[Record]:
    """The records of one whole batch, decompressed to at most `limit_bytes` (default: `limits`).

    The CRC is not looked at. A batch that ends early, has bytes left over or breaks a length is
    CorruptBatch or another WireError, raised while iterating.
    """
    header, payload = _open(batch, limit_bytes)
    return read_records(
        payload,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        # Some clients leave a sequence of 0 in batches that have no producer id.
        header.base_sequence if header.producer_id >= 0 else NO_SEQUENCE,
        header.max_timestamp if header.is_log_append_time else None,
    )


def iterate_places(batch: Buffer, limit_bytes: int | None = None) -> Iterator[Place]:
    """Offset, timestamp and key size of each record, with all checks of `iterate_records`."""
    return chain.from_iterable(iterate_place_runs(batch, limit_bytes))


def iterate_place_runs(batch: Buffer, limit_bytes: int | None = None) -> Iterator[list[Place]]:
    """The same in runs of a few, perhaps none, for those who have others to serve in between.

    The batch is opened at once, and not held afterwards.
    """
    header, payload = _open(batch, limit_bytes)
    return scan_places(
        payload,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
    )


def recompress(batch: Buffer, codec: Codec, max_timestamp_ms: int) -> bytearray:
    """One whole batch with its records packed by another codec; they themselves are not looked at.

    Producer, sequence, offsets and the attributes' other bits are kept. The largest timestamp is
    the caller's, for a header may name another than the records have. The CRC is made anew.
    """
    header, payload = _open(batch, None)
    packed = compress(codec, payload)
    result = bytearray(memoryview(batch)[:HEADER_BYTES])
    _LENGTH.pack_into(result, _LENGTH_AT, _BATCH_LENGTH_MIN + len(packed))
    _ATTRIBUTES.pack_into(result, _ATTRIBUTES_AT, header.attributes & ~CODEC_BITS | codec)
    _MAX_TIMESTAMP.pack_into(result, _MAX_TIMESTAMP_AT, max_timestamp_ms)
    result += packed
    _stamp_crc(result)
    return result


def _open(batch: Buffer, limit_bytes: int | None) -> tuple[BatchHeader, bytes]:
    """The header and the records as they are without compression."""
    header = read_header(batch)
    if header.size_bytes != len(batch):
        raise CorruptBatch(f"batch of {header.size_bytes} bytes in a space of {len(batch)}")
    payload: Buffer = memoryview(batch)[HEADER_BYTES:]
    if header.attributes & CODEC_BITS:
        payload = decompress(header.codec, payload, limit_bytes or LIMITS.decompressed_bytes_max)
    _check_count(header.record_count, len(payload))
    return header, bytes(payload)


def with_records(header: BatchHeader, packed: Buffer) -> bytearray:
    """One batch of these records, packed by the header's codec, under a header that holds but for
    its length and its CRC: they are made anew."""
    whole = header._replace(batch_length=_BATCH_LENGTH_MIN + len(packed), crc=0)
    batch = bytearray(_HEADER.pack(*whole))
    batch += packed
    _stamp_crc(batch)
    return batch


def build_batch(
    records: Sequence[NewRecord],
    *,
    codec: int = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytearray:
    """One batch of at least one record, complete with its CRC."""
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0].timestamp_ms
    max_timestamp = base_timestamp
    payload = bytearray()
    for index, record in enumerate(records):
        timestamp = record.timestamp_ms
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        append_record(
            payload, index, timestamp - base_timestamp, record.key, record.value, record.headers
        )
    return assemble_batch(
        payload,
        record_count=len(records),
        base_timestamp_ms=base_timestamp,
        max_timestamp_ms=max_timestamp,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
    )


def assemble_batch(
    payload: Buffer,
    *,
    record_count: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    codec: int = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytearray:
    """One batch around records that are encoded already, with offset deltas from 0 in order."""
    packed = compress(codec, payload)
    attributes = int(codec) | (_TRANSACTIONAL if is_transactional else 0)
    batch = bytearray(HEADER_BYTES)
    _HEADER.pack_into(
        batch, 0, base_offset, _BATCH_LENGTH_MIN + len(packed), partition_leader_epoch, MAGIC, 0,
        attributes, record_count - 1, base_timestamp_ms, max_timestamp_ms,
        producer_id, producer_epoch, base_sequence, record_count,
    )  # fmt: skip
    batch += packed
    _stamp_crc(batch)
    return batch
