"""Whether a client's batch may enter the log, and as what.

Floor: storage. Pure. Every refusal is raised before anything changes, with the code that Kafka
gives for that cause. Work per record is done only where a topic's settings ask for it: keys on a
compacted topic, and timestamps once the header shows that one is out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.config import LOG_APPEND_TIME, LogConfig
from broker.settings import LONG_MAX
from broker.storage.errors import InvalidRecords
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.wire.compression import Codec
from protocol.wire.record import Place
from protocol.wire.records import HEADER_BYTES, MAGIC, BatchHeader, check_crc, iterate_places

RECORD_ERRORS_MAX = 100
"""Named records in one refusal; a batch may hold a million bad ones."""

CODEC_BITS = 0x07
CODEC_MAX = int(max(Codec))


def check_client_batch(
    batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> None:
    """Refuse a client's batch that is damaged, too large, or not what a producer may send."""
    size_bytes = len(batch)
    if header.magic != MAGIC:
        raise ApiError(ErrorCode.INVALID_RECORD, f"record format {header.magic} is not supported")
    if header.size_bytes != size_bytes:
        if HEADER_BYTES <= header.size_bytes < size_bytes:
            raise ApiError(ErrorCode.INVALID_RECORD, "more than one batch for one partition")
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the batch's length is wrong")
    if size_bytes > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size_bytes} bytes; max.message.bytes is {config.max_message_bytes}",
        )
    if size_bytes > config.segment_bytes:
        raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, "larger than a segment")
    if not check_crc(batch):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the checksum does not match")
    if header.base_offset != 0:
        raise ApiError(ErrorCode.INVALID_RECORD, "the base offset must be 0")
    check_counts(header)
    if header.attributes & CODEC_BITS > CODEC_MAX:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "the attributes name no codec")
    # Bits 4 and 5: transactional and control.
    if header.attributes & 0x30 and (header.is_control or header.producer_id < 0):
        _refuse_unowned(header)
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise ApiError(ErrorCode.INVALID_RECORD, "an idempotent batch without a sequence")
    check_timestamps(batch, header, config, now_ms)
    if config.is_compacted:
        _refuse_records(batch, _lacks_key, ErrorCode.INVALID_RECORD, "compacted topic needs keys")


def check_own_batch(batch: memoryview, header: BatchHeader, config: LogConfig) -> None:
    """Refuse a batch of the broker's own making only for what would break the log."""
    if header.magic != MAGIC or header.size_bytes != len(batch):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "not one whole batch")
    if header.size_bytes > config.segment_bytes:
        raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, "larger than a segment")
    check_counts(header)


def check_counts(header: BatchHeader) -> None:
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{count} records do not agree with last offset delta {header.last_offset_delta}",
        )


def check_timestamps(
    batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> None:
    """Refuse timestamps out of the topic's bounds, naming the records.

    The header's largest timestamp decides whether the records are looked at for the future; a
    bound to the past is off by default and costs a look at every record when it is set.
    """
    if header.is_log_append_time:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "only the log may stamp records as appended")
    if config.message_timestamp_type == LOG_APPEND_TIME:
        return
    newest_ms = now_ms + config.message_timestamp_after_max_ms
    before_max_ms = config.message_timestamp_before_max_ms
    if header.max_timestamp <= newest_ms and before_max_ms == LONG_MAX:
        return
    oldest_ms = now_ms - before_max_ms

    def is_out_of_bounds(record: Place) -> bool:
        # -1 stands for "no timestamp" and passes.
        stamp = record[1]
        return stamp > newest_ms or -1 < stamp < oldest_ms or stamp < -1

    reason = "timestamp out of the topic's bounds"
    _refuse_records(batch, is_out_of_bounds, ErrorCode.INVALID_TIMESTAMP, reason)
    if header.max_timestamp > newest_ms:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, reason)


def _refuse_unowned(header: BatchHeader) -> None:
    if header.is_control:
        raise ApiError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    raise ApiError(ErrorCode.INVALID_RECORD, "a transactional batch without a producer")


def _lacks_key(record: Place) -> bool:
    return record[2] < 0


def _refuse_records(
    batch: memoryview, is_bad: Callable[[Place], bool], code: ErrorCode, reason: str
) -> None:
    try:
        bad = [number for number, record in enumerate(iterate_places(batch)) if is_bad(record)]
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
    if bad:
        named = [(number, reason) for number in bad[:RECORD_ERRORS_MAX]]
        raise InvalidRecords(code, f"{len(bad)} records: {reason}", named)
