"""The rules of CreateTopics; `topic_changes` has the rules of deletion and growth.

This module is pure. Each topic of a request is decided separately: an error in one does not affect
the others. The topics that a request creates count against the limits for the later topics of the
same request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from broker.config import PRODUCERS_CODEC, TOPIC_ROWS, BrokerConfig, check_topic_settings
from broker.controller.outcome import ControllerDecision, CreateOwnTopic
from broker.controller.placement import ReplicaPlacer, check_assignment
from broker.metadata.broker_image import directories_for
from broker.metadata.configs import created_configs
from broker.metadata.image import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    MetadataImage,
)
from broker.metadata.names import check_topic_name, normalised
from broker.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.types import ZERO_UUID, Uuid

SUGGESTION_COUNT_MAX = 20
"""The largest number of settings in one request for which the error suggests a similar name. The
search for a similar name takes long."""

Named = TypeVar("Named", CreatableTopic, CreatePartitionsTopic)


@dataclass(slots=True)
class TopicBudget:
    """The numbers of topics and partitions that a request may still create, and the names that it
    has used."""

    topics: int
    partitions: int
    config: BrokerConfig
    placer: ReplicaPlacer
    suggestions: int = SUGGESTION_COUNT_MAX
    """The number of unknown settings for which a similar name may still be searched."""
    made: dict[str, str] = field(default_factory=dict)
    """The topics that this request creates, by their normalised names."""

    @classmethod
    def of(cls, image: MetadataImage, config: BrokerConfig) -> TopicBudget:
        """Return the budget of a request: the limits minus the image's topics and partitions."""
        return cls(
            config.max_topics - len(image.topics),
            config.max_partitions - image.partition_count,
            config,
            ReplicaPlacer(image, config),
        )

    def take(self, topics: int, partitions: int) -> None:
        """Subtract topics and partitions from the budget.

        Raises POLICY_VIOLATION if too little is left.
        """
        if topics > self.topics:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"the cluster has reached its limit of {self.config.max_topics} topics "
                "(max.topics): delete topics, or raise the setting",
            )
        if partitions > self.partitions:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"the limit is {self.config.max_partitions} partitions (max.partitions), so you "
                f"can create {max(self.partitions, 0)} more, and the request needs {partitions}",
            )
        self.topics -= topics
        self.partitions -= partitions


@dataclass(frozen=True, slots=True)
class Creation:
    """A topic to create: the request's values, with defaults filled in."""

    name: str
    topic_id: Uuid
    replicas: Sequence[Sequence[int]]
    settings: Mapping[str, str]

    def records(self, image: MetadataImage) -> list[MetadataRecord]:
        """Return the records of the topic, its partitions and its settings, to be committed as one
        batch."""
        records: list[MetadataRecord] = [TopicRecord(name=self.name, topic_id=self.topic_id)]
        records.extend(new_partitions(self.topic_id, 0, self.replicas, image))
        records.extend(
            ConfigRecord(
                resource_type=TOPIC_RESOURCE, resource_name=self.name, name=key, value=value
            )
            for key, value in self.settings.items()
        )
        return records


def new_partitions(
    topic_id: Uuid, first: int, placed: Iterable[Sequence[int]], image: MetadataImage
) -> Iterator[PartitionRecord]:
    """Yield the records of new partitions, numbered from `first` on. The leader of each is the
    first replica in service.

    The other replicas join the in-sync replicas later.
    """
    found: dict[tuple[int, ...], tuple[list[int], tuple[Uuid, ...]]] = {}
    for number, replicas in enumerate(placed, first):
        key = tuple(replicas)
        known = found.get(key)
        if known is None:
            # Many partitions share the same list of replicas, so cache the in-sync replicas by
            # list.
            in_sync = [one for one in replicas if image.brokers[one].is_active]
            known = found[key] = in_sync, directories_for(replicas, image.brokers, {})
        in_sync, directories = known
        yield PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=list(in_sync),
            leader=in_sync[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=list(directories),
        )


def create_topics(
    request: CreateTopicsRequest,
    image: MetadataImage,
    config: BrokerConfig,
    new_topic_id: Callable[[], Uuid],
) -> ControllerDecision[CreateTopicsResponse]:
    """Handle CreateTopics.

    With `validate_only` the answer has the same content, but there are no records.
    """
    records: list[MetadataRecord] = []
    results = []
    named = Counter(topic.name for topic in request.topics)
    budget = TopicBudget.of(image, config)
    for topic in each_once(request.topics):
        try:
            refuse_repeated(named, topic.name)
            creation = _creation(topic, image, config, budget, new_topic_id)
        except ApiError as error:
            results.append(
                CreatableTopicResult(
                    name=topic.name, error_code=error.code, error_message=error.message, configs=[]
                )
            )
            continue
        if not request.validate_only:
            records.extend(creation.records(image))
        results.append(
            CreatableTopicResult(
                name=topic.name,
                # Kafka shows no id for a topic that was only validated.
                topic_id=ZERO_UUID if request.validate_only else creation.topic_id,
                error_code=ErrorCode.NONE,
                error_message=None,
                num_partitions=len(creation.replicas),
                replication_factor=len(creation.replicas[0]),
                configs=created_configs(creation.settings, config),
            )
        )
    return ControllerDecision(records, CreateTopicsResponse(topics=results))


