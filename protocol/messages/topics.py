"""The messages to create, delete and grow topics, and to delete records.

This module has only data classes.
"""

from protocol.messages.api import ApiKey
from protocol.types import Uuid
from protocol.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid_,
)


class CreatableReplicaAssignment(Struct):
    """The brokers of one partition, if the caller chooses them."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


class CreatableTopicConfig(Struct):
    """One setting of a topic to create."""

    name: str = string()
    value: str | None = string(nullable=0)


class CreatableTopic(Struct):
    """One topic to create."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Message, api_key=ApiKey.CREATE_TOPICS, versions=(2, 7), flexible=5):
    """Topics to create.

    From version 4 on, -1 partitions or replicas stand for the broker's default.
    """

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


class CreatableTopicConfigs(Struct):
    """One setting in effect."""

    name: str = string()
    value: str | None = string(nullable=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    """The result for one topic of a CreateTopics request.

    `configs` can be null on the wire, but Java clients fail on null and on sources of -1: send real
    sources or an empty list.
    """

    name: str = string()
    topic_id: Uuid = uuid_(since=7, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    topic_config_error_code: int = int16(since=5, tag=0, ignorable=True)
    num_partitions: int = int32(since=5, default=-1, ignorable=True)
    replication_factor: int = int16(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, since=5, nullable=5, ignorable=True
    )


class CreateTopicsResponse(Message, api_key=ApiKey.CREATE_TOPICS, versions=(2, 7), flexible=5):
    """The result of a CreateTopics request by topic.

    Version 5 adds the settings in effect, 7 topic ids.
    """

    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


class DeleteTopicState(Struct):
    """One topic, by name or by id."""

    name: str | None = string(nullable=0, default=None)
    topic_id: Uuid = uuid_()


class DeleteTopicsRequest(Message, api_key=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4):
    """Topics to delete: `topic_names` up to version 5, `topics` by name or id from version 6 on."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(string, until=5, ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    """The result for one topic of a DeleteTopics request."""

    name: str | None = string(nullable=6)
    topic_id: Uuid = uuid_(since=6, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=5, nullable=5, default=None, ignorable=True)


class DeleteTopicsResponse(Message, api_key=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4):
    """The result of a DeleteTopics request by topic."""

    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


class CreatePartitionsAssignment(Struct):
    """The brokers of one added partition."""

    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Struct):
    """One topic and its new number of partitions."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable=0
    )


class CreatePartitionsRequest(
    Message, api_key=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible=2
):
    """Topics that get more partitions."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    """The result for one topic of a CreatePartitions request."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class CreatePartitionsResponse(
    Message, api_key=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible=2
):
    """The result of a CreatePartitions request, for every requested topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


class DeleteRecordsPartition(Struct):
    """One partition and its new log start offset; -1 means the high watermark."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    """One topic of a DeleteRecordsRequest."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Message, api_key=ApiKey.DELETE_RECORDS, versions=(0, 2), flexible=2):
    """Delete the records below the given offsets."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(Struct):
    """The result for one partition of a DeleteRecords request: its log start offset, or -1 with an
    error."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Struct):
    """One topic of a DeleteRecordsResponse."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Message, api_key=ApiKey.DELETE_RECORDS, versions=(0, 2), flexible=2):
    """The result of a DeleteRecords request by partition."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
