"""Parses the new committed offsets of a group, from options or from a file.

`protocol.client.group_offset_reset` computes the offsets; the page uses it too.
"""

import csv
import time
from collections.abc import Iterable, Sequence

from appliance.kafka.groups import Group
from appliance.output import CommandError, Exit
from protocol.client import group_offset_reset
from protocol.client.cluster import Cluster
from protocol.client.group_offset_reset import ResetTarget, why_it_stays
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition


async def partitions_of(
    cluster: Cluster, group_id: str, topics: Sequence[str], *, all_topics: bool
) -> list[TopicPartition]:
    """Return the partitions to reset: `t`, `t:0,1`, or all with a committed offset. Sorted.

    Raises CommandError for bad text and for partitions that do not exist.
    """
    try:
        return await group_offset_reset.partitions_of(
            cluster, group_id, topics, all_topics=all_topics
        )
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise CommandError(error.message, Exit.NOT_FOUND) from error


def split_scope(text: str) -> tuple[str, list[int] | None]:
    """Parse `t:0,1` into a topic and its partitions; None means all. Raises CommandError."""
    try:
        return group_offset_reset.split_scope(text)
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error


def refuse_active(group: Group) -> None:
    """Raise CommandError for a group that has members."""
    if (why := why_it_stays(group.group_id, group.state)) is not None:
        raise CommandError(why, Exit.CONDITION)


def read_plan(
    lines: Iterable[str], group_ids: Sequence[str]
) -> dict[str, dict[TopicPartition, int]]:
    """Parse lines `topic,partition,offset` or, for several groups, `group,topic,partition,offset`.

    Returns offsets by group. Raises CommandError with the line.
    """
    found: dict[str, dict[TopicPartition, int]] = {}
    for number, row in enumerate(csv.reader(lines), start=1):
        if not row:
            continue
        try:
            *names, topic, partition, offset = row
            (group_id,) = names or group_ids[:1]
            tp = TopicPartition(topic, int(partition))
            found.setdefault(group_id, {})[tp] = int(offset)
        except ValueError as error:
            text = f"line {number}: found {','.join(row)!r}"
            expected = "expected topic,partition,offset or group,topic,partition,offset"
            raise CommandError(f"{text}, {expected}", Exit.USAGE) from error
    return found


def target_of(text: str) -> ResetTarget:
    """Parse `start`, `end`, `current`, an offset, `+N`, `-N`, `1h` or a time. Raises
    CommandError."""
    try:
        return group_offset_reset.target_of(text, round(time.time() * 1000))
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error
