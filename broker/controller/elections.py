"""Decides elections on request: ElectLeaders (KIP-460), and the automatic return to preferred
replicas.

This module is pure. The preferred replica is the first one of the assignment. Without the automatic
return, brokers would lead nothing after a restart, because the other brokers would keep the
leaderships.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from broker.config import BrokerConfig
from broker.controller.leadership import (
    Election,
    WantedChange,
    by_preference,
    change,
    elect_by_order,
    may_lead,
    min_in_sync_replicas,
    partitions_of,
    returns,
)
from broker.controller.outcome import ControllerDecision
from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.records import MetadataRecord
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elections import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from protocol.types import NO_NODE, TopicPartition

PREFERRED, UNCLEAN = 0, 1
"""Kafka's numbers of the two election types."""

SETTLED_MS = 60_000
"""The time for which a broker must be in service before leaderships return to it.

Without this wait, a broker that restarts repeatedly would cause an error at its clients each time.
"""

RETURNED_MAX = 1_000
"""The largest number of leaderships that return in one batch.

The other leaderships follow with the next check.
"""


@dataclass(frozen=True, slots=True)
class ElectPreferred:
    """The controller's own request to return leaderships to the preferred replicas on the `settled`
    brokers."""

    settled: frozenset[int]


def elect_preferred(
    order: ElectPreferred, image: MetadataImage, config: BrokerConfig
) -> ControllerDecision[None]:
    """Elect the preferred replicas that are in sync on the `settled` brokers."""
    records: list[MetadataRecord] = []
    if not config.auto_leader_rebalance_enable:
        return ControllerDecision(records, None)
    for topic, number in electable_preferred(image, order.settled):
        partition = topic.partitions[number]
        min_isr = min_in_sync_replicas(topic, image, config)
        wanted = WantedChange(election=Election.PREFERRED)
        records.append(change(topic.topic_id, number, partition, wanted, image.brokers, min_isr))
        if len(records) == RETURNED_MAX:
            break
    return ControllerDecision(records, None)


def electable_preferred(
    image: MetadataImage, settled: frozenset[int]
) -> Iterator[tuple[TopicImage, int]]:
    """Yield the partitions whose leadership would return to the preferred replica, as (topic,
    index)."""
    for topic, number, partition in partitions_of(image):
        if partition.replicas[0] in settled and returns(partition, image.brokers):
            yield topic, number


def elect_leaders(
    request: ElectLeadersRequest, image: MetadataImage, config: BrokerConfig
) -> ControllerDecision[ElectLeadersResponse]:
    """Decide ElectLeaders, each partition separately.

    The answer to a request for all partitions names only the partitions that needed an election.
    """
    records: list[MetadataRecord] = []
    results: dict[str, ReplicaElectionResult] = {}
    for wanted in dict.fromkeys(_named_or_all(request, image)):
        code, text = ErrorCode.NONE, None
        try:
            records.append(_elected(wanted, request.election_type, image, config))
        except ApiError as error:
            code, text = error.code, error.message
            if request.topic_partitions is None and code is ErrorCode.ELECTION_NOT_NEEDED:
                continue
        result = results.setdefault(wanted.topic, ReplicaElectionResult(topic=wanted.topic))
        result.partition_result.append(
            PartitionResult(partition_id=wanted.partition, error_code=code, error_message=text)
        )
    response = ElectLeadersResponse(replica_election_results=list(results.values()))
    return ControllerDecision(records, response)


def _named_or_all(request: ElectLeadersRequest, image: MetadataImage) -> Iterator[TopicPartition]:
    if request.topic_partitions is None:
        for topic, number, _ in partitions_of(image):
            yield TopicPartition(topic.name, number)
        return
    for asked in request.topic_partitions:
        for number in asked.partitions:
            yield TopicPartition(asked.topic, number)


def _elected(
    wanted: TopicPartition, election_type: int, image: MetadataImage, config: BrokerConfig
) -> MetadataRecord:
    topic = image.topics.get(wanted.topic)
    if topic is None or not 0 <= wanted.partition < len(topic.partitions):
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"partition {wanted.topic}-{wanted.partition} does not exist",
        )
    min_isr = min_in_sync_replicas(topic, image, config)
    if election_type == PREFERRED:
        return elect_by_order(topic, wanted.partition, image, Election.PREFERRED, min_isr)
    # No replica can lead without a possible loss of records. As in Kafka, an unclean election then
    # elects the first replica in service.
    partition = topic.partitions[wanted.partition]
    able = [one for one in by_preference(partition) if may_lead(partition, one, image.brokers)]
    chosen = able[0] if able else NO_NODE
    return elect_by_order(topic, wanted.partition, image, Election.UNCLEAN, min_isr, chosen)
