"""The topics of the positions, and the partition of a collector that has a trust group.

This module is pure. A collector without a trust group uses all partitions of `millrace.positions`.
A collector of a group uses one partition of the group's topic, which the name of its instance
decides. So it reads only a sixteenth of the positions of the group when it starts.
"""

from collector.config.input_section import GROUP_POSITIONS_PREFIX, POSITIONS_TOPIC
from protocol.client.partitioner import partition_for_key

GROUP_PARTITIONS = 16
"""The partitions of a group's topic.

An instance's partition follows from this number, not from the topic's number of partitions. So the
instance keeps its partition when partitions are added.
"""


def positions_topic(group: str | None) -> str:
    """Return the topic for the positions of the collectors of a trust group."""
    return POSITIONS_TOPIC if group is None else f"{GROUP_POSITIONS_PREFIX}{group}"


def group_partition(instance: str) -> int:
    """Return the partition of a group's topic that has the positions of an instance."""
    return partition_for_key(instance.encode(), GROUP_PARTITIONS)
