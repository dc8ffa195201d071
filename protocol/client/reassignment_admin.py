"""Start, cancel and list reassignments of partitions (KIP-455)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.client.errors import UnsupportedVersion, raise_for
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elections import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.types import TopicPartition

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment under way. `replicas` has all replicas of the partition, in order."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def list_reassignments(
    cluster: "Cluster", *, timeout_ms: int | None = None
) -> dict[TopicPartition, Reassignment]:
    """Return all reassignments that are under way, by partition.

    The result is empty if the cluster does not support reassignments, or if this client may not
    list them. Raises ApiError for other errors of the request, and the errors of `Cluster.request`.
    """

    async def attempt(left_ms: int) -> dict[TopicPartition, Reassignment]:
        request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=left_ms)
        try:
            response: ListPartitionReassignmentsResponse = await cluster.request(
                None, request, timeout_ms=left_ms
            )
        except UnsupportedVersion:
            return {}
        if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return {}
        raise_for(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, one.partition_index): Reassignment(
                tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
            )
            for topic in response.topics
            for one in topic.partitions
        }

    return await cluster.repeat(attempt, timeout_ms)


async def alter_reassignments(
    cluster: "Cluster",
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    may_resize: bool = True,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ApiError | None]:
    """Start reassignments to these replicas; None cancels the one under way.

    Without `may_resize`, the cluster refuses another number of replicas (KIP-860).
    Return None or the error for each partition. A partition that has its target already, or moves
    there, has no error, so the request can be repeated. Raises ApiError for the whole request.
    Raises BrokerUnreachable and ConnectionLost if no broker answers, and UnsupportedVersion.
    """
    topics: dict[str, ReassignableTopic] = {}
    for tp, replicas in sorted(targets.items()):
        topic = topics.setdefault(tp.topic, ReassignableTopic(name=tp.topic))
        topic.partitions.append(
            ReassignablePartition(
                partition_index=tp.partition,
                replicas=None if replicas is None else list(replicas),
            )
        )

    async def attempt(left_ms: int) -> dict[TopicPartition, ApiError | None]:
        request = AlterPartitionReassignmentsRequest(
            topics=list(topics.values()),
            timeout_ms=left_ms,
            allow_replication_factor_change=may_resize,
        )
        response: AlterPartitionReassignmentsResponse = await cluster.request(
            None, request, timeout_ms=left_ms
        )
        raise_for(response.error_code, response.error_message)
        found: dict[TopicPartition, ApiError | None] = {}
        for topic in response.responses:
            for one in topic.partitions:
                code = ErrorCode.of(one.error_code)
                error = ApiError(code, one.error_message or code.description) if code else None
                found[TopicPartition(topic.name, one.partition_index)] = error
        return found

    return await cluster.repeat(attempt, timeout_ms)
