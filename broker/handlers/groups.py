"""Handles OffsetCommit and OffsetFetch, the requests that write and read committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.coordinators.group_records import CommittedOffset
from broker.coordinators.offsets import GroupShard
from broker.handlers.rights import readable_only, refuse_unreadable
from broker.sessions.call import Call
from broker.shards.groups import GroupCoordinator
from protocol.errors import ApiError, ErrorCode
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
from protocol.security.acl import AclOperation, AclResource
from protocol.types import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition

MANY_GROUPS_SINCE = 8
ERROR_IN_HEAD_SINCE = 2

NOTHING_COMMITTED = CommittedOffset(NO_OFFSET, NO_LEADER_EPOCH, "", -1)

Found = tuple[int, CommittedOffset, ErrorCode]
"""A partition index, the partition's committed offset, and an error code."""


class OffsetHandlers:
    """Handles the requests for the committed offsets of groups."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def offset_commit(self, call: Call, request: OffsetCommitRequest) -> None:
        """Handle OffsetCommit. The answer is sent when the offsets are committed to the log."""

        groups = self._groups

        def refused(error: ApiError) -> None:
            response = _all_refused(request, groups.told(error.code))
            if error.code is not ErrorCode.GROUP_AUTHORIZATION_FAILED:
                refuse_unreadable(call, response.topics)
            call.answer(response)

        try:
            if not call.may_use_group(request.group_id):
                raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            loaded = groups.find(request.group_id)
            topic_with = readable_only(call, groups.topic_with)
            outcome = loaded.state.commit(request, groups.moment(), topic_with)
            refuse_unreadable(call, outcome.reply.topics)
            groups.submit(loaded, outcome, call.answer, refused)
        except ApiError as error:
            refused(error)

    def offset_fetch(self, call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Handle OffsetFetch for one group or, from version 8 on, for many groups.

        A repeated group or partition is answered once, because a small request must not get a huge
        answer.
        """
        if call.version >= MANY_GROUPS_SINCE:
            groups = {one.group_id: one for one in request.groups}.values()
            return OffsetFetchResponse(
                groups=[self._fetch_group(call, one, request.require_stable) for one in groups]
            )
        try:
            shard = self._readable(call, request.group_id)
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
                            error_code=code,
                        )
                        for index, found, code in offsets
                    ],
                )
                for topic, offsets in _asked_offsets(
                    call, shard, request.group_id, request.topics, request.require_stable
                )
            ]
        )

    def _readable(self, call: Call, group_id: str) -> GroupShard:
        """Return the shard of a group. Raises ApiError, for example if the client may not see the
        group."""
        if not call.may(AclOperation.DESCRIBE, AclResource.GROUP, group_id):
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return self._groups.readable(group_id)

    def _fetch_group(
        self, call: Call, asked: OffsetFetchRequestGroup, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        try:
            shard = self._readable(call, asked.group_id)
        except ApiError as error:
            return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error.code)
        found_by_topic = _asked_offsets(call, shard, asked.group_id, asked.topics, require_stable)
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
                            error_code=code,
                        )
                        for index, found, code in offsets
                    ],
                )
                for topic, offsets in found_by_topic
            ],
        )


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


def _fetch_refused(call: Call, request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    """Return the error at the top level of the answer.

    Version 1 has no such field, so each partition gets the error.
    """
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


def _asked_offsets(
    call: Call,
    shard: GroupShard,
    group_id: str,
    topics: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None,
    require_stable: bool,
) -> Iterable[tuple[str, list[Found]]]:
    """Return the committed offsets of the requested partitions. If `topics` is None, return those
    of all partitions that the client may see.

    A partition without a committed offset gets offset -1.
    """
    if topics is None:
        asked = sorted(
            one
            for one in shard.offsets.of_group(group_id)
            if call.may_describe_topic(one.topic, is_logged=False)
        )
    else:
        asked = [
            TopicPartition(topic.name, index)
            for topic in topics
            for index in topic.partition_indexes
        ]
    found: dict[str, list[Found]] = {topic.name: [] for topic in topics or ()}
    for partition in dict.fromkeys(asked):
        found.setdefault(partition.topic, []).append(
            _found(call, shard, group_id, partition, require_stable)
        )
    return found.items()


def _found(
    call: Call, shard: GroupShard, group_id: str, partition: TopicPartition, require_stable: bool
) -> Found:
    if not call.may_describe_topic(partition.topic):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return partition.partition, NOTHING_COMMITTED, code
    if require_stable and shard.offsets.is_unstable(group_id, partition):
        # The reader must wait for the end of the transaction (KIP-447), or it could process records
        # twice.
        return partition.partition, NOTHING_COMMITTED, ErrorCode.UNSTABLE_OFFSET_COMMIT
    committed = shard.committed(group_id, partition) or NOTHING_COMMITTED
    return partition.partition, committed, ErrorCode.NONE
