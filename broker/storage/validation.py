"""Validates a client's batch before it enters the log.

This module is pure. Every refusal is raised before anything changes, with Kafka's error code for
the same cause. Records are checked one by one only in three cases:

- the client had to log in, so it is not trusted (decision 0232);
- a topic setting requires it: keys on a compacted topic, a minimum timestamp, its own codec;
- the header's largest timestamp is out of bounds or cannot be the largest (decision 0015).

This can take a hundred times as long as all other checks. So `check_client_batch` only reports that
the check is needed, and `look_at_records` does it in small steps. As a consequence, a trusted
client can store a batch with a valid header and checksum whose records no reader can decode.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from broker.config import LOG_APPEND_TIME, PRODUCERS_CODEC, LogConfig
from broker.settings import LONG_MAX
from broker.storage.errors import InvalidRecords, RecordsUnseen
from broker.storage.outcomes import CheckedRecords
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.types import NO_TIMESTAMP
from protocol.wire.compression import Codec
from protocol.wire.record import Place
from protocol.wire.records import (
    CODEC_BITS,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    check_crc,
    iterate_place_runs,
)

AT_ONCE_BYTES_MAX = 16 << 10
"""The size up to which `look_at_once` checks a batch, both as sent and decompressed. The smallest
records of this size take some milliseconds."""

RECORD_ERRORS_MAX = 100
"""The largest number of records that one refusal names. A batch can have a million invalid
records."""

CODEC_MAX = int(max(Codec))

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""The values of `compression.type`."""


def check_client_batch(
    batch: memoryview,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    seen: CheckedRecords | None = None,
    *,
    is_trusted: bool = True,
) -> None:
    """Refuse a client's batch that is damaged, too large, or not what a producer may send.

    Raises RecordsUnseen if the records must be checked first, and `look_at_records` has not checked
    them under these same settings (`seen`). The records of a client that is not trusted are always
    checked.
    """
    size_bytes = len(batch)
    if header.magic != MAGIC:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the batch has record format (magic) {header.magic}, expected 2",
        )
    if header.size_bytes != size_bytes:
        if HEADER_BYTES <= header.size_bytes < size_bytes:
            raise ApiError(
                ErrorCode.INVALID_RECORD, "the request has more than one batch for one partition"
            )
        # Not CORRUPT_MESSAGE, because the client would retry this batch forever.
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            "the batch is longer than the data of the request for this partition",
        )
    check_size(size_bytes, config)
    if not check_crc(batch):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch is wrong")
    if header.base_offset != 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the base offset of the batch is {header.base_offset}, expected 0",
        )
    check_counts(header)
    if header.attributes & CODEC_BITS > CODEC_MAX:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            "the attributes of the batch name an unknown compression codec",
        )
    # The attribute bits 4 (transactional) and 5 (control).
    if header.attributes & 0x30 and (header.is_control or header.producer_id < 0):
        _refuse_unowned(header)
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise ApiError(
            ErrorCode.INVALID_RECORD, "an idempotent batch needs a sequence and a producer epoch"
        )
    if header.is_log_append_time:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "only the broker may set LogAppendTime")
    is_seen = seen is not None and seen.under is config
    if not is_seen and (not is_trusted or _must_look(header, config, now_ms)):
        raise RecordsUnseen


def _must_look(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Return True if the records must be checked even if the client is trusted."""
    return (
        config.is_compacted
        or must_repack(header, config)
        or _must_check_timestamps(header, config, now_ms)
    )


def must_repack(header: BatchHeader, config: LogConfig) -> bool:
    """Return True if the topic stores the batch in a codec other than the batch's own."""
    name = config.compression_type
    return name != PRODUCERS_CODEC and header.attributes & CODEC_BITS != CODECS[name]


def check_size(size_bytes: int, config: LogConfig) -> None:
    """Refuse a client's batch for its size, either as sent or as it would be stored."""
    if size_bytes > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size_bytes} bytes; max.message.bytes is {config.max_message_bytes}",
        )
    if size_bytes > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {size_bytes} bytes; segment.bytes is {config.segment_bytes}",
        )


def check_own_batch(batch: memoryview, header: BatchHeader, config: LogConfig) -> None:
    """Refuse a batch that the broker made, only for errors that would break the log."""
    if header.magic != MAGIC or header.size_bytes != len(batch):
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            "the broker's own append has more or less than one whole batch",
        )
    if header.size_bytes > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {header.size_bytes} bytes; segment.bytes is {config.segment_bytes}",
        )
    check_counts(header)


