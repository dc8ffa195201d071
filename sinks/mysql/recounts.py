"""The metrics that must be recounted over earlier lines, as stored in the table `recounts`.

A recount goes back from the first offset that the metric has counted, some offsets at a time. One
transaction writes the cells and the metric's new first offset. So even after a crash, a recount
needs no other state than the ranges of the metric (`ranges.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sinks.errors import RangeMoved
from sinks.mysql.metric_changes import read_ranges
from sinks.ranges import gap_below, is_away
from sinks.rows import OffsetRange

WORDS_MAX = 500


@dataclass(frozen=True, slots=True)
class Recount:
    """A metric that is being recounted, and what is missing.

    `gaps` are the missing offsets nearest to the counted ones, one range per partition. `left` is
    how many offsets are missing in total. `tries` is how many attempts began since lines
    were last counted. `problem` says why the recount was given up; None if it was not.
    """

    metric: str
    gaps: Sequence[OffsetRange]
    left: int
    tries: int
    problem: str | None


def ask_for(cursor: Any, metric: str, floors: Mapping[tuple[str, int], int]) -> None:
    """Request a recount of a metric from these offsets on."""
    cursor.executemany(
        "INSERT INTO recounts (metric, topic, part, from_offset) VALUES (%s,%s,%s,%s) "
        "ON DUPLICATE KEY UPDATE from_offset = VALUES(from_offset), tries = 0, problem = NULL",
        [(metric, topic, part, floor) for (topic, part), floor in sorted(floors.items())],
    )


def wanted(cursor: Any) -> list[Recount]:
    """Return the pending recounts; delete those that are done or whose metric was removed."""
    cursor.execute("SELECT metric, topic, part, from_offset, tries, problem FROM recounts")
    asked = list(cursor.fetchall())
    if not asked:
        return []
    ranges = read_ranges(cursor)
    found: list[Recount] = []
    for metric in sorted({str(row[0]) for row in asked}):
        own = [row for row in asked if row[0] == metric]
        gaps: list[OffsetRange] = []
        left = 0
        if not is_away(metric, ranges):
            for _, topic, part, floor, _, _ in own:
                rows = [one for one in ranges if one[:3] == (metric, topic, part)]
                gap = gap_below(rows, int(floor))
                if gap is not None:
                    gaps.append(OffsetRange(str(topic), int(part), *gap))
                    left += gap[1] - int(floor) - _between(rows, int(floor), gap[0])
        if gaps:
            found.append(Recount(metric, gaps, left, max(int(row[4]) for row in own), own[0][5]))
        else:
            cursor.execute("DELETE FROM recounts WHERE metric = %s", (metric,))
    return found


def _between(rows: Sequence[Any], low: int, high: int) -> int:
    """Return how many of the offsets from `low` to `high` are counted already."""
    return sum(
        max(0, min(one.end_offset, high) - max(one.start_offset, low))
        for one in rows
        if one.end_offset is not None
    )


def note_try(cursor: Any, metric: str) -> None:
    """Add a try before counting starts, so that it is stored even if it crashes the driver."""
    cursor.execute("UPDATE recounts SET tries = tries + 1 WHERE metric = %s", (metric,))


def give_up(cursor: Any, metric: str, why: str) -> None:
    """Stop the recount of a metric until it is requested again."""
    cursor.execute("UPDATE recounts SET problem = %s WHERE metric = %s", (why[:WORDS_MAX], metric))


def move_beginnings(cursor: Any, metric: str, counted: Sequence[OffsetRange]) -> None:
    """Set a metric's first offsets to the starts of these ranges.

    Call it in the transaction that writes the cells.

    Raises RangeMoved if the metric does not begin at the ends of these ranges, because some lines
    would then count twice.
    """
    for one in counted:
        # Delete an empty range at this start. A metric has one if it was removed before the first
        # line of the partition.
        cursor.execute(
            "DELETE FROM metric_ranges WHERE metric = %s AND topic = %s AND part = %s "
            "AND start_offset = %s AND end_offset = start_offset",
            (metric, one.topic, one.partition, one.start),
        )
        moved = cursor.execute(
            "UPDATE metric_ranges SET start_offset = %s "
            "WHERE metric = %s AND topic = %s AND part = %s AND start_offset = %s",
            (one.start, metric, one.topic, one.partition, one.end),
        )
        if moved != 1:
            raise RangeMoved(metric, one)
    cursor.execute("UPDATE recounts SET tries = 0 WHERE metric = %s", (metric,))


def raise_floors(cursor: Any, metric: str, held: Mapping[tuple[str, int], int]) -> None:
    """Limit the recount to offsets from these on, because earlier lines were deleted."""
    cursor.executemany(
        "UPDATE recounts SET from_offset = GREATEST(from_offset, %s) "
        "WHERE metric = %s AND topic = %s AND part = %s",
        [(first, metric, topic, part) for (topic, part), first in sorted(held.items())],
    )
