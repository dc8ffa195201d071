"""Administration of groups: list, describe and delete them."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Collection
from typing import TYPE_CHECKING

from protocol.client.admin_types import (
    GroupDescription,
    GroupListing,
    ListedGroups,
    MemberDescription,
)
from protocol.client.errors import ClientError, raise_for
from protocol.client.group import by_coordinator
from protocol.errors import ApiError, ErrorCode
from protocol.messages.group import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.types import TopicPartition

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster


async def list_groups(cluster: "Cluster", *, timeout_ms: int | None = None) -> ListedGroups:
    """Return the groups that each broker coordinates. All brokers are asked in parallel.

    Raises BrokerUnreachable if the brokers are unknown.
    """
    current = await cluster.metadata((), refresh=True, timeout_ms=timeout_ms)
    answers = await asyncio.gather(
        *(_list_of(cluster, node_id, timeout_ms) for node_id in current.brokers)
    )
    groups: list[GroupListing] = []
    failures: dict[int, str] = {}
    for node_id, answer in zip(current.brokers, answers, strict=True):
        if isinstance(answer, str):
            failures[node_id] = answer
        else:
            groups.extend(answer)
    groups.sort(key=lambda group: group.group_id)
    return ListedGroups(tuple(groups), failures)


async def describe_groups(
    cluster: "Cluster", group_ids: Collection[str], *, timeout_ms: int | None = None
) -> dict[str, GroupDescription]:
    """Describe groups, with one request per coordinator and attempt.

    Transient errors are retried until `timeout_ms`. A group that could not be described until then
    has an error: NETWORK_EXCEPTION if no broker answered.
    """
    wait_ms = cluster.request_timeout_ms if timeout_ms is None else timeout_ms
    deadline = cluster.now_ms() + wait_ms
    backoff = cluster.new_backoff()
    found: dict[str, GroupDescription] = {}
    left = list(dict.fromkeys(group_ids))
    while left:
        found.update(await _describe_once(cluster, left, max(1, deadline - cluster.now_ms())))
        left = [group_id for group_id in left if found[group_id].error.retriable]
        retry_ms = backoff.next_ms()
        if cluster.now_ms() + retry_ms >= deadline:
            break
        if left:
            for group_id in left:
                cluster.forget_coordinator(group_id)
            await asyncio.sleep(retry_ms / 1000)
    return found


async def delete_groups(
    cluster: "Cluster", group_ids: Collection[str], *, timeout_ms: int | None = None
) -> dict[str, ApiError | ClientError | None]:
    """Delete groups with their offsets. Return None for each deleted group, else its error."""

    async def one(group_id: str) -> ApiError | ClientError | None:
        async def attempt(left_ms: int) -> None:
            node_id = await cluster.coordinator(group_id, timeout_ms=left_ms)
            response: DeleteGroupsResponse = await cluster.request(
                node_id, DeleteGroupsRequest(groups_names=[group_id]), timeout_ms=left_ms
            )
            _raise_of_coordinator(cluster, group_id, response.results[0].error_code)

        return await _outcome(cluster.repeat(attempt, timeout_ms))

    wanted = tuple(dict.fromkeys(group_ids))
    return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))


async def delete_group_offsets(
    cluster: "Cluster",
    group_id: str,
    tps: Collection[TopicPartition],
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ErrorCode]:
    """Delete a group's offsets of partitions that none of its members reads.

    Return the result of each partition. Raises ApiError for an error of the whole group.
    """
    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = defaultdict(list)
    for tp in tps:
        by_topic[tp.topic].append(OffsetDeleteRequestPartition(partition_index=tp.partition))
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )

    async def attempt(left_ms: int) -> dict[TopicPartition, ErrorCode]:
        node_id = await cluster.coordinator(group_id, timeout_ms=left_ms)
        response: OffsetDeleteResponse = await cluster.request(node_id, request, timeout_ms=left_ms)
        _raise_of_coordinator(cluster, group_id, response.error_code)
        return {
            TopicPartition(topic.name, one.partition_index): ErrorCode.of(one.error_code)
            for topic in response.topics
            for one in topic.partitions
        }

    return await cluster.repeat(attempt, timeout_ms)


def _raise_of_coordinator(cluster: "Cluster", group_id: str, code: int) -> None:
    if ErrorCode.of(code).retriable:
        cluster.forget_coordinator(group_id)
    raise_for(code)


async def _outcome(work: Awaitable[None]) -> ApiError | ClientError | None:
    try:
        await work
    except (ApiError, ClientError) as error:
        return error
    return None


async def _list_of(
    cluster: "Cluster", node_id: int, timeout_ms: int | None
) -> list[GroupListing] | str:
    async def attempt(left_ms: int) -> list[GroupListing]:
        response: ListGroupsResponse = await cluster.request(
            node_id, ListGroupsRequest(), timeout_ms=left_ms
        )
        raise_for(response.error_code)
        return [
            GroupListing(group.group_id, group.protocol_type, group.group_state, node_id)
            for group in response.groups
        ]

    try:
        return await cluster.repeat(attempt, timeout_ms)
    except (ApiError, ClientError) as error:
        return str(error)


async def _describe_once(
    cluster: "Cluster", group_ids: list[str], timeout_ms: int
) -> dict[str, GroupDescription]:
    by_node, failures = await by_coordinator(cluster, group_ids, timeout_ms)
    found = {
        group_id: GroupDescription(group_id, error=_code_of(error))
        for group_id, error in failures.items()
    }
    answers = await asyncio.gather(
        *(_describe_of(cluster, node_id, ids, timeout_ms) for node_id, ids in by_node.items())
    )
    for answer in answers:
        found.update(answer)
    return found


async def _describe_of(
    cluster: "Cluster", node_id: int, group_ids: list[str], timeout_ms: int
) -> dict[str, GroupDescription]:
    try:
        response: DescribeGroupsResponse = await cluster.request(
            node_id, DescribeGroupsRequest(groups=group_ids), timeout_ms=timeout_ms
        )
    except ClientError as error:
        code = _code_of(error)
        return {group_id: GroupDescription(group_id, error=code) for group_id in group_ids}
    found = {group.group_id: _description(group, node_id) for group in response.groups}
    missing = ErrorCode.UNKNOWN_SERVER_ERROR
    return {id_: found.get(id_, GroupDescription(id_, error=missing)) for id_ in group_ids}


def _description(group: DescribedGroup, node_id: int) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        members=tuple(
            MemberDescription(
                member.member_id,
                member.client_id,
                member.client_host,
                member.group_instance_id,
                bytes(member.member_metadata),
                bytes(member.member_assignment),
            )
            for member in group.members
        ),
        coordinator_id=node_id,
        error=ErrorCode.of(group.error_code),
    )


def _code_of(error: ApiError | ClientError) -> ErrorCode:
    return error.code if isinstance(error, ApiError) else ErrorCode.NETWORK_EXCEPTION
