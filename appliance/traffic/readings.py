"""Reads a metric's values for the command line: from Redis or, if Redis does not answer, from
MySQL."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from appliance.mill.init import InitError
from appliance.mill.settings import Mill, sinks_settings
from appliance.mill.sinks import READER

TIMEOUT_S = 5.0
_NO_SUCH_TABLE = (1146, 1356)
"""The error codes of MySQL for a view that does not exist, and for a view whose tables do not
exist."""


class ReadingError(Exception):
    """Raised when neither sink can be read. The text says why."""


class NotCounted(ReadingError):
    """Raised when the stream has not begun to count the metric."""


@dataclass(frozen=True, slots=True)
class Value:
    """The stored value of one key, and the number by which the keys are sorted.

    `is_estimate` is None if the sink does not store whether the value is an estimate.
    """

    text: str
    rank: Decimal
    is_estimate: bool | None = None


@dataclass(frozen=True, slots=True)
class MetricReading:
    """The values of a metric in one window, by key in the form of Redis. `start` is empty for
    totals."""

    metric: str
    size: str
    start: str
    source: str
    values: Mapping[str, Value]


def read_metric(mill: Mill, metric: str, size: str) -> MetricReading:
    """Return the values in the latest window of a size, or the totals. Raises ReadingError when no
    sink answers."""
    try:
        sinks = sinks_settings(mill, READER, "monitor")
    except InitError as error:
        raise ReadingError(str(error)) from error
    reasons = []
    if sinks["redis"] is not None:
        try:
            reading = _from_redis(sinks["redis"], metric, size)
        except ReadingError as error:
            reasons.append(str(error))
        else:
            if reading.values or sinks["mysql"] is None:
                return reading
    if sinks["mysql"] is not None:
        try:
            return _from_mysql(sinks["mysql"], metric, size)
        except NotCounted:
            raise
        except ReadingError as error:
            reasons.append(str(error))
    raise ReadingError("; ".join(reasons))


def _from_redis(settings: dict[str, Any], metric: str, size: str) -> MetricReading:
    import redis

    from sinks.config import RedisSettings
    from sinks.connections import redis_client

    try:
        with redis_client(RedisSettings.model_validate(settings), TIMEOUT_S) as client:
            fields: dict[str, str] = client.hgetall(f"mill:{metric}:{size}")
    except (redis.RedisError, OSError) as error:
        raise ReadingError(f"Redis cannot be read: {error}") from error
    start = fields.pop("@start", "")
    values = {key: _value(text) for key, text in fields.items()}
    return MetricReading(metric, size, start, "Redis", values)


def _from_mysql(settings: dict[str, Any], metric: str, size: str) -> MetricReading:
    import pymysql

    from sinks.config import MySqlSettings
    from sinks.read import connect_to_read

    try:
        connection = connect_to_read(MySqlSettings.model_validate(settings), TIMEOUT_S)
        with contextlib.closing(connection), connection.cursor() as cursor:
            # With the metric's view, MySQL would read all rows of this size to find the newest
            # window.
            cursor.execute(
                "SELECT MAX(start_at) FROM window_keys WHERE metric = %s AND size_s ="
                " (SELECT size_s FROM window_sizes WHERE size = %s)",
                (metric, size),
            )
            newest = (cursor.fetchone() or (None,))[0]
            # Names come from the configuration, whose rules allow only plain letters, digits and
            # `_`.
            cursor.execute(
                f"SELECT * FROM `{metric}` WHERE size = %s AND start_at = %s", (size, newest)
            )
            heads = [column[0] for column in cursor.description]
            rows = [dict(zip(heads, row, strict=True)) for row in cursor.fetchall()]
    except (pymysql.MySQLError, OSError) as error:
        code, text = (*error.args, "", "")[:2]
        if code in _NO_SUCH_TABLE:
            raise NotCounted(
                f"the stream does not count {metric} yet; `./millrace status` shows the state "
                "of the stream"
            ) from error
        raise ReadingError(f"MySQL cannot be read: {text} ({code})") from error
    start = "" if size == "all" or newest is None else f"{newest:%Y%m%dT%H%M%SZ}"
    return MetricReading(metric, size, start, "MySQL", dict(_rows_as_values(heads, rows)))


def _rows_as_values(heads: list[str], rows: list[dict[str, Any]]) -> Iterator[tuple[str, Value]]:
    """Yield the values in the rows of a view. The columns of the key are between `start_at` and
    `count`."""
    first, last = heads.index("start_at") + 1, heads.index("count")
    for row in rows:
        shown = row.get("value")
        key = _field([row[head] for head in heads[first:last]])
        value = _value(_plain(row["count"] if shown is None else shown))
        yield key, replace(value, is_estimate=bool(row.get("estimate")))


def _field(parts: list[str | None]) -> str:
    """Return the field in Redis for a key, from the key's columns in MySQL."""
    from sinks.keys import OTHER_TEXT, redis_field

    if parts and parts[0] == OTHER_TEXT and not any(parts[1:]):
        return OTHER_TEXT
    return redis_field(tuple(parts))


def key_cells(field: str, columns: int) -> list[str]:
    """Split a field of Redis into the columns of the key; empty for a metric without a key."""
    if not columns:
        return []
    cells, escaped = [""], False
    for character in field:
        if escaped or character not in "\\|":
            cells[-1] += character
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            cells.append("")
    return (cells + [""] * columns)[:columns]


def _plain(value: object) -> str:
    """Format a number as Redis does, without trailing zeros."""
    from sinks.number_text import plain

    return plain(value) if isinstance(value, Decimal) else str(value)


def _value(text: str) -> Value:
    try:
        return Value(text, Decimal(text))
    except InvalidOperation:
        return Value(text, Decimal(0))
