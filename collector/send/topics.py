"""The topics that a collector creates if they are missing, with their settings.

This module is pure. *Routed* topics are the topics that templates of the inputs have named so far.
Each is created when the first file writes to it. It gets the cluster's default number of
partitions, unless the configuration gives another number.
"""

from collections.abc import Collection

from collector.config.input_section import DEAD_LETTERS_TOPIC
from collector.config.settings import CollectorSettings, TopicSettings
from collector.send.position_topics import GROUP_PARTITIONS, positions_topic
from protocol.client.admin_types import TopicSpec
from protocol.collector_report import COLLECTORS_TOPIC

INPUT_PARTITIONS = 3  # partitions of an input's topic that the configuration does not mention

POSITIONS_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 << 20),
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "3600000",
}

REPORTS_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 << 20),
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
    # The answers to the reports tell the collectors the brokers' time.
    "message.timestamp.type": "LogAppendTime",
}


def topic_specs(settings: CollectorSettings, routed: Collection[str] = ()) -> list[TopicSpec]:
    """Return the topics that must exist: those of the configuration, the inputs and the
    collector."""
    group = settings.section.group
    positions, count = positions_topic(group), 1 if group is None else GROUP_PARTITIONS
    specs = {
        positions: TopicSpec(positions, count, None, POSITIONS_SETTINGS),
        DEAD_LETTERS_TOPIC: TopicSpec(DEAD_LETTERS_TOPIC, 1),
    }
    if group is not None:
        specs[COLLECTORS_TOPIC] = TopicSpec(COLLECTORS_TOPIC, 1, None, REPORTS_SETTINGS)
    specs |= {name: TopicSpec(name) for name in routed}
    specs |= {name: TopicSpec(name, INPUT_PARTITIONS) for name in settings.section.topics}
    for topic in settings.topics:
        specs[topic.name] = _spec(topic)
    return list(specs.values())


def routed_specs(settings: CollectorSettings, routed: Collection[str]) -> list[TopicSpec]:
    """Return the specifications of these routed topics only."""
    return [spec for spec in topic_specs(settings, routed) if spec.name in routed]


def _spec(topic: TopicSettings) -> TopicSpec:
    return TopicSpec(topic.name, topic.partitions, topic.replication, topic.settings)
