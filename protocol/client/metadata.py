"""A client's metadata of a cluster: immutable snapshots, and the rules to update them.

This module is pure: responses and the time are passed in. Rules:

- A leader epoch never goes back for the same topic id, so a response of a lagging broker does not
  bring back an earlier leader. A topic that was created again has another id, so its epochs start
  again.
- A leader that turned out to be wrong is forgotten. Its epoch is kept.
- Metadata of some topics is merged into the known metadata; metadata of all topics replaces it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from protocol.types import NO_LEADER_EPOCH, NO_NODE, ZERO_UUID, TopicPartition, Uuid


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """One broker, with the address of the listener that this client uses."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"broker {self.node_id} ({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition. `leader_id` is -1 while no leader is known."""

    partition: int
    error: ErrorCode
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic. A topic with an error has no partitions."""

    name: str
    error: ErrorCode
    topic_id: Uuid = ZERO_UUID
    is_internal: bool = False
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)

    @property
    def available_partitions(self) -> tuple[int, ...]:
        """The partitions with a leader, or all of them if none has one."""
        led = tuple(p for p, data in self.partitions.items() if data.leader_id != NO_NODE)
        return led or tuple(self.partitions)


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One snapshot of the cluster's metadata. It is never changed, only replaced."""

    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    controller_id: int = NO_NODE
    cluster_id: str | None = None
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)

    def partition(self, tp: TopicPartition) -> PartitionMetadata | None:
        """Return the metadata of a partition, if known."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def leader(self, tp: TopicPartition) -> int | None:
        """Return the broker id of the partition's leader; None if it is unknown."""
        partition = self.partition(tp)
        if partition is None or partition.leader_id == NO_NODE:
            return None
        return partition.leader_id if partition.leader_id in self.brokers else None

    def error_of(self, tp: TopicPartition) -> ErrorCode:
        """Return why the partition has no leader, as the error code that a broker would send."""
        topic = self.topics.get(tp.topic)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic.error:
            return topic.error
        partition = topic.partitions.get(tp.partition)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return partition.error or ErrorCode.LEADER_NOT_AVAILABLE


class MetadataCache:
    """The newest metadata snapshot, and the age of each topic's metadata."""

    def __init__(self, age_max_ms: int) -> None:
        self.age_max_ms = age_max_ms
        self.current = ClusterMetadata()
        self._read_at: dict[str, int] = {}
        self._all_read_at: int | None = None
        self._epochs: dict[TopicPartition, tuple[Uuid, int]] = {}

    def is_known(self, topics: Collection[str] | None) -> bool:
        """Return whether these topics (None: all) are known, even if the metadata is old."""
        if topics is None:
            return self._all_read_at is not None
        known = self.current.topics
        return all(name in known and not known[name].error for name in topics)

    def is_fresh(self, topics: Collection[str] | None, now_ms: int) -> bool:
        """Return whether the metadata of these topics is recent and not known to be wrong."""
        oldest = now_ms - self.age_max_ms
        if topics is None:
            return self._all_read_at is not None and self._all_read_at > oldest
        return all(self._read_at.get(name, oldest) > oldest for name in topics)

    def apply(
        self, response: MetadataResponse, asked: Collection[str] | None, now_ms: int
    ) -> ClusterMetadata:
        """Apply a response about the `asked` topics (None: all), and return the new snapshot."""
        # Topics that are missing in a response for all topics are deleted.
        known = {} if asked is None else dict(self.current.topics)
        for topic in response.topics:
            if topic.name is not None:
                known[topic.name] = self._topic(topic)
                self._read_at[topic.name] = now_ms
        if asked is None:
            self._all_read_at = now_ms
            self._forget_gone(known)
        self.current = ClusterMetadata(
            brokers=MappingProxyType(
                {
                    broker.node_id: BrokerInfo(
                        broker.node_id, broker.host, broker.port, broker.rack
                    )
                    for broker in response.brokers
                }
            ),
            controller_id=response.controller_id,
            cluster_id=response.cluster_id,
            topics=MappingProxyType(known),
        )
        return self.current

    def forget_leader(self, tp: TopicPartition) -> None:
        """Forget the leader of this partition, until the next response."""
        topic = self.current.topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        if topic is not None and partition is not None and partition.leader_id != NO_NODE:
            self._replace_topics({tp.topic: _without_leaders(topic, {tp.partition})})

    def forget_node(self, node_id: int) -> None:
        """Forget all leaderships of an unreachable broker."""
        changed = {}
        for name, topic in self.current.topics.items():
            led = {p for p, data in topic.partitions.items() if data.leader_id == node_id}
            if led:
                changed[name] = _without_leaders(topic, led)
        self._replace_topics(changed)

    def _replace_topics(self, changed: Mapping[str, TopicMetadata]) -> None:
        for name in changed:
            self._read_at.pop(name, None)
        topics = MappingProxyType({**self.current.topics, **changed})
        self.current = replace(self.current, topics=topics)

    def _topic(self, topic: MetadataResponseTopic) -> TopicMetadata:
        name = topic.name
        assert name is not None
        partitions = {}
        for partition in sorted(topic.partitions, key=lambda p: p.partition_index):
            tp = TopicPartition(name, partition.partition_index)
            fresh = PartitionMetadata(
                partition=partition.partition_index,
                error=ErrorCode.of(partition.error_code),
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replicas=tuple(partition.replica_nodes),
                isr=tuple(partition.isr_nodes),
                offline_replicas=tuple(partition.offline_replicas),
            )
            partitions[tp.partition] = self._newer(tp, topic.topic_id, fresh)
        return TopicMetadata(
            name=name,
            error=ErrorCode.of(topic.error_code),
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=MappingProxyType(partitions),
        )

    def _newer(
        self, tp: TopicPartition, topic_id: Uuid, fresh: PartitionMetadata
    ) -> PartitionMetadata:
        if fresh.leader_epoch == NO_LEADER_EPOCH:
            return fresh
        known_id, known_epoch = self._epochs.get(tp, (topic_id, NO_LEADER_EPOCH))
        if known_id == topic_id and fresh.leader_epoch < known_epoch:
            known = self.current.partition(tp)
            if known is not None:
                return known
            return replace(fresh, leader_id=NO_NODE, error=ErrorCode.LEADER_NOT_AVAILABLE)
        self._epochs[tp] = (topic_id, fresh.leader_epoch)
        return fresh

    def _forget_gone(self, known: Iterable[str]) -> None:
        names = set(known)
        self._read_at = {name: at for name, at in self._read_at.items() if name in names}
        self._epochs = {tp: epoch for tp, epoch in self._epochs.items() if tp.topic in names}


def _without_leaders(topic: TopicMetadata, partitions: Collection[int]) -> TopicMetadata:
    forgotten = {
        index: replace(data, leader_id=NO_NODE, error=ErrorCode.LEADER_NOT_AVAILABLE)
        if index in partitions
        else data
        for index, data in topic.partitions.items()
    }
    return replace(topic, partitions=MappingProxyType(forgotten))
