"""The contents of the archive of raw lines, in the table `archived`, for readers without Spark.

The archive's own notes are the truth, and the stream copies them here. A row has the offsets of one
partition in one piece, with the latest arrival time among its lines.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = tuple[int, int, int, int]
"""Partition, first offset, end, and the latest arrival in epoch milliseconds (-1: no line)."""


def summary(cursor: Any, topic: str) -> dict[int, tuple[int, int]]:
    """Return for each partition of a topic the number of rows and the last end."""
    cursor.execute(
        "SELECT part, COUNT(*), MAX(end_offset) FROM archived WHERE topic = %s GROUP BY part",
        (topic,),
    )
    return {int(part): (int(count), int(end)) for part, count, end in cursor.fetchall()}


def summary_of(rows: Iterable[Row]) -> dict[int, tuple[int, int]]:
    """Return the same for given rows."""
    found: dict[int, tuple[int, int]] = {}
    for part, _, end, _ in rows:
        count, last = found.get(part, (0, 0))
        found[part] = (count + 1, max(last, end))
    return found


def clear(cursor: Any, topic: str) -> None:
    """Delete the rows of a topic."""
    cursor.execute("DELETE FROM archived WHERE topic = %s", (topic,))


def note(cursor: Any, topic: str, rows: Sequence[Row]) -> None:
    """Write rows; existing rows with the same start are updated."""
    cursor.executemany(
        "INSERT INTO archived (topic, part, start_offset, end_offset, until_ms) "
        "VALUES (%s,%s,%s,%s,%s) ON DUPLICATE KEY UPDATE "
        "end_offset = VALUES(end_offset), until_ms = VALUES(until_ms)",
        [(topic, *row) for row in rows],
    )


def first_since(
    cursor: Any, topics: Sequence[str], since_ms: int | None
) -> dict[tuple[str, int], int]:
    """Return where the first piece begins with lines that arrived at or after a time (None: any).

    The piece can also hold earlier lines.
    """
    cursor.execute(
        "SELECT topic, part, MIN(start_offset) FROM archived "
        f"WHERE topic IN ({','.join(['%s'] * len(topics))}) AND until_ms >= %s "
        "GROUP BY topic, part",
        (*topics, -1 if since_ms is None else since_ms),
    )
    return {(str(topic), int(part)): int(start) for topic, part, start in cursor.fetchall()}


def floors(
    by_time: Mapping[tuple[str, int], int],
    held: Mapping[tuple[str, int], int],
    archived: Mapping[tuple[str, int], int],
) -> dict[tuple[str, int], int]:
    """Return where to start counting: in the archive, if all that the topic still has is wanted.

    `by_time` is the broker's answer for the time, `held` the first offset that the broker has.
    """
    return {
        place: min(floor, archived.get(place, floor)) if floor <= held[place] else floor
        for place, floor in by_time.items()
    }
