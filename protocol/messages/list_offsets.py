"""The messages to look up offsets by time and by leader epoch.

This module has only data classes.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import Message, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    """One partition and a timestamp. -1 is the latest, -2 the earliest offset, -3 the largest
    timestamp."""

    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, default=-1, ignorable=True)
    timestamp: int = int64()


class ListOffsetsTopic(Struct):
    """One topic of a ListOffsetsRequest."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Message, api_key=ApiKey.LIST_OFFSETS, versions=(1, 7), flexible=6):
    """Ask for offsets by timestamp.

    Version 2 adds isolation, 4 leader epochs, 7 the timestamp -3.
    """

    replica_id: int = int32()
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)


class ListOffsetsPartitionResponse(Struct):
    """The offset of one partition; -1 with timestamp -1 if no record is that recent."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(since=4, default=-1)


class ListOffsetsTopicResponse(Struct):
    """One topic of a ListOffsetsResponse."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message, api_key=ApiKey.LIST_OFFSETS, versions=(1, 7), flexible=6):
    """The offsets that were found."""

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


class OffsetForLeaderPartition(Struct):
    """One partition and the epoch whose end offset is requested."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    """One topic of an OffsetForLeaderEpochRequest."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(
    Message, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible=4
):
    """Ask for the end offsets of leader epochs. Version 3 adds the replica id, 4 is flexible."""

    replica_id: int = int32(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class OffsetForLeaderEpochEndOffset(Struct):
    """The largest epoch not above the requested epoch, and its end offset; -1 if unknown.

    Kafka's name is EpochEndOffset, which FetchResponse has too.
    """

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    """One topic of an OffsetForLeaderEpochResponse."""

    topic: str = string()
    partitions: list[OffsetForLeaderEpochEndOffset] = array(OffsetForLeaderEpochEndOffset)


class OffsetForLeaderEpochResponse(
    Message, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible=4
):
    """The end offsets of the requested epochs."""

    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
