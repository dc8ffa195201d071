"""The table `archived`: the contents of the archive of raw lines, for readers without Spark.

The stream copies the archive's own notes into this table; if they differ, the notes are right. A
row has the offsets of one partition in one piece, with the latest arrival time of its lines.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = tuple[int, int, int, int]
"""Partition, first offset, end, and the latest arrival in Unix milliseconds (-1: no lines)."""


def summary(cursor: Any, topic: str) -> dict[int, tuple[int, int]]:
    """Return for each partition of a topic the number of rows and the highest end offset."""
    cursor.execute(
        "SELECT part, COUNT(*), MAX(end_offset) FROM archived WHERE topic = %s GROUP BY part",
        (topic,),
    )
    return {int(part): (int(count), int(end)) for part, count, end in cursor.fetchall()}


def summary_of(rows: Iterable[Row]) -> dict[int, tuple[int, int]]:
    """Return what `summary` would return if the table had exactly these rows."""
    found: dict[int, tuple[int, int]] = {}
    for part, _, end, _ in rows:
        count, last = found.get(part, (0, 0))
        found[part] = (count + 1, max(last, end))
    return found


def clear(cursor: Any, topic: str) -> None:
    """Delete the rows of a topic."""
    cursor.execute("DELETE FROM archived WHERE topic = %s", (topic,))


def note(cursor: Any, topic: str, rows: Sequence[Row]) -> None:
    """Insert rows, or update existing rows with the same start offset."""
    cursor.executemany(
        "INSERT INTO archived (topic, part, start_offset, end_offset, until_ms) "
        "VALUES (%s,%s,%s,%s,%s) ON DUPLICATE KEY UPDATE "
        "end_offset = VALUES(end_offset), until_ms = VALUES(until_ms)",
        [(topic, *row) for row in rows],
    )


def first_since(
    cursor: Any, topics: Sequence[str], since_ms: int | None
) -> dict[tuple[str, int], int]:
    """Return the start of the first piece that has lines from a time on, by topic and partition.

    The piece can have earlier lines too. If `since_ms` is None, it is the start of the archive.
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
    """Return the offsets from which to count, by topic and partition.

    `by_time` is the broker's first offset for the wanted time, and `held` is the first offset that
    it has at all. If both are the same, wanted lines can be older than the topic's, so counting
    starts in the archive (`archived`).
    """
    return {
        place: min(floor, archived.get(place, floor)) if floor <= held[place] else floor
        for place, floor in by_time.items()
    }
