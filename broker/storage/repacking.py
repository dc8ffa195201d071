"""A client's batch in the codec that its topic asks for (`compression.type`).

Floor: storage. Pure, from a batch to a batch. What Kafka's LogValidator does where the codecs
differ: the records are opened and looked at, then packed anew; the log, and so every reader, has
only the result. The broker's own batches, markers among them, stay as they are.
"""

from __future__ import annotations

from broker.config import LogConfig
from broker.storage.validation import CODECS, check_size, must_repack
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.wire.records import BatchHeader, read_header, recompress


def repack(
    batch: memoryview, header: BatchHeader, config: LogConfig, max_timestamp_ms: int
) -> tuple[memoryview, BatchHeader]:
    """The batch as the topic stores it, itself where it is so already; refuses by ApiError.

    Its records have been looked at, and this is the largest of their timestamps.
    """
    if not must_repack(header, config):
        return batch, header
    try:
        packed = recompress(batch, CODECS[config.compression_type], max_timestamp_ms)
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
    check_size(len(packed), config)
    return memoryview(packed), read_header(packed)
