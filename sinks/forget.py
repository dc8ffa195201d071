"""`stream forget`: remove everything stored about a metric that is no longer counted.

The removal can be interrupted at any point and started again. With MySQL, the tables show whether
the metric is still counted, and prevent drivers from counting it in the meantime. With Redis alone,
the caller must make sure that no driver counts the metric.
"""

import itertools
from collections.abc import Callable

import pymysql

from sinks.config import RedisSettings, SinksSettings
from sinks.errors import SinkUnavailable, UnknownMetric
from sinks.mysql import link as mysql_link
from sinks.mysql.metric_changes import begin_to_forget, forget_rows
from sinks.mysql.tables import prepare
from sinks.redis.link import connect, guarded_call
from sinks.redis.truth import DEFINITIONS_KEY, STATE_PREFIX

KEYS_PER_STEP = 500


def forget_metric(
    settings: SinksSettings, name: str, told: Callable[[int], None] = lambda _: None
) -> None:
    """Remove a metric's cells, view and name.

    `told` is called after each step with the number of deleted rows. Raises UnknownMetric,
    StillCounted, SchemaTooNew, SchemaTooOld, SinkUnavailable.
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
            connection.begin()
            begin_to_forget(cursor, name)
            connection.commit()
            # Remove the view before the truth, so that a reader sees the whole metric or nothing.
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
