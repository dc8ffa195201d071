"""A client's batch as its topic stores it, once its records have been looked at.

Floor: storage. What Kafka's LogValidator does: where the topic has a codec of its own
(`compression.type`) the records are packed anew, and a largest timestamp in the header that no
record has (some clients never set it) is corrected. The log, and so every reader, has only the
result. The broker's own batches, markers among them, stay as they are.
"""

from __future__ import annotations

from broker.config import LOG_APPEND_TIME, LogConfig
from broker.storage.validation import CODECS, check_size, must_repack
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.wire.records import BatchHeader, read_header, recompress, stamp_max_timestamp


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
        packed = recompress(batch, CODECS[config.compression_type], max_timestamp_ms)
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
    check_size(len(packed), config)
    return memoryview(packed), read_header(packed)
