"""Converts a client's batch to the form in which its topic stores it, after its records were
checked.

This module does the work of Kafka's LogValidator. If the topic has its own codec
(`compression.type`), the records are compressed again. The largest timestamp in the header is
corrected if no record has it, because some clients never set it. Only the result enters the log.
Batches of the broker, such as markers, are not changed.
"""

from __future__ import annotations

from functools import partial

from broker.config import LOG_APPEND_TIME, LogConfig
from broker.storage.validation import CODECS, check_size, must_repack
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.wire.records import BatchHeader, read_header, recompress, stamp_max_timestamp

ANY_LEVEL_BYTES_MAX = 64 << 10
"""The number of bytes of records up to which a batch is compressed at the topic's level."""

LEVEL_BYTES_MAX = 1 << 20
"""The number of bytes of records above which a batch is compressed at the codec's default level,
because compressing blocks the event loop.

Up to this size zstd uses at most ZSTD_LARGE_LEVEL_MAX, because a megabyte at level 22 takes
seconds.
"""

ZSTD_LARGE_LEVEL_MAX = 9


def level_for(config: LogConfig, size_bytes: int) -> int | None:
    """Return the level at which a topic compresses a batch of this size; None means the codec's
    default."""
    level = config.compression_level
    if level is None or size_bytes <= ANY_LEVEL_BYTES_MAX:
        return level
    if size_bytes > LEVEL_BYTES_MAX:
        return None
    return min(level, ZSTD_LARGE_LEVEL_MAX) if config.compression_type == "zstd" else level


def as_stored(
    batch: memoryview, header: BatchHeader, config: LogConfig, max_timestamp_ms: int
) -> tuple[memoryview, BatchHeader]:
    """Return the batch to append, usually unchanged. Raises ApiError.

    `max_timestamp_ms` is the largest timestamp of its records.
    """
    if must_repack(header, config):
        return _repack(batch, config, max_timestamp_ms)
    # A topic with LogAppendTime overwrites the timestamps of every batch, so they need no
    # correction.
    is_stamped = config.message_timestamp_type == LOG_APPEND_TIME
    if not is_stamped and header.max_timestamp != max_timestamp_ms:
        stamp_max_timestamp(batch, max_timestamp_ms)
        header = header._replace(max_timestamp=max_timestamp_ms)
    return batch, header


def _repack(
    batch: memoryview, config: LogConfig, max_timestamp_ms: int
) -> tuple[memoryview, BatchHeader]:
    try:
        packed = recompress(
            batch, CODECS[config.compression_type], max_timestamp_ms, partial(level_for, config)
        )
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
    check_size(len(packed), config)
    return memoryview(packed), read_header(packed)
