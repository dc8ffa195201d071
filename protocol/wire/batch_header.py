"""The header of a record batch: its layout, a read-only view, and in-place changes.

This module is pure. A log, a Produce request and a Fetch response hold the same bytes:

     0  base_offset int64              27  base_timestamp int64
     8  batch_length int32             35  max_timestamp int64
    12  partition_leader_epoch int32   43  producer_id int64
    16  magic int8 (2)                 51  producer_epoch int16
    17  crc uint32                     53  base_sequence int32
    21  attributes int16               57  record_count int32
    23  last_offset_delta int32        61  records, compressed as a whole

`batch_length` counts the bytes after it. The CRC-32C covers everything from the attributes on, so a
leader can write its base offset and epoch without changing it. Attributes: bits 0 to 2 codec, 3
timestamps set by the broker, 4 transactional, 5 control.
"""

from struct import Struct as Packed
from struct import error as StructError
from typing import NamedTuple

from protocol.errors import BufferUnderflow, CorruptBatch, UnsupportedMagic
from protocol.types import NO_SEQUENCE
from protocol.wire.compression import Codec
from protocol.wire.crc32c import crc32c
from protocol.wire.primitives import Buffer

HEADER_BYTES = 61
MAGIC = 2

HEADER = Packed(">qiibIhiqqqhii")
"""The whole header, in the order of `BatchHeader`."""
PLACE = Packed(">qi11xi")
"""Base offset, batch length, last offset delta: the fields needed to find a batch."""
_BASE_OFFSET = Packed(">q")
_LEADER_EPOCH = Packed(">i")
_CRC = Packed(">I")
_ATTRIBUTES = Packed(">h")
_MAX_TIMESTAMP = Packed(">q")
_PRODUCER = Packed(">qhi")

SIZE_BEFORE_LENGTH_ENDS = 12
"""The number of bytes at the start of a batch that its own length does not include."""
_LEADER_EPOCH_AT = 12
MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT = 43
BATCH_LENGTH_MIN = HEADER_BYTES - SIZE_BEFORE_LENGTH_ENDS
"""The batch length of a batch without records."""

CODEC_BITS = 0x07
"""The attribute bits with the codec of the records."""
_LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
"""The attribute bit of a transactional batch."""
_CONTROL = 0x20

SEQUENCE_MAX = 0x7FFFFFFF
"""The largest sequence number. A producer continues with 0 after it."""


class BatchHeader(NamedTuple):
    """The 61 bytes before the records of a batch, decoded but not checked."""

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
    """-1 without an idempotent producer.

    Test this field and not the sequence, because aiokafka sends sequence 0 in batches whose
    producer id is -1.
    """
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch, header included."""
        return SIZE_BEFORE_LENGTH_ENDS + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record, even if compaction has removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 without a producer."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def codec(self) -> Codec:
        """The codec of the records. Raises UnsupportedCodec for unknown bits."""
        return Codec.of(self.attributes & CODEC_BITS)

    @property
    def is_log_append_time(self) -> bool:
        """True if the broker set the timestamps. Then every record has `max_timestamp`."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """True if the batch holds a marker instead of records."""
        return bool(self.attributes & _CONTROL)


# Make the tuple directly, because the method `_make` costs a call and every batch is read here.
_new_header = tuple.__new__


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`. The whole batch need not follow.

    Checks that there are enough bytes, that the format is 2, and that the length is possible.
    """
    try:
        header = _new_header(BatchHeader, HEADER.unpack_from(buffer, position))
    except StructError:
        if len(buffer) - position > MAGIC_AT:
            check_magic(buffer[position + MAGIC_AT])
        left = len(buffer) - position
        text = f"a batch header has {HEADER_BYTES} bytes, but {left} are left"
        raise BufferUnderflow(text) from None
    if header.magic != MAGIC:
        check_magic(header.magic)
    if header.batch_length < BATCH_LENGTH_MIN:
        raise CorruptBatch(f"batch length {header.batch_length} is shorter than a header")
    return header


def check_magic(magic: int) -> None:
    """Raise for message formats before record batches, and for invalid values."""
    if magic in (0, 1):
        raise UnsupportedMagic(f"message format {magic} is not supported, only record batches are")
    if magic != MAGIC:
        raise CorruptBatch(f"the batch has magic {magic}, expected {MAGIC}")


def check_crc(batch: Buffer) -> bool:
    """Return whether the checksum of a whole batch is correct."""
    (stored,) = _CRC.unpack_from(batch, _CRC_AT)
    return bool(crc32c(memoryview(batch)[_ATTRIBUTES_AT:]) == stored)


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
    """Write producer id, epoch and sequence into a batch in place, and update its CRC."""
    if is_transactional:
        (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
        _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes | TRANSACTIONAL)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    stamp_crc(batch)


def stamp_control(batch: bytearray | memoryview) -> None:
    """Mark a batch as control batch in place, and update its CRC."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes | _CONTROL)
    stamp_crc(batch)


def stamp_log_append_time(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Give a batch the broker's timestamp in place, and update its CRC."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes | _LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, timestamp_ms)
    stamp_crc(batch)


def stamp_max_timestamp(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Write the largest timestamp of a batch's records into its header, and update its CRC."""
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, timestamp_ms)
    stamp_crc(batch)


def stamp_crc(batch: bytearray | memoryview) -> None:
    """Compute the CRC of a batch and write it into the batch."""
    # The slice must be released at once, because a bytearray with a live view cannot grow.
    with memoryview(batch) as view, view[_ATTRIBUTES_AT:] as covered:
        _CRC.pack_into(batch, _CRC_AT, crc32c(covered))
