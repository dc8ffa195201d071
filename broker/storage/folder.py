"""The names of partition folders.

This module is pure.
"""

from __future__ import annotations

from protocol.types import TopicPartition

TOPIC_NAME_MAX = 249
"""The largest number of characters in a topic's name.

With the partition number the folder's name stays below 255.
"""

_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def folder_name(topic_partition: TopicPartition) -> str:
    """Return the folder name of a partition. Raises ValueError if it would not be a safe path."""
    topic, partition = topic_partition
    if (
        not 0 < len(topic) <= TOPIC_NAME_MAX
        or topic in (".", "..")
        or not _CHARACTERS.issuperset(topic)
        or partition < 0
    ):
        raise ValueError(
            f"cannot name the folder of {topic_partition!r}: expected a partition from 0, and"
            f" a topic of 1 to {TOPIC_NAME_MAX} of the characters a-z, A-Z, 0-9, `.`, `_` and `-`,"
            " but not `.` or `..` alone"
        )
    return f"{topic}-{partition}"


def parse_folder_name(name: str) -> TopicPartition | None:
    """Return the partition whose folder has this name; None for any other name."""
    topic, dash, number = name.rpartition("-")
    if not dash or not number.isdecimal() or not number.isascii():
        return None
    topic_partition = TopicPartition(topic, int(number))
    try:
        return topic_partition if folder_name(topic_partition) == name else None
    except ValueError:
        return None
