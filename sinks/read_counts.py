"""Reads counts: totals, the last windows and the largest keys of metrics.

It needs only read rights. Every query has a limit for the windows that it reads, the keys that it
returns, and its time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pymysql

from sinks.config import MySqlSettings
from sinks.errors import SinkUnavailable
from sinks.read import connect_to_read
from sinks.rows import ALL_WINDOW_S

TIMEOUT_S = 3.0
KEYS_READ_MAX = 10_000
WINDOW_ROWS_MAX = 200_000


@dataclass(frozen=True, slots=True)
class KeyCount:
    """One key's cell: its count, the measure's value if that differs, and its quantiles.

    `is_estimate`: value and quantiles are estimates (`estimates`).
    """

    key: tuple[str | None, ...]
    count: int
    value: Decimal | None
    quantiles: str | None = None
    is_estimate: bool = False


@dataclass(frozen=True, slots=True)
class WindowSum:
    """One window, summed over its keys. `is_estimate`: the value of a key is an estimate."""

    start_s: int
    count: int
    value: Decimal | None
    keys: int
    is_estimate: bool = False


@dataclass(frozen=True, slots=True)
class MetricCounts:
    """A metric's totals and last windows of one size; `is_unique`: values are distinct counts."""

    name: str
    size_s: int
    windows: tuple[WindowSum, ...]
    totals: tuple[KeyCount, ...]
    keys_total: int
    is_unique: bool
    latest: tuple[KeyCount, ...] = ()


class CountsReader:
    """One connection for a few questions; call `close` at the end. Raises SinkUnavailable."""

    def __init__(self, settings: MySqlSettings, timeout_s: float = TIMEOUT_S) -> None:
        try:
            self._connection = connect_to_read(settings, timeout_s)
        except (pymysql.err.Error, OSError) as error:
            raise SinkUnavailable("mysql", str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def names(self) -> list[str]:
        """Return the names of all metrics that were counted at any time and not forgotten."""
        return [str(name) for (name,) in self._ask("SELECT name FROM metrics ORDER BY name")]

    def since(self) -> dict[str, datetime]:
        """Return for each metric the time since which it is counted, in UTC."""
        rows = self._ask("SELECT name, since FROM metrics")
        return {str(name): since.replace(tzinfo=UTC) for name, since in rows}

    def read(self, name: str, size_s: int, now_s: int, *, windows: int, keys: int) -> MetricCounts:
        """Return a metric's totals and its last windows of a size that begin before `now_s`.

        The result has the `keys` largest keys of the totals and of the newest complete window.
        """
        totals, keys_total, is_unique = self._cells(name, ALL_WINDOW_S, None, keys)
        found: tuple[WindowSum, ...] = ()
        latest: Sequence[KeyCount] = ()
        if size_s != ALL_WINDOW_S:
            found = self._windows(name, size_s, now_s - size_s * windows, now_s)
            whole = [window for window in found if window.start_s + size_s <= now_s]
            if whole:
                start = whole[-1].start_s
                latest, _, unique = self._cells(name, size_s, start, keys)
                is_unique = is_unique or unique
        return MetricCounts(
            name, size_s, found, tuple(totals), keys_total, is_unique, tuple(latest)
        )

    def _windows(self, name: str, size_s: int, from_s: int, to_s: int) -> tuple[WindowSum, ...]:
        begin, end = (_moment(at_s) for at_s in (from_s, to_s))
        many = self._ask(
            "SELECT COALESCE(SUM(n_keys), 0) FROM window_keys"
            " WHERE metric = %s AND size_s = %s AND start_at >= %s AND start_at <= %s",
            (name, size_s, begin, end),
        )
        if int(many[0][0]) > WINDOW_ROWS_MAX:
            # Adding up so many cells takes too long, so only the newest windows are read.
            begin = _moment(to_s - max(1, (to_s - from_s) // 10))
        rows = self._ask(
            "SELECT start_at, SUM(`count`), SUM(value), COUNT(*), MAX(estimate) FROM windows"
            " WHERE metric = %s AND size_s = %s AND start_at >= %s AND start_at <= %s"
            " GROUP BY start_at ORDER BY start_at",
            (name, size_s, begin, end),
        )
        return tuple(
            WindowSum(_seconds(start), int(count), value, int(keys), bool(is_estimate))
            for start, count, value, keys, is_estimate in rows
        )

    def _cells(
        self, name: str, size_s: int, start_s: int | None, keys: int
    ) -> tuple[list[KeyCount], int, bool]:
        where, values = "metric = %s AND size_s = %s", [name, size_s]
        arguments: list[object] = list(values)
        if start_s is not None:
            where += " AND start_at = %s"
            arguments.append(_moment(start_s))
        total = self._ask(
            f"SELECT COALESCE(SUM(n_keys), 0) FROM window_keys WHERE {where}", tuple(arguments)
        )[0][0]
        rows = self._ask(
            "SELECT k1, k2, k3, `count`, value, quantiles, estimate, hll IS NOT NULL FROM windows"
            f" WHERE {where} ORDER BY COALESCE(value, `count`) DESC, k1, k2, k3 LIMIT %s",
            (*arguments, min(keys, KEYS_READ_MAX)),
        )
        found = [
            KeyCount(_key(k1, k2, k3), int(count), value, quantiles, bool(is_estimate))
            for k1, k2, k3, count, value, quantiles, is_estimate, _ in rows
        ]
        return found, int(total), any(row[-1] for row in rows)

    def _ask(self, query: str, arguments: tuple[object, ...] = ()) -> Any:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(query, arguments)
                return cursor.fetchall()
        except (pymysql.err.Error, OSError) as error:
            raise SinkUnavailable("mysql", str(error)) from error


def _key(*columns: str | None) -> tuple[str | None, ...]:
    """Return the key's columns without the NULLs at the end, which the metric does not have."""
    found = list(columns)
    while found and found[-1] is None:
        found.pop()
    return tuple(found)


def _moment(at_s: int) -> datetime:
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None)


def _seconds(at: datetime) -> int:
    return int(at.replace(tzinfo=UTC).timestamp())
