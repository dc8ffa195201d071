"""Request leader elections (ElectLeaders, KIP-460)."""

from collections import defaultdict
from collections.abc import Collection
from enum import IntEnum
from typing import TYPE_CHECKING

from protocol.client.errors import raise_for
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from protocol.types import TopicPartition

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster


class ElectionType(IntEnum):
    """The kinds of elections, with Kafka's numbers."""

    PREFERRED = 0
    """Elect the first replica of the assignment, if it is in sync."""

    UNCLEAN = 1
    """Elect any live replica if no replica is in sync. Records that this replica lacks are lost."""


async def elect_leaders(
    cluster: "Cluster",
    election_type: ElectionType,
    partitions: Collection[TopicPartition] | None,
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ApiError | None]:
    """Elect leaders of these partitions, or of all that need an election.

    Return None or the error for each partition. A named partition can have ELECTION_NOT_NEEDED.
    Raises ApiError for the whole request (REQUEST_TIMED_OUT while there is no controller). Raises
    BrokerUnreachable and ConnectionLost if no broker answers, and UnsupportedVersion.
    """
    request = ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=None if partitions is None else _by_topic(partitions),
        timeout_ms=cluster.request_timeout_ms,
    )

    async def attempt(left_ms: int) -> dict[TopicPartition, ApiError | None]:
        response: ElectLeadersResponse = await cluster.request(None, request, timeout_ms=left_ms)
        raise_for(response.error_code)
        return {
            TopicPartition(topic.topic, one.partition_id): _error_of(
                ErrorCode.of(one.error_code), one.error_message
            )
            for topic in response.replica_election_results
            for one in topic.partition_result
        }

    return await cluster.repeat(attempt, timeout_ms)


def _by_topic(partitions: Collection[TopicPartition]) -> list[TopicPartitions]:
    found: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        found[topic].append(partition)
    return [TopicPartitions(topic=name, partitions=numbers) for name, numbers in found.items()]


def _error_of(code: ErrorCode, message: str | None) -> ApiError | None:
    return ApiError(code, message or code.description) if code else None
