"""List the partitions that are being reassigned (ListPartitionReassignments, KIP-455)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.client.errors import UnsupportedVersion, raise_for
from protocol.errors import ErrorCode
from protocol.messages.elections import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
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

    The result is empty if the cluster cannot reassign, or if this client may not ask. Raises
    ApiError for other errors of the request, and BrokerUnreachable and ConnectionLost as the
    cluster does.
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
