"""Looks up offsets of many partitions by time, with one request per leader."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from protocol.client.admin_types import OffsetAt
from protocol.client.errors import ClientClosed, ClientError, UnsupportedVersion
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.types import CONSUMER_REPLICA_ID, TopicPartition

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster
    from protocol.client.metadata import ClusterMetadata


async def list_offsets(
    cluster: "Cluster",
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: int = 0,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetAt]:
    """Return for each partition the first offset at or after a timestamp, or EARLIEST or LATEST.

    Transient errors are retried until `timeout_ms` (by default the request time-out). A partition
    that is still missing then has an error, NETWORK_EXCEPTION if no broker answered. A topic that
    does not exist has UNKNOWN_TOPIC_OR_PARTITION at once. Raises BrokerUnreachable only if there is
    no metadata at all.
    """
    wait_ms = cluster.request_timeout_ms if timeout_ms is None else timeout_ms
    deadline = cluster.now_ms() + wait_ms
    backoff = cluster.new_backoff()
    topics = {tp.topic for tp in timestamps}
    current = await cluster.metadata(topics, timeout_ms=wait_ms)
    found: dict[TopicPartition, OffsetAt] = {}
    while True:
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in timestamps:
            if tp in found and not found[tp].error:
                continue
            leader = current.leader(tp)
            if leader is None:
                found[tp] = OffsetAt(error=current.error_of(tp))
            else:
                by_leader[leader].append(tp)
        left_ms = max(1, deadline - cluster.now_ms())
        answers = await asyncio.gather(
            *(
                _ask(cluster, leader, tps, timestamps, isolation_level, left_ms)
                for leader, tps in by_leader.items()
            )
        )
        for answer in answers:
            found.update(answer)
        failed = [tp for tp in timestamps if found[tp].error.retriable]
        retry_ms = backoff.next_ms()
        if not failed or cluster.now_ms() + retry_ms >= deadline:
            return found
        if backoff.failures > 1:
            await asyncio.sleep(retry_ms / 1000)
        for tp in failed:
            cluster.forget_leader(tp)
        left_ms = max(1, deadline - cluster.now_ms())
        current = await cluster.metadata(topics, refresh=True, timeout_ms=left_ms)
        if all(_is_unknown(current, tp) for tp in failed):
            return found


async def _ask(
    cluster: "Cluster",
    node_id: int,
    tps: list[TopicPartition],
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int,
    timeout_ms: int,
) -> dict[TopicPartition, OffsetAt]:
    by_topic: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for tp in tps:
        by_topic[tp.topic].append(
            ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamps[tp])
        )
    request = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=name, partitions=ps) for name, ps in by_topic.items()],
    )
    try:
        response: ListOffsetsResponse = await cluster.request(
            node_id, request, timeout_ms=timeout_ms
        )
    except (ClientClosed, UnsupportedVersion):
        raise
    except ClientError:
        return {tp: OffsetAt(error=ErrorCode.NETWORK_EXCEPTION) for tp in tps}
    missing = OffsetAt(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    found = dict.fromkeys(tps, missing)
    for topic in response.topics:
        for partition in topic.partitions:
            found[TopicPartition(topic.name, partition.partition_index)] = OffsetAt(
                partition.offset,
                partition.timestamp,
                partition.leader_epoch,
                ErrorCode.of(partition.error_code),
            )
    return found


def _is_unknown(current: "ClusterMetadata", tp: TopicPartition) -> bool:
    return current.error_of(tp) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
