"""Decides by the metadata which partition folders of this broker must be removed or replaced.

This module reads no disk. `folders` carries the decisions out.

A replica is *taken away* when the metadata assigns its partition to other brokers only. Metadata
that is older than this broker's registration takes no replica away and makes no folder a stray
(decision 0130).
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.config import InForce
from broker.metadata.image import METADATA_TOPIC, MetadataImage, TopicImage
from broker.metadata.partition_image import PartitionImage
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from protocol.types import NO_NODE, TopicPartition


class FolderRules:
    """The rules for the partition folders of one broker."""

    def __init__(self, settings: InForce, logs: LogManager, broker_epoch: int) -> None:
        """`broker_epoch` is the epoch under which this incarnation is registered."""
        self._settings = settings
        self._logs = logs
        self._broker_epoch = broker_epoch

    def is_led_elsewhere(self, partition: PartitionImage) -> bool:
        """Return True if another broker leads the partition and this one is neither in sync nor
        eligible.

        That leader was in sync or eligible, so it has all acknowledged records. The exception is a
        leader that an operator has elected, knowing that records can be missing.
        """
        me = self._settings.config.node_id
        counts = me in (*partition.in_sync_replicas, *partition.eligible_leader_replicas)
        return partition.leader not in (NO_NODE, me) and not counts

    def departed(
        self, partitions: Iterable[TopicPartition], image: MetadataImage
    ) -> list[TopicPartition]:
        """Return the partitions that are no longer assigned to this broker, but of which it still
        has the log."""
        if not self._includes_registration(image):
            return []
        return [
            one
            for one in partitions
            if self._is_taken_away(one, image)
            and self._is_log_of(image.topics[one.topic], self._logs.get(one))
        ]

    def departed_damaged(self, topic: TopicImage, image: MetadataImage) -> list[TopicPartition]:
        """Return the topic's partitions that are no longer assigned to this broker, but of which it
        still has a damaged log."""
        if not self._includes_registration(image):
            return []
        return [
            one
            for one in self._logs.offline
            if one.topic == topic.name and self._is_taken_away(one, image)
        ]

    def unknown(self, image: MetadataImage) -> list[TopicPartition]:
        """Return the partitions of this broker's logs whose topic is not in the image."""
        return [
            topic_partition
            for topic_partition, log in self._logs.logs.items()
            if (topic := image.topics.get(topic_partition.topic)) is None
            or not self._is_log_of(topic, log)
        ]

    def strays(self, image: MetadataImage) -> list[TopicPartition]:
        """Return the partitions of this broker's logs that belong to no topic."""
        if not self._includes_registration(image):
            return []
        return [one for one in self.unknown(image) if one.topic != METADATA_TOPIC]

    def _includes_registration(self, image: MetadataImage) -> bool:
        """Return True if the image includes this broker's registration.

        Only such an image may decide which folders are removed, because it includes all changes
        that were committed when this broker created its folders. By an older image the folder of a
        replica that was assigned to this broker later would be removed.
        """
        return image.end_offset > self._broker_epoch

    def _is_log_of(self, topic: TopicImage, log: Log | None) -> bool:
        """Return True if the log belongs to this topic, and not to another topic with the same
        name."""
        return log is not None and log.topic_id == topic.topic_id

    def _is_taken_away(self, one: TopicPartition, image: MetadataImage) -> bool:
        """Return True if the metadata assigns the partition to other brokers only."""
        topic = image.topics.get(one.topic)
        if topic is None or one.partition >= len(topic.partitions):
            return False
        return self._settings.config.node_id not in topic.partitions[one.partition].replicas
