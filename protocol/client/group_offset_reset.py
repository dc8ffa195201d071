"""Compute the offsets to which the group's committed offsets are reset, and commit them.

Only a group without members can be reset, because a member would overwrite the offsets with its own
position.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from protocol.client.admin_types import OffsetAt
from protocol.client.cluster import Cluster
from protocol.client.errors import ClientError
from protocol.client.group import OffsetAndMetadata, commit_offsets, fetch_offsets
from protocol.client.offsets_by_time import list_offsets
from protocol.client.topic_details import describe_topics
from protocol.errors import ApiError, ErrorCode
from protocol.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_OFFSET,
    TopicPartition,
)
from protocol.units import parse_moment_ms

DEAD = "Dead"
EMPTY = "Empty"


class NothingCommitted(ClientError):
    """The error for a relative target when the group has no committed offset to shift."""


class To(StrEnum):
    """The kinds of reset targets."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    OFFSET = "offset"
    SHIFT = "shift"
    TIME = "time"
    PLAN = "plan"


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """A reset target.

    `value` is an offset, a shift or Unix milliseconds; `plan` has offsets by partition.
    """

    to: To
    value: int = 0
    plan: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets of one partition. `at_time` is -1 if no record is that recent."""

    start: int
    end: int
    current: int | None
    at_time: int = NO_OFFSET


Note = Callable[[str], None]


def new_offset(tp: TopicPartition, target: ResetTarget, bounds: Bounds, note: Note) -> int:
    """Return the offset to commit, within the log. Adjustments are reported to `note`.

    Raises NothingCommitted for a shift without a committed offset.
    """
    if target.to is To.EARLIEST:
        return bounds.start
    if target.to is To.LATEST:
        return bounds.end
    if target.to is To.CURRENT:
        return bounds.end if bounds.current is None else bounds.current
    if target.to is To.TIME:
        if bounds.at_time == NO_OFFSET:
            note(
                f"\nWarn: Partition {tp.partition} from topic {tp.topic} is empty. Falling back to"
                " latest known offset."
            )
            return bounds.end
        return bounds.at_time
    if target.to is To.SHIFT:
        if bounds.current is None:
            text = f"Cannot shift offset for partition {tp} since there is no current committed"
            raise NothingCommitted(f"{text} offset")
        return _within(tp, bounds.current + target.value, bounds, note)
    wanted = target.value if target.plan is None else target.plan[tp]
    return _within(tp, wanted, bounds, note)


def _within(tp: TopicPartition, wanted: int, bounds: Bounds, note: Note) -> int:
    for is_out, word, limit in (
        (wanted > bounds.end, "higher than latest", bounds.end),
        (wanted < bounds.start, "lower than earliest", bounds.start),
    ):
        if is_out:
            note(
                f"WARN New offset ({wanted}) is {word} offset for topic partition {tp}. Value will"
                f" be set to {limit}"
            )
            return limit
    return wanted


async def partitions_of(
    cluster: Cluster, group_id: str, topics: Sequence[str], *, all_topics: bool
) -> list[TopicPartition]:
    """Return the sorted partitions that `topics` name, or all that have committed offsets.

    Each text in `topics` is `t` for all partitions or `t:0,1` for some. Raises ValueError for a
    malformed text, and ApiError for topics and partitions that do not exist.
    """
    if all_topics:
        return sorted(await fetch_offsets(cluster, group_id))
    wanted = [split_scope(text) for text in topics]
    details = await describe_topics(cluster, {name for name, _ in wanted})
    found: set[TopicPartition] = set()
    for name, partitions in wanted:
        there = {one.partition for one in details[name].partitions}
        if details[name].error or not there:
            raise _missing(f"topic {name!r} does not exist")
        for partition in partitions if partitions is not None else sorted(there):
            if partition not in there:
                text = f"topic {name!r} has no partition {partition}, it has {len(there)}"
                raise _missing(text)
            found.add(TopicPartition(name, partition))
    return sorted(found)


def _missing(text: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def split_scope(text: str) -> tuple[str, list[int] | None]:
    """Return the topic and partitions of `t:0,1`; None for all partitions. Raises ValueError."""
    name, colon, numbers = text.partition(":")
    if not colon:
        return name, None
    try:
        return name, [int(number) for number in numbers.split(",")]
    except ValueError as error:
        expected = "expected a topic, or topic:0,1"
        raise ValueError(f"found {text!r}, {expected}") from error


async def bounds_of(
    cluster: Cluster, group_id: str | None, tps: Collection[TopicPartition], target: ResetTarget
) -> dict[TopicPartition, Bounds]:
    """Return for each partition the offsets that a target needs.

    If `group_id` is None, the committed offsets are left out. Raises ApiError for the first
    partition without an answer, and ClientError.
    """
    if not tps:
        return {}
    starts = await list_offsets(cluster, dict.fromkeys(tps, EARLIEST_TIMESTAMP))
    ends = await list_offsets(cluster, dict.fromkeys(tps, LATEST_TIMESTAMP))
    commits: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
    if group_id is not None:
        commits = await fetch_offsets(cluster, group_id, tps)
    times: Mapping[TopicPartition, OffsetAt] = {}
    if target.to is To.TIME:
        times = await list_offsets(cluster, dict.fromkeys(tps, target.value))
    found: dict[TopicPartition, Bounds] = {}
    for tp in sorted(tps):
        for answer in (starts[tp], ends[tp], times.get(tp, starts[tp])):
            if answer.error:
                raise ApiError(answer.error, f"{tp}: {answer.error.description}")
        commit = commits.get(tp)
        found[tp] = Bounds(
            starts[tp].offset,
            ends[tp].offset,
            None if commit is None else commit.offset,
            times[tp].offset if tp in times else NO_OFFSET,
        )
    return found


async def plan(
    cluster: Cluster,
    group_id: str,
    tps: Collection[TopicPartition],
    target: ResetTarget,
    note: Note,
) -> dict[TopicPartition, int]:
    """Return the offsets to which the group would be reset. Raises ApiError and ClientError."""
    bounds = await bounds_of(cluster, group_id, tps, target)
    return {tp: new_offset(tp, target, one, note) for tp, one in bounds.items()}


def why_it_stays(group_id: str, state: str) -> str | None:
    """Return why a group in this state cannot be reset; None if it has no members."""
    if state in (EMPTY, DEAD, ""):
        return None
    return (
        f"Assignments can only be reset if the group '{group_id}' is inactive, but the"
        f" current state is {state}."
    )


async def execute(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit the planned offsets. Raises ApiError if a member has joined in the meantime."""
    if offsets:
        committed = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
        await commit_offsets(cluster, group_id, committed)


def target_of(text: str, now_ms: int) -> ResetTarget:
    """Parse `start`, `end`, `current`, an offset, `+N`, `-N`, `1h` (ago) or a time. Raises
    ValueError.
    """
    words = {"start": To.EARLIEST, "end": To.LATEST, "current": To.CURRENT}
    if text in words:
        return ResetTarget(words[text])
    if text.isdecimal():
        return ResetTarget(To.OFFSET, int(text))
    if text[:1] in "+-" and text[1:].isdecimal():
        return ResetTarget(To.SHIFT, int(text))
    return ResetTarget(To.TIME, parse_moment_ms(text.removeprefix("-"), now_ms))