def check_counts(header: BatchHeader) -> None:
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the batch has {count} records, which does not fit its last offset delta "
            f"{header.last_offset_delta}",
        )


def _must_check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Return True if the header does not show whether every record's timestamp is in bounds.

    The header's largest timestamp shows whether any is too new, but not whether any is too old. The
    base timestamp is the first record's, so a largest timestamp below it is wrong: some clients
    never set the largest one.
    """
    if config.message_timestamp_type == LOG_APPEND_TIME:
        return False
    newest_ms = now_ms + config.message_timestamp_after_max_ms
    is_timely = header.base_timestamp <= header.max_timestamp <= newest_ms
    return not is_timely or config.message_timestamp_before_max_ms != LONG_MAX


def _refuse_unowned(header: BatchHeader) -> None:
    if header.is_control:
        raise ApiError(
            ErrorCode.INVALID_RECORD, "the batch is a control batch, which clients may not write"
        )
    raise ApiError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")


def look_at_records(
    batch: memoryview, config: LogConfig, now_ms: int, limit_bytes: int | None = None
) -> Generator[bool, None, CheckedRecords]:
    """Check the records of a batch. The refusal of a batch names its invalid records by number.

    This call decompresses the batch, to at most `limit_bytes` (default: `limits`), so the caller
    can release the batch afterwards. The caller runs the returned generator, which checks the
    records in steps of some milliseconds. It yields False after each step and returns the result.
    """
    try:
        runs = iterate_place_runs(batch, limit_bytes)
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
    # A delta can lead to a timestamp that does not fit into the header.
    oldest_ms, newest_ms = -LONG_MAX - 1, LONG_MAX
    if config.message_timestamp_type != LOG_APPEND_TIME:
        oldest_ms = now_ms - config.message_timestamp_before_max_ms
        newest_ms = min(newest_ms, now_ms + config.message_timestamp_after_max_ms)
    return _look(runs, (oldest_ms, newest_ms), config)


def look_at_once(
    batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> CheckedRecords:
    """Check the records of a small batch in one step.

    Raises ApiError if the batch is large, if it is invalid, or if the topic stores batches in
    another codec. The caller need not have checked the header.
    """
    if len(batch) > AT_ONCE_BYTES_MAX or must_repack(header, config):
        raise ApiError(ErrorCode.INVALID_RECORD, "the batch cannot be checked at once")
    steps = look_at_records(batch, config, now_ms, AT_ONCE_BYTES_MAX)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            seen: CheckedRecords = end.value
            return seen


def _look(
    runs: Iterator[list[Place]],
    bounds: tuple[int, int],
    config: LogConfig,
) -> Generator[bool, None, CheckedRecords]:
    untimely: list[int] = []
    keyless: list[int] = []
    count = 0
    max_timestamp_ms = -1
    try:
        for run in runs:
            if not run:
                yield False
                continue
            offsets, stamps, key_sizes = zip(*run, strict=True)
            if max(stamps) > bounds[1] or min(stamps) < bounds[0]:
                untimely += _untimely(stamps, count, *bounds)
            if config.is_compacted and min(key_sizes) < 0:
                keyless += [number for number, size in enumerate(key_sizes, count) if size < 0]
            end = count + len(run)
            if offsets != tuple(range(count, end)):
                raise ApiError(
                    ErrorCode.INVALID_RECORD, "the offsets of the records in the batch have gaps"
                )
            max_timestamp_ms = max(max_timestamp_ms, *stamps)
            count = end
            yield False
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
    if untimely:
        _refuse(untimely, ErrorCode.INVALID_TIMESTAMP, "the timestamp is out of the topic's bounds")
    if keyless:
        _refuse(keyless, ErrorCode.INVALID_RECORD, "a record of a compacted topic needs a key")
    return CheckedRecords(config, max_timestamp_ms)


def _untimely(stamps: Sequence[int], first: int, oldest_ms: int, newest_ms: int) -> list[int]:
    """Return the numbers of the records that are out of bounds. -1 stands for "no timestamp" and
    passes."""
    return [
        number
        for number, stamp in enumerate(stamps, first)
        if stamp > newest_ms or (stamp < oldest_ms and stamp != NO_TIMESTAMP)
    ]


def _refuse(numbers: list[int], code: ErrorCode, reason: str) -> None:
    named = [(number, reason) for number in numbers[:RECORD_ERRORS_MAX]]
    raise InvalidRecords(code, f"{len(numbers)} records of the batch are invalid: {reason}", named)
