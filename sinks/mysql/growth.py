"""Computes how many rows each metric has in MySQL, how fast they grow, and when the disk is full.

`rows_of` asks a server; everything else is pure. Counting the rows of a year would take too long,
so the key counts of the windows in `window_keys` are added up.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

DAY_S = 86_400

# The pace is measured over windows that began at most this many days ago.
PACE_DAYS = 7.0
# A pace measured over less than this is too uncertain for a forecast of months.
PACE_S_MIN = 3_600


@dataclass(frozen=True, slots=True)
class SizeRows:
    """The rows of one window size of a metric.

    `recent` is the number of rows of windows that began in the last PACE_DAYS. The first of these
    windows began at `recent_since_s`, which is None if there is no such window.
    """

    metric: str
    size_s: int
    rows: int
    recent: int
    recent_since_s: int | None


@dataclass(frozen=True, slots=True)
class TableSize:
    """The rows in `window_cells`, and the disk space of both tables of cells, in bytes."""

    sizes: Sequence[SizeRows]
    table_bytes: int

    @property
    def bytes_per_row(self) -> float:
        """The average size of a row, 0 without rows."""
        rows = sum(one.rows for one in self.sizes)
        return self.table_bytes / rows if rows else 0.0


@dataclass(frozen=True, slots=True)
class GrowthPerDay:
    """The windows of one size: the rows added per day, and for how many days they are kept.

    `kept_days` is None if the windows are kept forever. Otherwise the rows grow until they are as
    many as are added in `kept_days`. `grows_days` says how long that still takes at this pace.
    """

    size_s: int
    rows: int
    rows_a_day: float
    kept_days: float | None

    @property
    def grows_days(self) -> float | None:
        """The days until the number of rows stops growing; None if it never stops."""
        if self.kept_days is None or not self.rows_a_day:
            return None
        return max(0.0, self.kept_days - self.rows / self.rows_a_day)


@dataclass(frozen=True, slots=True)
class Growth:
    """One metric: its rows, their share of the table's bytes, and how fast each size grows."""

    metric: str
    rows: int
    bytes: int
    paces: tuple[GrowthPerDay, ...]

    @property
    def rows_a_day(self) -> float:
        """The rows added per day, before any purge."""
        return sum(pace.rows_a_day for pace in self.paces)


def rows_of(cursor: Any, now_s: int) -> TableSize:
    """Ask a server for its rows and disk space; raises what PyMySQL raises."""
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
    return TableSize(sizes, int(found[0] or 0) if found else 0)


def growth_of(
    stored: TableSize, kept_s: Mapping[str, Mapping[int, int | None]], now_s: int
) -> tuple[Growth, ...]:
    """Return every metric that has rows, those with the most rows first.

    `kept_s` is how long each size of each metric is kept. A size that is missing or None is kept
    forever.
    """
    by_metric: dict[str, list[SizeRows]] = {}
    for one in stored.sizes:
        by_metric.setdefault(one.metric, []).append(one)
    found = []
    for metric, sizes in by_metric.items():
        rows = sum(one.rows for one in sizes)
        kept = kept_s.get(metric, {})
        paces = tuple(_pace(one, kept.get(one.size_s), now_s) for one in sizes)
        found.append(Growth(metric, rows, round(rows * stored.bytes_per_row), paces))
    return tuple(sorted(found, key=lambda one: (-one.rows, one.metric)))


def days_left(growths: Iterable[Growth], bytes_per_row: float, free_bytes: int) -> float | None:
    """Return for how many days a disk with this free space suffices; None means forever.

    Rows with a limited `keep` grow until they equal the rows added in that time; from then on they
    are purged as fast as they are added.
    """
    paces = [
        (pace.rows_a_day * bytes_per_row, pace.grows_days)
        for one in growths
        for pace in one.paces
        if pace.rows_a_day
    ]
    # The disk fills at a constant pace between two moments at which a size stops growing.
    day, left = 0.0, float(free_bytes)
    for until in [*sorted({grows for _, grows in paces if grows is not None}), None]:
        pace = sum(bytes_ for bytes_, grows in paces if grows is None or grows > day)
        if pace and (until is None or left < pace * (until - day)):
            return day + left / pace
        if until is not None:
            left -= pace * (until - day)
            day = until
    return None


def _pace(one: SizeRows, kept_s: int | None, now_s: int) -> GrowthPerDay:
    rows_a_day = 0.0
    if one.recent_since_s is not None:
        seconds = max(now_s - one.recent_since_s, one.size_s, PACE_S_MIN)
        rows_a_day = one.recent * DAY_S / seconds
    return GrowthPerDay(
        one.size_s, one.rows, rows_a_day, None if kept_s is None else kept_s / DAY_S
    )
