"""The topics as metadata lists them, with the reassignments under way.

This module is pure.
"""

from collections.abc import Mapping

from monitor.state.reading import PartitionReading, TopicReading
from protocol.client.metadata import ClusterMetadata, PartitionMetadata
from protocol.client.reassignment_admin import Reassignment
from protocol.types import ZERO_UUID, TopicPartition, uuid_to_base64

NOT_MOVING = Reassignment((), (), ())


def topic_readings(
    metadata: ClusterMetadata, moving: Mapping[TopicPartition, Reassignment]
) -> tuple[TopicReading, ...]:
    """Return the topics in metadata's order."""

    def partition_reading(tp: TopicPartition, part: PartitionMetadata) -> PartitionReading:
        move = moving.get(tp, NOT_MOVING)
        return PartitionReading(
            tp,
            None if part.leader_id < 0 else part.leader_id,
            tuple(part.replicas),
            tuple(part.isr),
            move.adding,
            move.removing,
        )

    return tuple(
        TopicReading(
            name=name,
            topic_id=None if topic.topic_id == ZERO_UUID else uuid_to_base64(topic.topic_id),
            internal=topic.is_internal,
            partitions=tuple(
                partition_reading(TopicPartition(name, index), part)
                for index, part in sorted(topic.partitions.items())
            ),
        )
        for name, topic in sorted(metadata.topics.items())
    )
