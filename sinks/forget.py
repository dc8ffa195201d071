"""`stream forget`: everything that is stored of a metric which the stream no longer counts.

May be ended at any point and called again. With MySQL its tables say whether the metric still
counts, and keep drivers from counting it meanwhile; Redis alone takes the caller's word for that.
"""

import itertools
from collections.abc import Callable

import pymysql

from sinks.config import RedisSettings, SinksSettings
from sinks.errors import SinkUnavailable, UnknownMetric
from sinks.mysql import link as mysql_link
from sinks.mysql.metric_changes import begin_to_forget, forget_rows
from sinks.mysql.migrate import is_present, prepare
from sinks.redis.link import connect, guarded_call
from sinks.redis.truth import DEFINITIONS_KEY, STATE_PREFIX

KEYS_PER_STEP = 500


def forget_metric(
    settings: SinksSettings, name: str, told: Callable[[int], None] = lambda _: None
) -> None:
    """Remove a metric's cells, view and name; `told` hears of rows as they go.

    Raises UnknownMetric, StillCounted, SinkUnavailable.
    """
    if settings.mysql is None:
        assert settings.redis is not None
        _forget_in_redis(settings.redis, name, is_truth=True)
        return
    try:
        connection = mysql_link.connect(settings.mysql)
    except pymysql.err.Error as error:
        raise SinkUnavailable("mysql", str(error)) from error
    try:
        with connection.cursor() as cursor:
            prepare(cursor)
            if not is_present(cursor):
                why = (
                    "its tables are of an older version: let the stream start once, then try again"
                )
                raise SinkUnavailable("mysql", why)
            connection.begin()
            begin_to_forget(cursor, name)
            connection.commit()
            # The view goes before the truth: who looks finds a metric whole, or not at all.
            if settings.redis is not None:
                _forget_in_redis(settings.redis, name, is_truth=False)
            forget_rows(cursor, name, told=told)
    except pymysql.err.Error as error:
        raise SinkUnavailable("mysql", str(error)) from error
    finally:
        connection.close()


def _forget_in_redis(settings: RedisSettings, name: str, *, is_truth: bool) -> None:
    client = connect(settings)

    def forget() -> None:
        if is_truth and not client.hexists(DEFINITIONS_KEY, name):
            raise UnknownMetric(name, sorted(map(str, client.hkeys(DEFINITIONS_KEY))))
        for pattern in (f"mill:{name}:*", f"{STATE_PREFIX}{name}:*"):
            found = client.scan_iter(match=pattern, count=KEYS_PER_STEP)
            while keys := list(itertools.islice(found, KEYS_PER_STEP)):
                client.unlink(*keys)
        if is_truth:
            client.hdel(DEFINITIONS_KEY, name)

    try:
        guarded_call(forget)
    finally:
        client.close()
