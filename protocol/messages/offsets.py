"""The messages to commit, fetch and delete committed offsets of groups.

This module has only data classes.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import (
    NEVER_FLEXIBLE,
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)


class OffsetCommitRequestPartition(Struct):
    """The offset to commit for one partition: the next offset to read."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable=0)


class OffsetCommitRequestTopic(Struct):
    """One topic of an OffsetCommitRequest."""

    name: str = string()
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message, api_key=ApiKey.OFFSET_COMMIT, versions=(2, 8), flexible=8):
    """Offsets to commit. Versions 2 to 4 have a retention, 6 adds leader epochs, 7 static members.

    A commit for a group without members has generation -1 and an empty member id.
    """

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(since=7, nullable=7, default=None)
    retention_time_ms: int = int64(until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    """The result for one partition of an OffsetCommit request."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    """One topic of an OffsetCommitResponse."""

    name: str = string()
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message, api_key=ApiKey.OFFSET_COMMIT, versions=(2, 8), flexible=8):
    """The result of an OffsetCommit request by partition."""

    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


class OffsetFetchRequestTopic(Struct):
    """One topic, up to version 7."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestTopics(Struct):
    """One topic of a group, from version 8 on."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestGroup(Struct):
    """One group, from version 8 on; `topics` None means all."""

    group_id: str = string()
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable=0)


class OffsetFetchRequest(Message, api_key=ApiKey.OFFSET_FETCH, versions=(1, 8), flexible=6):
    """Ask for committed offsets: of `group_id` up to version 7, of several `groups` from version 8
    on.

    `topics` None means every topic that the group has committed (version 2 and later).
    """

    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=7, nullable=2
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


class OffsetFetchResponsePartition(Struct):
    """One partition, up to version 7. The offset is -1 if none is committed."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=5, default=-1, ignorable=True)
    metadata: str | None = string(nullable=0)
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    """One topic, up to version 7."""

    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(Struct):
    """One partition, from version 8 on. The offset is -1 if none is committed."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable=0)
    error_code: int = int16()


class OffsetFetchResponseTopics(Struct):
    """One topic of a group, from version 8 on."""

    name: str = string()
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    """One group, from version 8 on."""

    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


class OffsetFetchResponse(Message, api_key=ApiKey.OFFSET_FETCH, versions=(1, 8), flexible=6):
    """The committed offsets: `topics` up to version 7, `groups` from version 8 on."""

    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)


class OffsetDeleteRequestPartition(Struct):
    """One partition whose committed offset must be deleted."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    """One topic of an OffsetDeleteRequest."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(
    Message, api_key=ApiKey.OFFSET_DELETE, versions=(0, 0), flexible=NEVER_FLEXIBLE
):
    """Committed offsets of a group to delete."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    """The result for one partition of an OffsetDelete request."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Struct):
    """One topic of an OffsetDeleteResponse."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(
    Message, api_key=ApiKey.OFFSET_DELETE, versions=(0, 0), flexible=NEVER_FLEXIBLE
):
    """The result of an OffsetDelete request by partition, or of the whole group."""

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
