"""On real servers metrics are added, removed, added again and deleted."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import pytest

from sinks.config import SinksSettings
from sinks.errors import DefinitionChanged, StillCounted, UnknownMetric
from sinks.forget import forget_metric
from sinks.mysql import link as mysql_link
from sinks.mysql.metric_changes import FORGOTTEN, begin_to_forget
from sinks.rows import Batch, FoldRow, MetricDefinition, OffsetRange
from sinks.store import Sinks
from tests.harness import worked
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer

pytestmark = pytest.mark.live

TEN = worked.at("10:00:00")
OLD, OTHER = (
    dataclasses.replace(worked.DEFINITIONS[0], name=name, key_columns=("k",))
    for name in ("old", "old_one")
)
Drive = Callable[..., Sinks]


@pytest.fixture
def drive() -> Iterator[Drive]:
    """Return a function that opens drivers of one query. They are closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(settings: SinksSettings, *metrics: MetricDefinition) -> Sinks:
            sinks = Sinks(
                settings,
                metrics,
                patience_s=2,
                clock_ms=lambda: worked.NOW_MS,
                tend_every_s=60,
            )
            stack.callback(sinks.close)
            sinks.open(worked.QUERY)
            return sinks

        yield make


def batch(batch_id: int, *names: str) -> Batch:
    """Return a batch of ten offsets of one partition. Each of these metrics counts one line."""
    rows = [FoldRow(name, TEN, ("a",), 1) for name in names]
    covered = [OffsetRange("logs.access", 0, 10 * batch_id, 10 * batch_id + 10)]
    return Batch(worked.QUERY, batch_id, rows, (), covered, 10, worked.NOW_MS)


def rows(server: MySqlServer, settings: SinksSettings, sql: str) -> list[tuple[object, ...]]:
    assert settings.mysql is not None
    with server.connect(settings.mysql) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return [tuple(row.values()) for row in cursor.fetchall()]


RANGES = "SELECT metric, start_offset, end_offset FROM metric_ranges ORDER BY metric, start_offset"
CELLS = "SELECT DISTINCT metric FROM windows ORDER BY metric"


def test_the_tables_say_which_lines_a_metric_has_counted(
    settings: SinksSettings, mysql_server: MySqlServer, drive: Drive
) -> None:
    drive(settings, OLD).apply(batch(0, "old"))
    drive(settings, OLD, OTHER).apply(batch(1, "old", "old_one"))
    drive(settings, OTHER).apply(batch(2, "old_one"))
    assert rows(mysql_server, settings, RANGES) == [("old", 0, 20), ("old_one", 10, None)]
    drive(settings, OLD).apply(batch(3, "old"))
    expected = [("old", 0, 20), ("old", 30, None), ("old_one", 10, 30)]
    assert rows(mysql_server, settings, RANGES) == expected


def test_what_is_counted_cannot_be_forgotten(settings: SinksSettings, drive: Drive) -> None:
    drive(settings, OLD).apply(batch(0, "old"))
    with pytest.raises(StillCounted, match="still counts old: take the metric out"):
        forget_metric(settings, "old")
    with pytest.raises(
        UnknownMetric, match="no metric 'elder' is stored; the stored metrics are old"
    ):
        forget_metric(settings, "elder")


def test_a_metric_is_forgotten_beside_the_running_stream(
    settings: SinksSettings, mysql_server: MySqlServer, redis_server: RedisServer, drive: Drive
) -> None:
    drive(settings, OLD, OTHER).apply(batch(0, "old", "old_one"))
    running = drive(settings, OTHER)
    running.apply(batch(1, "old_one"))
    assert redis_server.client().keys("mill:old:*")
    gone: list[int] = []
    forget_metric(settings, "old", gone.append)
    assert sum(gone) == 2
    running.apply(batch(2, "old_one"))
    assert rows(mysql_server, settings, CELLS) == [("old_one",)]
    assert rows(mysql_server, settings, RANGES) == []
    assert rows(mysql_server, settings, "SHOW TABLES LIKE 'old'") == []
    assert redis_server.client().keys("mill:old:*") == []
    assert redis_server.client().hgetall("mill:old_one:1m")["a"] == "3"
    again = dataclasses.replace(OLD, definition_hash=b"otherwise".ljust(16))
    drive(settings, again, OTHER).apply(batch(3, "old"))
    assert redis_server.client().hgetall("mill:old:1m")["a"] == "1"


def test_no_driver_counts_a_metric_that_is_being_forgotten(
    settings: SinksSettings, mysql_server: MySqlServer, drive: Drive
) -> None:
    """If `stream forget` is killed in the middle, the metric cannot be counted. The next run of the
    command completes the deletion."""
    drive(settings, OLD, OTHER).apply(batch(0, "old"))
    drive(settings, OTHER)
    assert settings.mysql is not None
    link = mysql_link.connect(settings.mysql)
    link.begin()
    begin_to_forget(link.cursor(), "old")
    link.commit()
    link.close()
    assert FORGOTTEN in [
        row[0] for row in rows(mysql_server, settings, "SELECT definition_hash FROM metrics")
    ]
    with pytest.raises(DefinitionChanged, match="stream forget old"):
        drive(settings, OLD)
    forget_metric(settings, "old")
    drive(settings, OLD).apply(batch(1, "old"))
    assert rows(mysql_server, settings, CELLS) == [("old",)]


def test_redis_alone_forgets_too(redis_server: RedisServer, drive: Drive) -> None:
    settings = SinksSettings(redis=redis_server.settings)
    drive(settings, OLD, OTHER).apply(batch(0, "old", "old_one"))
    forget_metric(settings, "old")
    left = redis_server.client().keys("mill:*")
    assert [key for key in left if ":old:" in key] == []
    assert [key for key in left if ":old_one:" in key] != []
    with pytest.raises(UnknownMetric):
        forget_metric(settings, "old")
    drive(settings, OLD, OTHER).apply(batch(1, "old"))
    assert redis_server.client().hgetall("mill:old:1m")["a"] == "1"
