"""The reading side: whether the sinks answer, asked as a reader who may change nothing."""

from collections.abc import Mapping

import pymysql
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sinks.config import MySqlSettings, RedisSettings
from sinks.errors import SinkUnavailable

TIMEOUT_S = 1.5


def ask_mysql(settings: MySqlSettings, timeout_s: float = TIMEOUT_S) -> Mapping[str, object]:
    """Log in and read the writer row: `{"seq", "epoch", "batch_id"}`, empty before the first start.

    Raises SinkUnavailable with the server's own words.
    """
    try:
        connection = pymysql.connect(
            host=settings.host,
            port=settings.port,
            user=settings.user,
            password=settings.password,
            database=settings.database,
            connect_timeout=max(1, round(timeout_s)),
            read_timeout=timeout_s,
            autocommit=True,
        )
        with connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES LIKE 'sink_guard'")
            if cursor.fetchone() is None:
                return {}
            cursor.execute("SELECT seq, epoch, batch_id FROM sink_guard WHERE id = 1")
            row = cursor.fetchone()
            return {} if row is None else dict(zip(("seq", "epoch", "batch_id"), row, strict=True))
    except (pymysql.err.Error, OSError) as error:
        raise SinkUnavailable("mysql", str(error)) from error


def ask_redis(settings: RedisSettings, timeout_s: float = TIMEOUT_S) -> Mapping[str, object]:
    """Read `mill:meta`, what the last merge left there. Raises SinkUnavailable."""
    try:
        with redis.Redis(
            host=settings.host,
            port=settings.port,
            username=settings.username,
            password=settings.password,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        ) as client:
            return {str(name): value for name, value in client.hgetall("mill:meta").items()}
    except (redis.RedisError, OSError) as error:
        raise SinkUnavailable("redis", str(error)) from error