def own_topic(name: str, config: BrokerConfig) -> CreatableTopic:
    """Return a topic with the broker's defaults.

    The topics of the coordinators have their own defaults.
    """
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    settings: dict[str, str] = {}
    if name == OFFSETS_TOPIC:
        topic.num_partitions = config.offsets_topic_num_partitions
        topic.replication_factor = config.offsets_topic_replication_factor
        settings = {
            "cleanup.policy": "compact",
            "compression.type": PRODUCERS_CODEC,
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
    elif name == TRANSACTIONS_TOPIC:
        topic.num_partitions = config.transaction_state_log_num_partitions
        topic.replication_factor = config.transaction_state_log_replication_factor
        settings = {
            "cleanup.policy": "compact",
            "compression.type": PRODUCERS_CODEC,
            # The minimum is at most the number of replicas. Otherwise tools would report each
            # partition as under the minimum.
            "min.insync.replicas": str(
                min(config.transaction_state_log_min_isr, topic.replication_factor)
            ),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            # Flush each batch of the coordinators' topics, whatever the broker's flush settings
            # are. Otherwise, after a power cut, a partition could have an open transaction that the
            # coordinator's log has lost.
            "flush.messages": "1",
        }
    topic.configs = [CreatableTopicConfig(name=key, value=one) for key, one in settings.items()]
    return topic


def create_own_topic(
    order: CreateOwnTopic,
    image: MetadataImage,
    config: BrokerConfig,
    new_topic_id: Callable[[], Uuid],
) -> ControllerDecision[ErrorCode]:
    """Create a topic that the broker itself needs.

    The reply is NONE if the topic already exists.
    """
    if order.name in image.topics:
        return ControllerDecision([], ErrorCode.NONE)
    topic = own_topic(order.name, config)
    try:
        creation = _creation(topic, image, config, TopicBudget.of(image, config), new_topic_id)
    except ApiError as error:
        return ControllerDecision([], error.code)
    return ControllerDecision(creation.records(image), ErrorCode.NONE)


def _creation(
    topic: CreatableTopic,
    image: MetadataImage,
    config: BrokerConfig,
    budget: TopicBudget,
    new_topic_id: Callable[[], Uuid],
) -> Creation:
    name = check_topic_name(topic.name)
    if name == METADATA_TOPIC:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{METADATA_TOPIC} is the name of the metadata log: choose another name",
        )
    if name in image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if name not in INTERNAL_TOPICS:
        # The broker's own topics must be created even if clients have used colliding names.
        _refuse_collision(name, image, budget)
    settings = _stated_settings(topic, budget)
    replicas = _replicas(topic, image, config, budget)
    budget.made[normalised(name)] = name
    return Creation(name, new_topic_id(), replicas, settings)


def _refuse_collision(name: str, image: MetadataImage, budget: TopicBudget) -> None:
    """Refuse a name that would share its metric names with another topic, as in Kafka and its
    tools."""
    for other in (*image.colliding(name), budget.made.get(normalised(name))):
        if other is not None:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )


def _stated_settings(topic: CreatableTopic, budget: TopicBudget) -> dict[str, str]:
    settings: dict[str, str] = {}
    for entry in topic.configs:
        if entry.value is None:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"{entry.name} has no value: give it one, or leave it out"
            )
        # As in Kafka, the last of two values for a key is used.
        settings[entry.name] = entry.value
    faults = check_topic_settings(settings, suggests=budget.suggestions > 0)
    if faults:
        budget.suggestions -= 1
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "; ".join(_fault_text(*fault) for fault in faults),
        )
    return settings


def _fault_text(key: str, found: object, wanted: str) -> str:
    if key in TOPIC_ROWS:
        return f"setting {key}: found {found!r}, expected {wanted}"
    # Scripts search for Kafka's text, so the suggestion follows that text.
    _, separator, meant = wanted.partition("; ")
    return f"Unknown topic config name: {key}{separator}{meant}"


def _replicas(
    topic: CreatableTopic, image: MetadataImage, config: BrokerConfig, budget: TopicBudget
) -> Sequence[Sequence[int]]:
    """Return the replicas of each partition.

    The numbers come from the client, so they are checked and taken from the budget before any list
    is built.
    """
    if topic.assignments:
        replicas = _chosen_replicas(topic, image, budget.placer.cordoned)
        budget.take(1, len(replicas))
        return replicas
    count = topic.num_partitions if topic.num_partitions != -1 else config.num_partitions
    if count < 1:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"found {count} partitions, expected at least 1",
        )
    factor = topic.replication_factor
    if factor == -1:
        factor = config.default_replication_factor
    racks = budget.placer.candidates(factor)
    budget.take(1, count)
    return budget.placer.place(racks, count, factor)


def _chosen_replicas(
    topic: CreatableTopic, image: MetadataImage, cordoned: Collection[int]
) -> list[list[int]]:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "the request has assignments, so its number of partitions and its replication factor "
            "must both be -1",
        )
    chosen = {one.partition_index: one.broker_ids for one in topic.assignments}
    if sorted(chosen) != list(range(len(topic.assignments))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"found assignments for the partitions {sorted(chosen)}, expected the numbers from 0 "
            "on without gaps, each once",
        )
    replicas = [chosen[number] for number in range(len(chosen))]
    for one in replicas:
        check_assignment(one, image, cordoned)
    if len({len(one) for one in replicas}) != 1:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "the assignments have different numbers of replicas; all need the same",
        )
    return replicas


def each_once(topics: Sequence[Named]) -> Iterable[Named]:
    """Return the topics with each name only once, because Kafka answers each name once and the Java
    client looks up answers by name."""
    return {topic.name: topic for topic in topics}.values()


def refuse_repeated(named: Mapping[str, int], name: str) -> None:
    """Refuse a name that is in the request more than once.

    `named` has the number of times for each name.
    """
    if named[name] > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
