"""Finds offsets of logs by time: the start, the end, and the first record since a time."""

import re
from collections.abc import Callable, Sequence

from appliance.kafka.topics import Matcher
from appliance.output import CommandError, Exit
from protocol.client.admin_types import OffsetAt
from protocol.client.cluster import Cluster
from protocol.client.offsets_by_time import list_offsets
from protocol.client.topic_details import list_topics
from protocol.types import TopicPartition

Filter = Callable[[TopicPartition], bool]

_RANGE = re.compile(r"(?P<topic>[^:,]*)(?::(?:(?P<low>\d*)-(?P<high>\d*)|(?P<one>\d+))?)?\Z")


def filter_of_ranges(text: str) -> Filter:
    """Parse `t:1,u:0-3,v,w:5-,:-3` into a filter of partitions; upper bounds are exclusive.

    Raises CommandError.
    """
    rules = []
    for part in text.split(","):
        match = _RANGE.match(part)
        if match is None:
            expected = "expected topic, topic:2, topic:0-3, topic:5- or :-3"
            raise CommandError(f"Invalid rule: {part}, {expected}", Exit.USAGE)
        low, high = match["low"], match["high"]
        first = int(match["one"] or low or 0)
        end = first + 1 if match["one"] else int(high) if high else None
        rules.append((Matcher(match["topic"] or None), first, end))

    def is_meant(tp: TopicPartition) -> bool:
        return any(
            matches(tp.topic) and tp.partition >= first and (end is None or tp.partition < end)
            for matches, first, end in rules
        )

    return is_meant


def filter_of_names(pattern: str | None, partitions: Sequence[int] | None) -> Filter:
    """Make a filter of partitions from a pattern of topics and a list of numbers. Raises
    CommandError."""
    matches = Matcher(pattern)
    wanted = None if partitions is None else frozenset(partitions)
    return lambda tp: matches(tp.topic) and (wanted is None or tp.partition in wanted)


async def offsets(
    cluster: Cluster, is_meant: Filter, timestamp_ms: int, *, with_internal: bool = True
) -> dict[TopicPartition, OffsetAt]:
    """Return the offset at a time for every wanted partition, each with its own error.

    Sorted by the text `topic-partition`, as in Kafka's tool.
    """
    tps = [
        TopicPartition(topic.name, one.partition)
        for topic in (await list_topics(cluster)).values()
        if with_internal or not topic.is_internal
        for one in topic.partitions
    ]
    wanted = sorted(filter(is_meant, tps), key=str)
    if not wanted:
        return {}
    found = await list_offsets(cluster, dict.fromkeys(wanted, timestamp_ms))
    return {tp: found[tp] for tp in wanted}
