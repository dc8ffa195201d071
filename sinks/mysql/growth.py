"""How many rows each metric has in MySQL, how they become more, and how long a disk holds them.

`rows_of` asks a server; all else is pure. The rows of a year are too many to be counted each time:
`window_keys` knows how many keys each window has.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

DAY_S = 86_400

# The pace is that of windows which began so many days ago at most.
PACE_DAYS = 7.0
# Of a pace over less than this nothing can be said for months ahead.
PACE_S_MIN = 3_600


@dataclass(frozen=True, slots=True)
class SizeRows:
    """The rows of one window size of a metric.

    `recent` are those of windows that began in the last PACE_DAYS, the first of them at
    `recent_since_s`, which is None where there is none.
    """

    metric: str
    size_s: int
    rows: int
    recent: int
    recent_since_s: int | None


@dataclass(frozen=True, slots=True)
class Stored:
    """What `window_cells` holds, and the bytes of disk that it and `window_keys` take."""

    sizes: Sequence[SizeRows]
    table_bytes: int

    @property
    def bytes_per_row(self) -> float:
        """What a row takes on the average, 0 without a row."""
        rows = sum(one.rows for one in self.sizes)
        return self.table_bytes / rows if rows else 0.0


@dataclass(frozen=True, slots=True)
class Growth:
    """One metric: its rows, their share of the table's bytes, and the rows that a day adds.

    `kept_days` is for how long windows are kept, None for ever.
    """

    metric: str
    rows: int
    bytes: int
    rows_a_day: float
    kept_days: float | None


def rows_of(cursor: Any, now_s: int) -> Stored:
    """Ask a server; raises what its library does."""
    since = datetime.fromtimestamp(now_s - PACE_DAYS * DAY_S, UTC).replace(tzinfo=None)
    cursor.execute(
        "SELECT metric, size_s, SUM(n_keys), SUM(IF(start_at >= %s, n_keys, 0)),"
        " TIMESTAMPDIFF(SECOND, '1970-01-01', MIN(IF(start_at >= %s, start_at, NULL)))"
        " FROM window_keys GROUP BY metric, size_s",
        (since, since),
    )
    sizes = [
        SizeRows(str(metric), int(size_s), int(rows), int(recent), first_s)
        for metric, size_s, rows, recent, first_s in cursor.fetchall()
    ]
    cursor.execute(
        "SELECT SUM(data_length + index_length) FROM information_schema.tables"
        " WHERE table_schema = DATABASE() AND table_name IN ('window_cells', 'window_keys')"
    )
    found = cursor.fetchone()
    return Stored(sizes, int(found[0] or 0) if found else 0)


def growth_of(stored: Stored, kept_s: Mapping[str, int | None], now_s: int) -> tuple[Growth, ...]:
    """Every metric that has rows, those with the most first; `kept_s` is how long each is kept."""
    by_metric: dict[str, list[SizeRows]] = {}
    for one in stored.sizes:
        by_metric.setdefault(one.metric, []).append(one)
    found = []
    for metric, sizes in by_metric.items():
        rows = sum(one.rows for one in sizes)
        kept = kept_s.get(metric)
        found.append(
            Growth(
                metric,
                rows,
                round(rows * stored.bytes_per_row),
                sum(_rows_a_day(one, now_s) for one in sizes),
                None if kept is None else kept / DAY_S,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.rows, one.metric)))


def days_left(growths: Iterable[Growth], bytes_per_row: float, free_bytes: int) -> float | None:
    """For how many days a disk with so much room holds what is added; None: for ever.

    What is kept for a limited time grows until that has passed, and is then purged as fast as it
    comes; how much of it is there already is left out, which makes the answer one for the worst.
    """
    paces = [(one.rows_a_day * bytes_per_row, one.kept_days) for one in growths if one.rows_a_day]
    # Between two moments at which something stops to grow, the disk fills at one pace.
    day, left = 0.0, float(free_bytes)
    for until in [*sorted({kept for _, kept in paces if kept is not None}), None]:
        pace = sum(bytes_ for bytes_, kept in paces if kept is None or kept > day)
        if pace and (until is None or left < pace * (until - day)):
            return day + left / pace
        if until is not None:
            left -= pace * (until - day)
            day = until
    return None


def _rows_a_day(one: SizeRows, now_s: int) -> float:
    if one.recent_since_s is None:
        return 0.0
    seconds = max(now_s - one.recent_since_s, one.size_s, PACE_S_MIN)
    return one.recent * DAY_S / seconds
