"""An error in a partition's part of a Produce answer.

Room: produce. Pure.
"""

from __future__ import annotations

from broker.storage.errors import InvalidRecords
from protocol.errors import ApiError, BufferUnderflow, ErrorCode, UnsupportedMagic, WireError
from protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse


def refuse(answer: PartitionProduceResponse, error: ApiError | WireError) -> None:
    """Write an error into a partition's part of the answer."""
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1
    answer.error_message = error.message if isinstance(error, ApiError) else str(error)
    if isinstance(error, ApiError):
        answer.error_code = error.code
    elif isinstance(error, (UnsupportedMagic, BufferUnderflow)):
        answer.error_code = ErrorCode.INVALID_RECORD
    else:
        answer.error_code = ErrorCode.CORRUPT_MESSAGE
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in error.record_errors
        ]
