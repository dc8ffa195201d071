"""Format log files, indexes and snapshots as the lines that Kafka's tool prints.

This module is pure.
"""

from collections.abc import Iterator

from appliance.dump import decoders, indexes
from appliance.dump.decoders import Decoder
from appliance.dump.scan import (
    DECOMPRESSED_BYTES_MAX,
    DELETE_HORIZON,
    Batches,
    FoundBatch,
    unopened,
)
from broker.quorum.snapshot import SnapshotId
from broker.storage import producer_snapshot
from protocol.errors import WireError
from protocol.wire.record import Record, read_marker
from protocol.wire.records import CODEC_BITS, Codec, iterate_records


def log_lines(
    buffer: memoryview,
    name: int | SnapshotId,
    *,
    decoder: Decoder | None = None,
    with_records: bool = False,
    with_metadata: bool = True,
    bytes_max: int | None = None,
) -> Iterator[str]:
    """Return the lines of a log file or a metadata snapshot: each batch, and its records if wanted.

    A batch whose records cannot be read gets a line that says so, and the lines of the later
    batches follow. `name` is the base offset or the snapshot id that the file's name contains.
    """
    if isinstance(name, SnapshotId):
        yield f"Snapshot end offset: {name.end_offset}, epoch: {name.epoch}"
    else:
        yield f"Log starting offset: {name}"
    batches = Batches(buffer, bytes_max)
    for batch in batches:
        yield batch_line(batch)
        if with_records and batch.is_valid:
            try:
                for record in iterate_records(batch.data, DECOMPRESSED_BYTES_MAX):
                    yield record_line(batch, record, decoder, with_metadata=with_metadata)
            except WireError as error:
                yield f"Found a fault: {unopened(batch, str(error) or type(error).__name__)}"


def left_line(buffer: memoryview, file: str) -> str | None:
    """Return Kafka's line about bytes after the last batch; None if there are none, or only zeros.

    The file of an active log can be longer than its batches. Kafka's tool stops after the last
    batch.
    """
    batches = Batches(buffer)
    for _ in batches:
        pass
    if batches.fault is None:
        return None
    return f"Found {batches.left_bytes} invalid bytes at the end of {file}"


def batch_line(batch: FoundBatch) -> str:
    """Return the line of one batch's header."""
    header = batch.header
    horizon = "OptionalLong.empty"
    if header.attributes & DELETE_HORIZON:
        horizon = f"OptionalLong[{header.base_timestamp}]"
    bits = header.attributes & CODEC_BITS
    codec = Codec(bits).name.lower() if bits in list(Codec) else f"unknown({bits})"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset}"
        f" count: {header.record_count} baseSequence: {header.base_sequence}"
        f" lastSequence: {header.last_sequence} producerId: {header.producer_id}"
        f" producerEpoch: {header.producer_epoch}"
        f" partitionLeaderEpoch: {header.partition_leader_epoch}"
        f" isTransactional: {_flag(header.is_transactional)} isControl: {_flag(header.is_control)}"
        f" deleteHorizonMs: {horizon} position: {batch.position}"
        f" {_time_name(batch)}: {header.max_timestamp} size: {header.size_bytes}"
        f" magic: {header.magic} compresscodec: {codec} crc: {header.crc}"
        f" isvalid: {_flag(batch.is_valid)}"
    )


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _time_name(batch: FoundBatch) -> str:
    return "LogAppendTime" if batch.header.is_log_append_time else "CreateTime"


def record_line(
    batch: FoundBatch, record: Record, decoder: Decoder | None, *, with_metadata: bool
) -> str:
    """Return the line of one record; a decoder's output follows the record's own fields."""
    words = ["|"]
    if with_metadata:
        names = ",".join(name for name, _ in record.headers)
        words += [
            f"offset: {record.offset} {_time_name(batch)}: {record.timestamp_ms}",
            f"keySize: {_size(record.key)} valueSize: {_size(record.value)}",
            f"sequence: {record.sequence} headerKeys: [{names}]",
        ]
    if batch.header.is_control:
        marker = read_marker(record)
        if marker is None:
            words.append(decoders.control(record))
        else:
            kind = "COMMIT" if marker.is_commit else "ABORT"
            words.append(f"endTxnMarker: {kind} coordinatorEpoch: {marker.coordinator_epoch}")
        return " ".join(words)
    if decoder is not None:
        key, payload = decoder(record)
        words += [f"key: {key}"] if key is not None else []
        words += [f"payload: {payload}"] if payload is not None else []
    return " ".join(words)


def _size(part: bytes | None) -> int:
    return -1 if part is None else len(part)


def offset_index_lines(data: bytes, base_offset: int) -> Iterator[str]:
    """Return the lines of an offset index."""
    for relative, position in indexes.offset_entries(data):
        yield f"offset: {base_offset + relative} position: {position}"


def time_index_lines(data: bytes, base_offset: int) -> Iterator[str]:
    """Return the lines of a time index."""
    for timestamp, relative in indexes.time_entries(data):
        yield f"timestamp: {timestamp} offset: {base_offset + relative}"


def txn_index_lines(data: bytes) -> Iterator[str]:
    """Return the lines of a transaction index. Raises ValueError."""
    for entry in indexes.read_txn_index(data):
        yield (
            f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset}"
            f" lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )


def snapshot_lines(data: bytes) -> Iterator[str]:
    """Return the lines of a producer snapshot. Raises ValueError."""
    for one in producer_snapshot.decode(data):
        open_at = one.current_txn_first_offset
        shown = "OptionalLong.empty" if open_at < 0 else f"OptionalLong[{open_at}]"
        line = (
            f"producerId: {one.producer_id} producerEpoch: {one.producer_epoch}"
            f" coordinatorEpoch: {one.coordinator_epoch} currentTxnFirstOffset: {shown}"
            f" lastTimestamp: {one.timestamp_ms} "
        )
        if one.last_offset >= 0:
            first = one.last_sequence - one.offset_delta if one.last_sequence >= 0 else -1
            line += (
                f"firstSequence: {first} lastSequence: {one.last_sequence}"
                f" lastOffset: {one.last_offset} offsetDelta: {one.offset_delta}"
                f" timestamp: {one.timestamp_ms}"
            )
        yield line


DECODERS: dict[str, Decoder] = {
    "offsets": decoders.offsets,
    "transactions": decoders.transactions,
    "metadata": decoders.metadata,
    "plain": decoders.plain,
}
