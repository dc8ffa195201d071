"""Administration of logs: their folders and sizes, and the deletion of records."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.client.errors import ClientError, raise_for
from protocol.errors import ApiError, ErrorCode
from protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from protocol.types import TopicPartition

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster

TO_HIGH_WATERMARK = -1
"""The value that stands for deleting all readable records."""


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """One replica's log in one folder: its size, and how many offsets it lags behind."""

    tp: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log folder of one broker.

    The sizes of its volume are None if the broker does not report them.
    """

    path: str
    error: ErrorCode
    replicas: tuple[ReplicaLog, ...]
    total_bytes: int | None = None
    usable_bytes: int | None = None


async def delete_records(
    cluster: "Cluster", offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
) -> dict[TopicPartition, int | ApiError | ClientError]:
    """Move log start offsets up to these offsets, or to the high watermark (TO_HIGH_WATERMARK).

    Return the new log start offset or the error of each partition. A log that already starts later
    does not change, so the request can be repeated.
    """
    results: dict[TopicPartition, int | ApiError | ClientError] = {}
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for tp in offsets:
        try:
            by_leader[await cluster.leader(tp, timeout_ms=timeout_ms)].append(tp)
        except (ApiError, ClientError) as error:
            results[tp] = error
    answers = await asyncio.gather(
        *(
            _delete_at(cluster, node_id, {tp: offsets[tp] for tp in tps}, timeout_ms)
            for node_id, tps in by_leader.items()
        )
    )
    for answer in answers:
        results.update(answer)
    return results


async def _delete_at(
    cluster: "Cluster", node_id: int, offsets: Mapping[TopicPartition, int], timeout_ms: int | None
) -> dict[TopicPartition, int | ApiError | ClientError]:
    by_topic: dict[str, list[DeleteRecordsPartition]] = defaultdict(list)
    for tp, offset in offsets.items():
        by_topic[tp.topic].append(
            DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
        )
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=ps) for name, ps in by_topic.items()],
        timeout_ms=cluster.request_timeout_ms,
    )
    try:
        response: DeleteRecordsResponse = await cluster.request(
            node_id, request, timeout_ms=timeout_ms
        )
    except ClientError as error:
        return dict.fromkeys(offsets, error)
    found: dict[TopicPartition, int | ApiError | ClientError] = {
        tp: ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {node_id} left {tp} out of its answer"
        )
        for tp in offsets
    }
    for topic in response.topics:
        for one in topic.partitions:
            code = ErrorCode.of(one.error_code)
            tp = TopicPartition(topic.name, one.partition_index)
            found[tp] = ApiError(code, code.description) if code else one.low_watermark
    return found


async def describe_log_dirs(
    cluster: "Cluster", node_ids: Collection[int], *, timeout_ms: int | None = None
) -> dict[int, tuple[LogDir, ...] | ApiError | ClientError]:
    """Return the log folders of these brokers with all replicas, or the error of each broker."""
    answers = await asyncio.gather(
        *(_dirs_of(cluster, node_id, timeout_ms) for node_id in node_ids)
    )
    return dict(zip(node_ids, answers, strict=True))


async def _dirs_of(
    cluster: "Cluster", node_id: int, timeout_ms: int | None
) -> tuple[LogDir, ...] | ApiError | ClientError:
    async def attempt(left_ms: int) -> tuple[LogDir, ...]:
        response: DescribeLogDirsResponse = await cluster.request(
            node_id, DescribeLogDirsRequest(topics=None), timeout_ms=left_ms
        )
        raise_for(response.error_code)
        return tuple(
            LogDir(
                result.log_dir,
                ErrorCode.of(result.error_code),
                tuple(
                    ReplicaLog(
                        TopicPartition(topic.name, one.partition_index),
                        one.partition_size,
                        one.offset_lag,
                        one.is_future_key,
                    )
                    for topic in result.topics
                    for one in topic.partitions
                ),
                None if result.total_bytes < 0 else result.total_bytes,
                None if result.usable_bytes < 0 else result.usable_bytes,
            )
            for result in response.results
        )

    try:
        return await cluster.repeat(attempt, timeout_ms)
    except (ApiError, ClientError) as error:
        return error
