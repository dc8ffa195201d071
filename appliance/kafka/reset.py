"""Where a group shall go on, as commands ask for it: wishes in words, plans in files.

The offsets themselves are `protocol.client.group_offset_reset`'s, which the page uses too.
"""

import csv
import time
from collections.abc import Iterable, Sequence

from appliance.cli.output import CommandError, Exit
from appliance.kafka.groups import Group
from protocol.client import group_offset_reset
from protocol.client.cluster import Cluster
from protocol.client.group_offset_reset import ResetTarget, why_it_stays
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition


async def partitions_of(
    cluster: Cluster, group_id: str, topics: Sequence[str], *, all_topics: bool
) -> list[TopicPartition]:
    """What a reset concerns: `t`, `t:0,1`, or all that the group has committed. Sorted.

    Raises CommandError for a text that is no scope, and for what does not exist.
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
    """`t:0,1` as a topic and its partitions; None for all of them. Raises CommandError."""
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
    """Offsets by group of `topic,partition,offset` or, for several, `group,topic,partition,offset`.

    Raises CommandError with the line.
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
    """`start`, `end`, `current`, an offset, `+N`, `-N`, `1h` or a time. Raises CommandError."""
    try:
        return group_offset_reset.target_of(text, round(time.time() * 1000))
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error
