"""Deletes windows older than their `keep`, and stores the deletion terms of `keeping`.

A deletion term says from when on the windows of one size of a metric are deleted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sinks.keeping import Place, Term, judge, limits
from sinks.mysql.metric_changes import WINDOWS_PER_STEP, delete_cells, delete_windows
from sinks.mysql.rows import to_datetime, to_seconds
from sinks.rows import MetricDefinition
from sinks.unparsed import SAMPLES_KEPT_DAYS


def agree(cursor: Any, definitions: Sequence[MetricDefinition], now_s: int) -> dict[Place, Term]:
    """Compute the deletion terms of the configured metrics, and store them.

    Call it in a transaction, so that after a crash either all terms are stored or none.
    """
    before = read_terms(cursor)
    terms = foresee(cursor, definitions, before, now_s)
    names = {definition.name for definition in definitions}
    # A metric that is not configured keeps its terms in case it returns; nothing is purged.
    ended = [place for place in before if place[0] in names and place not in terms]
    if ended:
        cursor.executemany("DELETE FROM keep_terms WHERE metric = %s AND size_s = %s", ended)
    if terms:
        cursor.executemany(
            "INSERT INTO keep_terms (metric, size_s, keep_s, from_at, cells) "
            "VALUES (%s,%s,%s,%s,%s) ON DUPLICATE KEY UPDATE keep_s = VALUES(keep_s), "
            "from_at = VALUES(from_at), cells = VALUES(cells)",
            [
                (*one.place, one.keep_s, to_datetime(one.from_s), one.cells)
                for one in terms.values()
            ],
        )
    return terms


def foresee(
    cursor: Any, definitions: Iterable[MetricDefinition], before: Mapping[Place, Term], now_s: int
) -> dict[Place, Term]:
    """Return the deletion terms that a driver with these metrics would store now.

    `before` are the terms that MySQL has now. This function stores nothing.
    """
    return {
        place: judge(
            place, keep_s, before.get(place), _cells_beyond(cursor, place, keep_s, now_s), now_s
        )
        for place, keep_s in limits(definitions)
    }


def read_terms(cursor: Any) -> dict[Place, Term]:
    """Return the stored deletion terms by metric and window size."""
    cursor.execute("SELECT metric, size_s, keep_s, from_at, cells FROM keep_terms")
    terms = [
        Term(str(metric), int(size_s), int(keep_s), to_seconds(from_at), int(cells))
        for metric, size_s, keep_s, from_at, cells in cursor.fetchall()
    ]
    return {term.place: term for term in terms}


def begin_now(cursor: Any, told: Iterable[Term], now_s: int) -> list[Term]:
    """Put these deletion terms into effect now; return those that were not in effect before.

    A term that was stored in the meantime, for another `keep` of the same windows, is not changed.
    """
    return [
        term
        for term in told
        if cursor.execute(
            "UPDATE keep_terms SET from_at = %s WHERE metric = %s AND size_s = %s "
            "AND keep_s = %s AND from_at = %s AND from_at > %s",
            (
                to_datetime(now_s),
                *term.place,
                term.keep_s,
                to_datetime(term.from_s),
                to_datetime(now_s),
            ),
        )
    ]


def purge(cursor: Any, definitions: Iterable[MetricDefinition], now_s: int, rows_max: int) -> bool:
    """Delete some windows older than their `keep`, and old samples.

    Returns True if there are more to delete.
    """
    left = False
    for (name, size_s), keep_s in limits(definitions):
        cursor.execute(
            "SELECT window_number FROM window_keys WHERE metric = %s AND size_s = %s "
            "AND start_at <= %s LIMIT %s",
            (name, size_s, to_datetime(now_s - keep_s - size_s), WINDOWS_PER_STEP),
        )
        numbers = [int(number) for (number,) in cursor.fetchall()]
        if not numbers:
            continue
        is_cut = delete_cells(cursor, numbers, rows_max) == rows_max
        if not is_cut:
            delete_windows(cursor, numbers)
        left = left or is_cut or len(numbers) == WINDOWS_PER_STEP
    oldest = to_datetime(now_s - SAMPLES_KEPT_DAYS * 86_400).date()
    deleted = cursor.execute(
        "DELETE FROM unparsed_lines WHERE day < %s LIMIT %s", (oldest, rows_max)
    )
    return left or bool(deleted == rows_max)


def _cells_beyond(cursor: Any, place: Place, keep_s: int, now_s: int) -> int:
    name, size_s = place
    cursor.execute(
        "SELECT COALESCE(SUM(n_keys), 0) FROM window_keys "
        "WHERE metric = %s AND size_s = %s AND start_at <= %s",
        (name, size_s, to_datetime(now_s - keep_s - size_s)),
    )
    return int(cursor.fetchone()[0])
