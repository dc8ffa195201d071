"""Reads and writes the committed offsets of groups, for members and for other clients.

Spark's progress is committed with these functions, and every lag is computed with them. The
requests go to the group's coordinator. If the coordinator has moved, it is looked up again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from protocol.client.assignment import NO_GENERATION
from protocol.client.connection import ByVersion
from protocol.client.errors import ClientError, raise_for
from protocol.client.group_steps import GroupMembership
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.types import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster

NO_MEMBERSHIP = GroupMembership(NO_GENERATION, "")

_FIRST_VERSION_WITH_MANY_GROUPS = 8
_FIRST_VERSION_WITH_REQUIRE_STABLE = 7
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)

_Topics = Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics]


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset (the next to read), metadata text, and the leader epoch of the last
    record."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


async def commit_offsets(
    cluster: "Cluster",
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    membership: GroupMembership = NO_MEMBERSHIP,
    timeout_ms: int | None = None,
) -> None:
    """Commit all partitions in one request, as a member or for a group without members.

    Transient errors are retried until `timeout_ms` (by default the request time-out). Then the last
    ApiError or ClientError is raised. UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION mean that the group
    has members and the caller is not (any more) one of them. REBALANCE_IN_PROGRESS means that
    partitions are being assigned again. UNKNOWN_TOPIC_OR_PARTITION means that a topic does not
    exist; the other offsets are committed.
    """
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for tp, committed in offsets.items():
        by_topic[tp.topic].append(
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=membership.generation_id,
        member_id=membership.member_id,
        group_instance_id=membership.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )

    async def attempt(left_ms: int) -> frozenset[TopicPartition]:
        response: OffsetCommitResponse = await _ask_coordinator(cluster, group_id, request, left_ms)
        codes = {
            TopicPartition(topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }
        unknown = [tp for tp, code in codes.items() if code == _UNKNOWN]
        gone = await _without_doubt_gone(cluster, unknown, left_ms)
        for tp, code in codes.items():
            if tp not in gone:
                what = f"commit of {tp} for group {group_id!r}"
                _raise_for_group(cluster, group_id, code, what)
        return gone

    for tp in await cluster.repeat(attempt, timeout_ms):
        _raise_for_group(cluster, group_id, _UNKNOWN, f"commit of {tp} for group {group_id!r}")


async def fetch_offsets(
    cluster: "Cluster",
    group_id: str,
    tps: Collection[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """Return the committed offsets of a group for `tps`, or all of them if `tps` is None.

    A requested partition without a committed offset has the value None. A group that does not exist
    has no committed offsets. `require_stable` waits for pending transactions. Raises the errors of
    `commit_offsets`.
    """

    async def attempt(left_ms: int) -> dict[TopicPartition, OffsetAndMetadata | None]:
        request = ByVersion(
            ApiKey.OFFSET_FETCH,
            lambda version: _fetch_request(version, (group_id,), tps, require_stable),
        )
        response: OffsetFetchResponse = await _ask_coordinator(cluster, group_id, request, left_ms)
        topics: _Topics = response.topics
        code = response.error_code
        if response.groups:
            topics, code = response.groups[0].topics, response.groups[0].error_code
        _raise_for_group(cluster, group_id, code, f"offsets of group {group_id!r}")
        found = _offsets(cluster, group_id, topics)
        if tps is None:
            return {tp: committed for tp, committed in found.items() if committed is not None}
        return {tp: found.get(tp) for tp in tps}

    return await cluster.repeat(attempt, timeout_ms)


async def fetch_offsets_of_groups(
    cluster: "Cluster", group_ids: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | ApiError | ClientError]:
    """Return all committed offsets of each group, or the error of that group.

    Brokers that support version 8 get one request per coordinator, others one request per group.
    """
    by_node, failures = await by_coordinator(cluster, group_ids, timeout_ms)
    results: dict[str, dict[TopicPartition, OffsetAndMetadata] | ApiError | ClientError] = {}
    results.update(failures)
    answers = await asyncio.gather(
        *(_fetch_many(cluster, node_id, ids, timeout_ms) for node_id, ids in by_node.items())
    )
    for answer in answers:
        results.update(answer)
    return results


async def by_coordinator(
    cluster: "Cluster", group_ids: Iterable[str], timeout_ms: int | None
) -> tuple[dict[int, list[str]], dict[str, ApiError | ClientError]]:
    """Return the groups by coordinator, and the errors of groups. All lookups run in parallel."""

    async def find(group_id: str) -> int | ApiError | ClientError:
        try:
            return await cluster.coordinator(group_id, timeout_ms=timeout_ms)
        except (ApiError, ClientError) as error:
            return error

    wanted = tuple(dict.fromkeys(group_ids))
    by_node: dict[int, list[str]] = defaultdict(list)
    failures: dict[str, ApiError | ClientError] = {}
    for group_id, found in zip(wanted, await asyncio.gather(*map(find, wanted)), strict=True):
        if isinstance(found, int):
            by_node[found].append(group_id)
        else:
            failures[group_id] = found
    return by_node, failures


async def _fetch_many(
    cluster: "Cluster", node_id: int, group_ids: list[str], timeout_ms: int | None
) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | ApiError | ClientError]:
    results: dict[str, dict[TopicPartition, OffsetAndMetadata] | ApiError | ClientError] = {}
    try:
        connection = await cluster.connection(node_id)
        if connection.versions.choose(ApiKey.OFFSET_FETCH) >= _FIRST_VERSION_WITH_MANY_GROUPS:
            request = _fetch_request(_FIRST_VERSION_WITH_MANY_GROUPS, group_ids, None, False)
            response: OffsetFetchResponse = await cluster.request(
                node_id, request, timeout_ms=timeout_ms
            )
            for group in response.groups:
                if group.error_code == ErrorCode.NONE:
                    found = _offsets(cluster, group.group_id, group.topics)
                    results[group.group_id] = _only_committed(found)
    except (ApiError, ClientError):
        # Ask again for one group at a time, so that the error of one group does not hide the
        # others.
        results.clear()

    async def fetch_one(group_id: str) -> None:
        try:
            offsets = await fetch_offsets(cluster, group_id, timeout_ms=timeout_ms)
            results[group_id] = _only_committed(offsets)
        except (ApiError, ClientError) as error:
            results[group_id] = error

    # Query all groups in parallel, because a coordinator that does not answer would cost a time-out
    # for each group.
    await asyncio.gather(*(fetch_one(one) for one in group_ids if one not in results))
    return results


async def _ask_coordinator(
    cluster: "Cluster", group_id: str, request: OffsetCommitRequest | ByVersion, timeout_ms: int
) -> Any:
    node_id = await cluster.coordinator(group_id, timeout_ms=timeout_ms)
    try:
        return await cluster.request(node_id, request, timeout_ms=timeout_ms)
    except ClientError:
        cluster.forget_coordinator(group_id)
        raise


async def _without_doubt_gone(
    cluster: "Cluster", tps: Collection[TopicPartition], timeout_ms: int
) -> frozenset[TopicPartition]:
    """Return the partitions that fresh metadata does not have either, so a retry cannot help.

    A coordinator can be unaware of a new topic for a while, so its error alone is not enough.
    """
    if not tps:
        return frozenset()
    topics = {tp.topic for tp in tps}
    current = await cluster.metadata(topics, refresh=True, timeout_ms=timeout_ms)
    return frozenset(tp for tp in tps if current.error_of(tp) == _UNKNOWN)


def _raise_for_group(cluster: "Cluster", group_id: str, code: int, what: str) -> None:
    if code in _MOVED:
        cluster.forget_coordinator(group_id)
    if code:
        raise_for(code, f"{what}: {ErrorCode.of(code).description}")


def _fetch_request(
    version: int,
    group_ids: Collection[str],
    tps: Collection[TopicPartition] | None,
    require_stable: bool,
) -> OffsetFetchRequest:
    by_topic: dict[str, list[int]] | None = None
    if tps is not None:
        by_topic = defaultdict(list)
        for tp in tps:
            by_topic[tp.topic].append(tp.partition)
    if version >= _FIRST_VERSION_WITH_MANY_GROUPS:
        topics = None
        if by_topic is not None:
            topics = [
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in by_topic.items()
            ]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=id_, topics=topics) for id_ in group_ids],
            require_stable=require_stable,
        )
    (group_id,) = group_ids
    return OffsetFetchRequest(
        group_id=group_id,
        topics=None
        if by_topic is None
        else [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in by_topic.items()
        ],
        require_stable=require_stable and version >= _FIRST_VERSION_WITH_REQUIRE_STABLE,
    )


def _offsets(
    cluster: "Cluster", group_id: str, topics: _Topics
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            _raise_for_group(cluster, group_id, partition.error_code, f"offset of {tp}")
            found[tp] = (
                None
                if partition.committed_offset == NO_OFFSET
                else OffsetAndMetadata(
                    partition.committed_offset,
                    partition.metadata or "",
                    partition.committed_leader_epoch,
                )
            )
    return found


def _only_committed(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None],
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {tp: committed for tp, committed in offsets.items() if committed is not None}
