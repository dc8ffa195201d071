"""Topics as an administrator sees them: ids, replicas, in-sync and eligible replicas.

Brokers since Kafka 3.8 are asked page by page with DescribeTopicPartitions. Only they report
eligible leader replicas. Older brokers are asked with Metadata.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.client.errors import UnsupportedVersion
from protocol.errors import ErrorCode
from protocol.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    TopicRequest,
)
from protocol.reassignment import effective_min_isr, is_under_replicated, original_replicas
from protocol.types import NO_NODE, Uuid

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster


@dataclass(frozen=True, slots=True)
class PartitionDetails:
    """One partition.

    `leader_id` is None without a leader. A list is None if no broker reports it. This module does
    not request reassignments; `reassignment_admin` lists them.
    """

    partition: int
    leader_id: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None
    offline_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def is_under_replicated(self) -> bool:
        """True if a replica that no reassignment adds is not in sync."""
        return is_under_replicated(self.replicas, self.adding_replicas, self.in_sync_replicas)

    def effective_min_isr(self, min_isr: int) -> int:
        """Return how many in-sync replicas a commit needs, with this `min.insync.replicas`."""
        return effective_min_isr(min_isr, self.replicas, self.adding_replicas)


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """One topic. A topic with an error has no partitions. `topic_id` is ZERO_UUID if unknown."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[PartitionDetails, ...]
    error: ErrorCode = ErrorCode.NONE

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the first partition, without those that a reassignment adds; 0
        without partitions."""
        if not self.partitions:
            return 0
        first = self.partitions[0]
        return len(original_replicas(first.replicas, first.adding_replicas))


async def describe_topics(
    cluster: "Cluster", names: Collection[str] | None = None, *, timeout_ms: int | None = None
) -> dict[str, TopicDetails]:
    """Return these topics (None: all) by name. A topic that does not exist has an error.

    Raises BrokerUnreachable and ConnectionLost if no broker answers, and UnsupportedVersion.
    """

    async def attempt(left_ms: int) -> dict[str, TopicDetails]:
        if names is not None and not names:
            return {}
        if names is None:
            # Only Metadata lists all topics.
            return await _by_metadata(cluster, None, left_ms)
        try:
            return await _by_pages(cluster, sorted(set(names)), left_ms)
        except UnsupportedVersion:
            return await _by_metadata(cluster, names, left_ms)

    found = await cluster.repeat(attempt, timeout_ms)
    if names is None and found:
        return await describe_topics(cluster, list(found), timeout_ms=timeout_ms)
    return found


async def list_topics(
    cluster: "Cluster", *, timeout_ms: int | None = None
) -> dict[str, TopicDetails]:
    """Return all topics by name, with the properties that Metadata has."""
    return await cluster.repeat(lambda left_ms: _by_metadata(cluster, None, left_ms), timeout_ms)


async def _by_pages(
    cluster: "Cluster", names: list[str], timeout_ms: int
) -> dict[str, TopicDetails]:
    found: dict[str, TopicDetails] = {}
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], cursor=cursor
        )
        response: DescribeTopicPartitionsResponse = await cluster.request(
            None, request, timeout_ms=timeout_ms
        )
        for topic in response.topics:
            name = topic.name or ""
            known = found.get(name)
            partitions = tuple(map(_of_page, topic.partitions))
            found[name] = TopicDetails(
                name,
                topic.topic_id,
                topic.is_internal,
                # A topic can continue on the next page.
                (known.partitions if known else ()) + partitions,
                ErrorCode.of(topic.error_code),
            )
        cursor = response.next_cursor
        if cursor is None:
            return found


async def _by_metadata(
    cluster: "Cluster", names: Iterable[str] | None, timeout_ms: int
) -> dict[str, TopicDetails]:
    request = MetadataRequest(
        topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    response: MetadataResponse = await cluster.request(None, request, timeout_ms=timeout_ms)
    return {
        topic.name or "": TopicDetails(
            topic.name or "",
            topic.topic_id,
            topic.is_internal,
            tuple(sorted(map(_of_metadata, topic.partitions), key=lambda one: one.partition)),
            ErrorCode.of(topic.error_code),
        )
        for topic in response.topics
    }


def _of_page(one: DescribeTopicPartitionsResponsePartition) -> PartitionDetails:
    eligible, last_known = one.eligible_leader_replicas, one.last_known_elr
    return PartitionDetails(
        one.partition_index,
        None if one.leader_id == NO_NODE else one.leader_id,
        one.leader_epoch,
        tuple(one.replica_nodes),
        tuple(one.isr_nodes),
        None if eligible is None else tuple(eligible),
        None if last_known is None else tuple(last_known),
        tuple(one.offline_replicas),
    )


def _of_metadata(one: MetadataResponsePartition) -> PartitionDetails:
    return PartitionDetails(
        one.partition_index,
        None if one.leader_id == NO_NODE else one.leader_id,
        one.leader_epoch,
        tuple(one.replica_nodes),
        tuple(one.isr_nodes),
        None,
        None,
        tuple(one.offline_replicas),
    )
