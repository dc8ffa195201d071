"""Read-only queries that show whether the sinks answer and what they have counted."""

from collections.abc import Mapping
from typing import Any

import pymysql
import redis

from sinks.config import MySqlSettings, RedisSettings
from sinks.connections import connect_mysql, redis_client
from sinks.errors import SinkUnavailable

TIMEOUT_S = 1.5
UNPARSED_LISTED = 200

# Reasons with this beginning concern a single metric. Other metrics can have counted the line.
METRIC_FAULT = "expression_null:"
POISON = "poison"


def connect_to_read(settings: MySqlSettings, timeout_s: float) -> "pymysql.Connection[Any]":
    """Return a connection whose calls wait at most `timeout_s`; raises what PyMySQL raises."""
    return connect_mysql(
        settings,
        connect_timeout=max(1, round(timeout_s)),
        read_timeout=timeout_s,
        autocommit=True,
    )


def ask_mysql(settings: MySqlSettings, timeout_s: float = TIMEOUT_S) -> Mapping[str, object]:
    """Log in and read the writer row, `{"seq", "epoch", "batch_id"}` if there is one.

    The result also has the server's `uptime_s` and everything that was not counted so far:
    `unparsed` by file and reason, `lines_unparsed` and `lines_set_aside` as numbers of lines, and
    `metric_faults` as faults of single metrics, on lines that others may have counted. Raises
    SinkUnavailable with the server's own message.
    """
    try:
        connection = connect_to_read(settings, timeout_s)
        with connection, connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Uptime'")
            row = cursor.fetchone()
            found: dict[str, object] = {"uptime_s": int(row[1]) if row else None}
            cursor.execute("SHOW TABLES LIKE 'sink_guard'")
            if cursor.fetchone() is None:
                return found
            cursor.execute("SELECT seq, epoch, batch_id FROM sink_guard WHERE id = 1")
            if (row := cursor.fetchone()) is not None:
                found.update(zip(("seq", "epoch", "batch_id"), row, strict=True))
            return {**found, **_not_counted(cursor)}
    except (pymysql.err.Error, OSError) as error:
        raise SinkUnavailable("mysql", str(error)) from error


def _not_counted(cursor: Any) -> dict[str, object]:
    """Return the sums of the table `unparsed`, and its rows with the highest counts."""
    cursor.execute(
        "SELECT SUM(IF(reason LIKE %s OR reason = %s, 0, `count`)),"
        " SUM(IF(reason = %s, `count`, 0)), SUM(IF(reason LIKE %s, `count`, 0)) FROM unparsed",
        (f"{METRIC_FAULT}%", POISON, POISON, f"{METRIC_FAULT}%"),
    )
    sums = [int(one or 0) for one in cursor.fetchone()]
    cursor.execute(
        "SELECT topic, file, reason, `count` FROM unparsed ORDER BY `count` DESC, file LIMIT %s",
        (UNPARSED_LISTED,),
    )
    heads = ("topic", "file", "reason", "count")
    return {
        **dict(zip(("lines_unparsed", "lines_set_aside", "metric_faults"), sums, strict=True)),
        "unparsed": [dict(zip(heads, row, strict=True)) for row in cursor.fetchall()],
    }


def ask_redis(settings: RedisSettings, timeout_s: float = TIMEOUT_S) -> Mapping[str, object]:
    """Read `mill:meta`, which the last merge wrote, and the number of `keys`.

    Raises SinkUnavailable.
    """
    try:
        with redis_client(settings, timeout_s) as client:
            meta = {str(name): value for name, value in client.hgetall("mill:meta").items()}
            return {**meta, "keys": client.dbsize()}
    except (redis.RedisError, OSError) as error:
        raise SinkUnavailable("redis", str(error)) from error
