"""A client's batch as its topic stores it, once its records have been looked at.

Floor: storage. What Kafka's LogValidator does: where the topic has a codec of its own
(`compression.type`) the records are packed anew, and a largest timestamp in the header that no
record has (some clients never set it) is corrected. The log, and so every reader, has only the
result. The broker's own batches, markers among them, stay as they are.
"""

from __future__ import annotations

from functools import partial

from broker.config import LOG_APPEND_TIME, LogConfig
from broker.storage.validation import CODECS, check_size, must_repack
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.wire.records import BatchHeader, read_header, recompress, stamp_max_timestamp

ANY_LEVEL_BYTES_MAX = 64 << 10
"""A batch of up to so many bytes of records is packed at whatever level the topic names."""

LEVEL_BYTES_MAX = 1 << 20
"""A larger batch is packed at the codec's default level, because packing is one step of the loop.
Up to here zstd goes no higher than ZSTD_LARGE_LEVEL_MAX: at level 22 a megabyte takes seconds."""

ZSTD_LARGE_LEVEL_MAX = 9


def level_for(config: LogConfig, size_bytes: int) -> int | None:
    """Return the level at which a topic packs so many bytes of records; None is the default."""
    level = config.compression_level
    if level is None or size_bytes <= ANY_LEVEL_BYTES_MAX:
        return level
    if size_bytes > LEVEL_BYTES_MAX:
        return None
    return min(level, ZSTD_LARGE_LEVEL_MAX) if config.compression_type == "zstd" else level


def as_stored(
    batch: memoryview, header: BatchHeader, config: LogConfig, max_timestamp_ms: int
) -> tuple[memoryview, BatchHeader]:
    """The batch as it enters the log, mostly itself; refuses by ApiError.

    `max_timestamp_ms` is the largest of its records.
    """
    if must_repack(header, config):
        return _repack(batch, config, max_timestamp_ms)
    # A topic that stamps its records does so for each batch, whatever it says.
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
