"""Record batches of format 2: find them in a buffer, read their records, build them.

This module is pure. `batch_header` has the layout of a batch, and `record` the layout of records.
Most users need only the header.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from protocol.errors import CorruptBatch
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from protocol.wire.batch_header import (
    BATCH_LENGTH_MIN,
    CODEC_BITS,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    PLACE,
    SEQUENCE_MAX,
    SIZE_BEFORE_LENGTH_ENDS,
    TRANSACTIONAL,
    BatchHeader,
    check_crc,
    check_magic,
    patch,
    read_header,
    stamp_control,
    stamp_crc,
    stamp_log_append_time,
    stamp_max_timestamp,
    stamp_producer,
)
from protocol.wire.compression import Codec, compress, decompress
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


def iterate_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield every whole batch of a buffer, with its bytes as a slice.

    A fetch can end in the middle of a batch, so a partial batch at the end is skipped. Impossible
    lengths and old formats raise an error.
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
    if end - position > MAGIC_AT:
        # A message of an old format can be shorter than our header. It must raise an error, so it
        # is not skipped.
        check_magic(view[position + MAGIC_AT])


def check_batch(batch: Buffer) -> BatchHeader:
    """Return the header of a batch that fills `batch` exactly and is consistent.

    A broker first checks every batch with this: size, CRC, and a record count that fits the offsets
    and bytes. A fault raises CorruptBatch.
    """
    header = read_header(batch)
    if header.size_bytes != len(batch):
        raise CorruptBatch(f"found {len(batch)} bytes, but the batch has {header.size_bytes}")
    if not check_crc(batch):
        raise CorruptBatch("the batch's CRC-32C is wrong")
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise CorruptBatch(
            f"{count} records do not agree with last offset delta {header.last_offset_delta}"
        )
    if not header.attributes & CODEC_BITS:
        _check_count(count, len(batch) - HEADER_BYTES)
    return header


def _check_count(count: int, size_bytes: int) -> None:
    if count < 0 or count * LEAST_RECORD_BYTES > size_bytes:
        raise CorruptBatch(f"{size_bytes} bytes are too few for {count} records")


def iterate_records(batch: Buffer, limit_bytes: int | None = None) -> Iterator[Record]:
    """Yield the records of one whole batch, decompressed to at most `limit_bytes` (default:
    `limits`).

    The CRC is not checked. A batch that ends early, has extra bytes or a wrong length raises
    CorruptBatch or another WireError during the iteration.
    """
    header, payload = _open(batch, limit_bytes)
    return read_records(
        payload,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        # Some clients send sequence 0 in batches without a producer id.
        header.base_sequence if header.producer_id >= 0 else NO_SEQUENCE,
        header.max_timestamp if header.is_log_append_time else None,
    )


def iterate_places(batch: Buffer, limit_bytes: int | None = None) -> Iterator[Place]:
    """Yield offset, timestamp and key size of each record, with all checks of `iterate_records`."""
    return chain.from_iterable(iterate_place_runs(batch, limit_bytes))


def iterate_place_runs(batch: Buffer, limit_bytes: int | None = None) -> Iterator[list[Place]]:
    """Yield offset, timestamp and key size of each record in short lists, which can be empty.

    The caller can do other work between two lists. The batch is decompressed at once, and not
    referenced afterwards.
    """
    header, payload = _open(batch, limit_bytes)
    return scan_places(
        payload,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
    )


def recompress(
    batch: Buffer,
    codec: Codec,
    max_timestamp_ms: int,
    level_of: Callable[[int], int | None] = lambda size_bytes: None,
) -> bytearray:
    """Return a whole batch with the same records, compressed by another codec.

    The records are not decoded. Producer, sequence, offsets and the other attribute bits are kept.
    The caller gives the largest timestamp, because the header's value can differ from the records'.
    `level_of` returns the level for a payload size. The CRC is computed again.
    """
    header, payload = _open(batch, None)
    packed = compress(codec, payload, level_of(len(payload)))
    attributes = header.attributes & ~CODEC_BITS | codec
    return with_records(
        header._replace(attributes=attributes, max_timestamp=max_timestamp_ms), packed
    )


def _open(batch: Buffer, limit_bytes: int | None) -> tuple[BatchHeader, bytes]:
    """Return the header of a batch and its decompressed records."""
    header = read_header(batch)
    if header.size_bytes != len(batch):
        raise CorruptBatch(f"found {len(batch)} bytes, but the batch has {header.size_bytes}")
    payload: Buffer = memoryview(batch)[HEADER_BYTES:]
    if header.attributes & CODEC_BITS:
        payload = decompress(header.codec, payload, limit_bytes or LIMITS.decompressed_bytes_max)
    _check_count(header.record_count, len(payload))
    return header, bytes(payload)


def with_records(header: BatchHeader, packed: Buffer) -> bytearray:
    """Return a batch with this header and these compressed records. Length and CRC are computed."""
    whole = header._replace(batch_length=BATCH_LENGTH_MIN + len(packed), crc=0)
    batch = bytearray(HEADER.pack(*whole))
    batch += packed
    stamp_crc(batch)
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
    """Return a batch of at least one record, complete with its CRC."""
    if not records:
        raise ValueError("found no records, expected at least one in a batch")
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
    """Return a batch of records that are encoded already, with offset deltas from 0 in order."""
    packed = compress(codec, payload)
    attributes = int(codec) | (TRANSACTIONAL if is_transactional else 0)
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch, 0, base_offset, BATCH_LENGTH_MIN + len(packed), partition_leader_epoch, MAGIC, 0,
        attributes, record_count - 1, base_timestamp_ms, max_timestamp_ms,
        producer_id, producer_epoch, base_sequence, record_count,
    )  # fmt: skip
    batch += packed
    stamp_crc(batch)
    return batch
