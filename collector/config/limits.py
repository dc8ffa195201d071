"""Computes how large a topic's batches must be for the longest lines of its inputs.

This module is pure. Kafka accepts batches of 1,048,588 bytes by default, which is too small for a
record with a line of 1 MiB. If a topic has the default limit, the limit is raised for the longest
line. A limit that a user has set is kept, and lines that do not fit are overlong in that topic.
"""

from collections.abc import Collection, Mapping

from collector.config.encoding_names import OnInvalid, growth_max
from collector.config.input_section import DEAD_LETTERS_TOPIC
from collector.config.settings import CollectorSection

MAX_MESSAGE_BYTES = "max.message.bytes"
DEFAULT_MESSAGE_BYTES = 1_048_588
REQUEST_BYTES_MAX = 8 << 20
"""The size of the largest Produce request, and so of the largest batch and line."""
RECORD_ROOM_BYTES = 64 << 10
"""The space for the headers of a line's batch and record.

It has room for several copies of the longest path, which is the key and is in the headers of a dead
letter.
"""


def wanted_limits(section: CollectorSection, routed: Collection[str] = ()) -> dict[str, int]:
    """Return for each topic the `max.message.bytes` that its inputs' longest lines need.

    `routed` are the topics that templates have named so far.
    """
    wanted: dict[str, int] = {}
    for entry in section.inputs:
        growth = growth_max(entry.encoding, OnInvalid(entry.on_invalid))
        limit = min(entry.max_line_bytes * growth + RECORD_ROOM_BYTES, REQUEST_BYTES_MAX)
        template = entry.template
        topics = [entry.topic]
        if template is not None:
            topics = [topic for topic in routed if template.makes(topic)]
        for topic in (*topics, DEAD_LETTERS_TOPIC):
            wanted[topic] = max(limit, wanted.get(topic, DEFAULT_MESSAGE_BYTES))
    return wanted


def to_raise(wanted: Mapping[str, int], unset: Mapping[str, int]) -> dict[str, int]:
    """Return the limits to set.

    `unset` has the current limit of each topic whose limit is the default.
    """
    return {
        topic: wanted[topic]
        for topic, limit in unset.items()
        if topic in wanted and limit < wanted[topic]
    }
