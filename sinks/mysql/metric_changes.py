"""Stores in MySQL which metrics were added and removed, and forgets removed metrics.

The rules are in `ranges.py`. A metric is forgotten in steps, and the last step removes its name.
Until then its definition hash is FORGOTTEN. No configuration has that hash, so every driver refuses
to count the metric.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from sinks.errors import StillCounted, UnknownMetric
from sinks.ranges import Ledger, MetricRange, MetricsChange, Topics, change, is_away

FORGOTTEN = bytes(16)
ROWS_PER_STEP = 10_000
WINDOWS_PER_STEP = 1_000


def change_metrics(
    cursor: Any, names: Topics, stored: Collection[str], ledger: Ledger
) -> MetricsChange:
    """Store the offsets from which and up to which metrics are counted.

    Call it in the transaction that opens the sinks.

    `stored` are the names of the metrics that were stored before.
    """
    cursor.execute("SELECT metric, topic FROM metric_topics")
    topics: dict[str, set[str]] = {name: set() for name in stored}
    for metric, topic in cursor.fetchall():
        topics.setdefault(str(metric), set()).add(str(topic))
    found = change(names, {name: topics[name] for name in stored}, read_ranges(cursor), ledger)
    if rows := [(name, topic) for name, own in names.items() for topic in own]:
        cursor.executemany(
            "INSERT INTO metric_topics (metric, topic) VALUES (%s,%s) "
            "ON DUPLICATE KEY UPDATE topic = VALUES(topic)",
            rows,
        )
    if found.rows:
        cursor.executemany(
            "INSERT INTO metric_ranges (metric, topic, part, start_offset, end_offset) "
            "VALUES (%s,%s,%s,%s,%s) ON DUPLICATE KEY UPDATE end_offset = VALUES(end_offset)",
            found.rows,
        )
    for name in found.unused:
        _remove_name(cursor, name)
    return found


def begin_to_forget(cursor: Any, name: str) -> None:
    """Mark a removed metric so that no driver counts it. Call it in a transaction.

    Raises UnknownMetric, StillCounted.
    """
    # Lock the guard row first, as a driver does when it opens the sinks, so that the two cannot
    # deadlock.
    cursor.execute("SELECT epoch FROM sink_guard WHERE id = 1 FOR UPDATE")
    cursor.execute("SELECT definition_hash FROM metrics WHERE name = %s", (name,))
    row = cursor.fetchone()
    if row is None:
        cursor.execute("SELECT name FROM metrics ORDER BY name")
        raise UnknownMetric(name, [str(known) for (known,) in cursor.fetchall()])
    if bytes(row[0]) == FORGOTTEN:
        return
    if not is_away(name, read_ranges(cursor)):
        raise StillCounted(name)
    cursor.execute("UPDATE metrics SET definition_hash = %s WHERE name = %s", (FORGOTTEN, name))


def forget_rows(cursor: Any, name: str, *, told: Callable[[int], None]) -> None:
    """Delete a metric's cells, and then its name. Each step is committed on its own.

    `told` is called with the number of rows that a step has deleted.
    """
    while numbers := _windows_of(cursor, name):
        deleted = ROWS_PER_STEP
        while deleted == ROWS_PER_STEP:
            deleted = delete_cells(cursor, numbers, ROWS_PER_STEP)
            told(deleted)
        delete_windows(cursor, numbers)
    cursor.execute(f"DROP VIEW IF EXISTS `{name}`")
    _remove_name(cursor, name)


def _windows_of(cursor: Any, name: str) -> list[int]:
    cursor.execute(
        "SELECT window_number FROM window_keys WHERE metric = %s LIMIT %s", (name, WINDOWS_PER_STEP)
    )
    return [int(number) for (number,) in cursor.fetchall()]


def delete_cells(cursor: Any, numbers: Sequence[int], rows_max: int) -> int:
    """Delete up to `rows_max` cells of some windows; return how many were deleted.

    A window's cells are deleted before its row in `window_keys`, because a window without that
    row must be empty.
    """
    deleted: int = cursor.execute(
        "DELETE FROM window_cells WHERE window_number IN %s LIMIT %s", (list(numbers), rows_max)
    )
    return deleted


def delete_windows(cursor: Any, numbers: Sequence[int]) -> None:
    """Delete windows that have no cells left."""
    cursor.execute("DELETE FROM window_keys WHERE window_number IN %s", (list(numbers),))


def _remove_name(cursor: Any, name: str) -> None:
    cursor.execute("DELETE FROM recounts WHERE metric = %s", (name,))
    cursor.execute("DELETE FROM metric_topics WHERE metric = %s", (name,))
    cursor.execute("DELETE FROM metric_ranges WHERE metric = %s", (name,))
    cursor.execute("DELETE FROM keep_terms WHERE metric = %s", (name,))
    cursor.execute("DELETE FROM metrics WHERE name = %s", (name,))


def read_ranges(cursor: Any) -> list[MetricRange]:
    """Return all rows of the table `metric_ranges`."""
    cursor.execute("SELECT metric, topic, part, start_offset, end_offset FROM metric_ranges")
    return [
        MetricRange(
            str(metric), str(topic), int(part), int(start), None if end is None else int(end)
        )
        for metric, topic, part, start, end in cursor.fetchall()
    ]
