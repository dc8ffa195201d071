"""Brokers, topics and their partitions, as clients see them.

This module has only data classes.
"""

from protocol.messages.api import ApiKey
from protocol.types import Uuid
from protocol.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    string,
    struct,
    uuid_,
)


class MetadataRequestTopic(Struct):
    """One topic, by name, or from version 12 on by id with the name None."""

    topic_id: Uuid = uuid_(since=10, ignorable=True)
    name: str | None = string(nullable=10)


class MetadataRequest(Message, api_key=ApiKey.METADATA, versions=(0, 12), flexible=9):
    """The topics to describe. Version 4 adds the permission to create them, 10 topic ids (12 by id
    alone).

    `topics` None means all topics. An empty list means none, except in version 0, where it means
    all.
    """

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


class MetadataResponseBroker(Struct):
    """One broker, with the address of the listener on which the request came."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(since=1, nullable=1, default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    """One partition. `leader_id` is -1 while there is no leader."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, since=5, ignorable=True)


class MetadataResponseTopic(Struct):
    """One topic. Its name is None only if the requested id is unknown."""

    error_code: int = int16()
    name: str | None = string(nullable=12)
    topic_id: Uuid = uuid_(since=10, ignorable=True)
    is_internal: bool = boolean(since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(since=8, default=-2147483648)


class MetadataResponse(Message, api_key=ApiKey.METADATA, versions=(0, 12), flexible=9):
    """The brokers and topics of the cluster. Version 8 adds authorised operations, 10 topic ids."""

    throttle_time_ms: int = int32(since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(since=2, nullable=2, default=None, ignorable=True)
    controller_id: int = int32(since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(since=8, until=10, default=-2147483648)


class TopicRequest(Struct):
    """One topic of a DescribeTopicPartitionsRequest."""

    name: str = string()


class Cursor(Struct):
    """The start of a page: the first topic and partition that were not sent yet."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(
    Message, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible=0
):
    """Ask for a page of the partitions of topics."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable=0)


class DescribeTopicPartitionsResponsePartition(Struct):
    """One partition of a page.

    The two lists of eligible leaders can be null on the wire, but Java clients fail on null. So
    they are empty by default.
    """

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, nullable=0)
    last_known_elr: list[int] | None = array(int32, nullable=0)
    offline_replicas: list[int] = array(int32)


class DescribeTopicPartitionsResponseTopic(Struct):
    """One topic of a page."""

    error_code: int = int16()
    name: str | None = string(nullable=0)
    topic_id: Uuid = uuid_()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-2147483648)


class DescribeTopicPartitionsResponse(
    Message, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible=0
):
    """One page of partitions, and the start of the next page; None on the last page."""

    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable=0)
