"""Committed offsets, and the groups that have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.controller.image import OFFSETS_TOPIC
from broker.coordinators.group_records import CommittedOffset
from broker.coordinators.offsets import GroupShard, GroupState
from broker.server.connection import Call
from broker.server.services import Services
from protocol.errors import ApiError, ErrorCode
from protocol.messages.group import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.types import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition

MANY_GROUPS_SINCE = 8
ALL_TOPICS_SINCE = 2
ERROR_IN_HEAD_SINCE = 2
GROUP_OPERATIONS = sum(1 << bit for bit in (3, 6, 8))

NOTHING_COMMITTED = CommittedOffset(NO_OFFSET, NO_LEADER_EPOCH, "", -1)


def offset_commit(services: Services, call: Call, request: OffsetCommitRequest) -> None:
    """OffsetCommit: answered when the offsets are as durable as any record."""

    def refused(error: ApiError) -> None:
        call.answer(_all_refused(request, error.code))

    def has_partition(topic: str, index: int) -> bool:
        known = services.metadata.image.topics.get(topic)
        return known is not None and 0 <= index < len(known.partitions)

    try:
        loaded = services.groups.find(request.group_id)
    except ApiError as error:
        refused(error)
        return
    shard = services.groups.shard(request.group_id)
    outcome = shard.commit(request, services.clock.now_ms(), has_partition)
    services.groups.submit(loaded, outcome, call.answer, refused)


def _all_refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def offset_fetch(
    services: Services, call: Call, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """OffsetFetch of one group, or from version 8 on of many."""
    if call.version >= MANY_GROUPS_SINCE:
        return OffsetFetchResponse(groups=[_fetch_group(services, one) for one in request.groups])
    try:
        shard = services.groups.shard(request.group_id)
    except ApiError as error:
        return _fetch_refused(call, request, error.code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=ErrorCode.NONE,
                    )
                    for index, found in offsets
                ],
            )
            for topic, offsets in _asked_offsets(shard, request.group_id, request.topics)
        ]
    )


def _fetch_refused(call: Call, request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    """The refusal in the answer's head, and for version 1, which has none, in every partition."""
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=NO_OFFSET,
                    metadata="",
                    error_code=code,
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or []
    ]
    if call.version < ERROR_IN_HEAD_SINCE:
        return OffsetFetchResponse(topics=topics)
    return OffsetFetchResponse(topics=topics, error_code=code)


def _fetch_group(services: Services, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    try:
        shard = services.groups.shard(asked.group_id)
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error.code)
    return OffsetFetchResponseGroup(
        group_id=asked.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=ErrorCode.NONE,
                    )
                    for index, found in offsets
                ],
            )
            for topic, offsets in _asked_offsets(shard, asked.group_id, asked.topics)
        ],
    )


def _asked_offsets(
    shard: GroupShard,
    group_id: str,
    topics: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None,
) -> Iterable[tuple[str, list[tuple[int, CommittedOffset]]]]:
    """The partitions asked for, or with None all that are committed; unknown ones as offset -1."""
    if topics is not None:
        return [
            (
                topic.name,
                [
                    (
                        index,
                        shard.committed(group_id, TopicPartition(topic.name, index))
                        or NOTHING_COMMITTED,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in topics
        ]
    found: dict[str, list[tuple[int, CommittedOffset]]] = {}
    for partition, committed in sorted(shard.groups.get(group_id, {}).items()):
        found.setdefault(partition.topic, []).append((partition.partition, committed))
    return found.items()


def list_groups(services: Services, call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """Every group of this broker; refused as a whole while a shard is still loading."""
    if services.groups.is_loading:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return ListGroupsResponse(
        error_code=ErrorCode.NONE,
        groups=[
            ListedGroup(group_id=group_id, protocol_type="", group_state=GroupState.EMPTY)
            for shard in services.groups.shards()
            for group_id in shard.listed(request.states_filter)
        ],
    )


def describe_groups(
    services: Services, call: Call, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Groups by name; one that is not known is Dead, and that is no error."""
    operations = GROUP_OPERATIONS if request.include_authorized_operations else None
    groups = []
    for group_id in request.groups:
        group = DescribedGroup(group_id=group_id, error_code=ErrorCode.NONE)
        try:
            group.group_state = _state(services, group_id)
            if operations is not None:
                group.authorized_operations = operations
        except ApiError as error:
            group.error_code = error.code
        groups.append(group)
    return DescribeGroupsResponse(groups=groups)


def _state(services: Services, group_id: str) -> GroupState:
    if OFFSETS_TOPIC not in services.metadata.image.topics:
        return GroupState.DEAD
    return services.groups.shard(group_id).state(group_id)
