"""The messages of Produce, which appends one record batch per partition.

This module has only data classes. Versions 0 to 2 are offered but have no class: they use message
formats 0 and 1, and a broker refuses them.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import (
    Message,
    Records,
    Struct,
    array,
    int16,
    int32,
    int64,
    records_,
    string,
)


class PartitionProduceData(Struct):
    """The batch for one partition: exactly one batch of format 2."""

    index: int = int32()
    records: Records = records_(nullable=0)


class TopicProduceData(Struct):
    """One topic of a ProduceRequest."""

    name: str = string()
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, api_key=ApiKey.PRODUCE, versions=(3, 9), flexible=9):
    """Batches to append. Version 7 allows zstd, 9 is flexible.

    `acks` is 0 for no answer, 1 for an answer after the leader has appended the batch, and -1 for
    an answer after all in-sync replicas have it.
    """

    transactional_id: str | None = string(nullable=0, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """A record that was refused, by its index in the batch."""

    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable=0, default=None)


class PartitionProduceResponse(Struct):
    """The result for one partition of a Produce request; `base_offset` is -1 with an error."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, since=8, ignorable=True
    )
    error_message: str | None = string(since=8, nullable=8, default=None, ignorable=True)


class TopicProduceResponse(Struct):
    """One topic of a ProduceResponse."""

    name: str = string()
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class ProduceResponse(Message, api_key=ApiKey.PRODUCE, versions=(3, 9), flexible=9):
    """The offsets of the appended batches.

    Version 5 adds the log start offset, 8 errors by record.
    """

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
