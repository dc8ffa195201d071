"""Faults between a batch and its sinks: connections lost at every statement, killed servers, lost
responses."""

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from redis.exceptions import NoPermissionError

from sinks.config import MySqlSettings, SinksSettings
from sinks.errors import SinkUnavailable
from sinks.mysql import link as mysql_link
from sinks.mysql.sink import MySqlSink
from sinks.rows import Batch, OffsetRange, UnparsedRow, UnparsedSample
from sinks.store import BatchOutcome, Sinks
from tests.harness import worked
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.seed import seeded
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

UNPARSED = (
    UnparsedRow(
        "logs.access",
        "access/access.log",
        "format",
        2,
        (UnparsedSample(0, 3, b"not a line"), UnparsedSample(0, 5, b"\xff\x00neither")),
    ),
)


class Faults:
    """Counts the calls on connections, and breaks the connection before or after call number
    `at`."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.at = at
        self.after = after
        self.calls = 0
        self.broken = False

    def connect(self, settings: MySqlSettings) -> mysql_link.MySqlConnection:
        return Link(mysql_link.connect(settings), self)

    def around(self, call: Any, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls != self.at:
            return call(*arguments)
        self.broken = True
        if self.after:
            call(*arguments)
        raise pymysql.err.OperationalError(2013, "Lost connection to server during query")


class Link:
    """A connection whose calls are counted, and can be broken, by `Faults`."""

    def __init__(self, real: mysql_link.MySqlConnection, faults: Faults) -> None:
        self._real = real
        self._faults = faults

    def cursor(self, cursor: Any = None) -> Any:
        return Cursor(self._real.cursor(cursor), self._faults)

    def begin(self) -> None:
        self._faults.around(self._real.begin)

    def commit(self) -> None:
        self._faults.around(self._real.commit)

    def rollback(self) -> None:
        if self._faults.broken:
            raise pymysql.err.InterfaceError(0, "")
        self._real.rollback()

    def close(self) -> None:
        self._real.close()


class Cursor:
    """A cursor whose statements are counted, and can be broken, by `Faults`."""

    def __init__(self, real: Any, faults: Faults) -> None:
        self._real = real
        self._faults = faults

    def execute(self, *arguments: Any) -> Any:
        return self._faults.around(self._real.execute, *arguments)

    def executemany(self, *arguments: Any) -> Any:
        return self._faults.around(self._real.executemany, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __enter__(self) -> "Cursor":
        return self

    def __exit__(self, *_: object) -> None:
        self._real.close()


def snapshot(server: MySqlServer, database: MySqlSettings) -> list[list[dict[str, object]]]:
    """Return the rows of the tables, without window numbers and the writer's epoch, which may
    rise."""
    tables = ["ledger", "windows", "window_keys", "unparsed", "unparsed_lines"]
    with server.connect(database) as connection, connection.cursor() as cursor:
        rows = []
        for table in tables:
            cursor.execute(f"SELECT * FROM {table}")
            found = list(cursor.fetchall())
            for row in found:
                row.pop("window_number", None)
            rows.append(sorted(found, key=repr))
        return rows


BATCHES = (worked.BATCH_7, dataclasses.replace(worked.BATCH_8, unparsed=UNPARSED))


@pytest.mark.parametrize("after", [False, True], ids=["not done", "done, answer lost"])
def test_a_link_lost_at_any_statement_counts_nothing_twice(
    mysql_server: MySqlServer, after: bool
) -> None:
    database = mysql_server.new_database()
    MySqlSink(database, patience_s=5).open(worked.QUERY, worked.DEFINITIONS, 0)

    def run(faults: Faults) -> list[list[dict[str, object]]]:
        clear(mysql_server, database)
        sink = MySqlSink(database, patience_s=5, connect=faults.connect)
        sink.open(worked.QUERY, worked.DEFINITIONS, 0)
        faults.calls = 0
        for batch in BATCHES:
            sink.apply(batch)
        sink.close()
        return snapshot(mysql_server, database)

    expected = run(Faults(0, after=after))
    at = 1
    while True:
        faults = Faults(at, after=after)
        assert run(faults) == expected, f"link lost at call {at}"
        if not faults.broken:
            break
        at += 1
    # Two merges take about a dozen calls each. A smaller number would mean that the faults never
    # reached the second merge.
    assert at > 25


def clear(server: MySqlServer, database: MySqlSettings) -> None:
    """Delete the counts, so that the database is as after its set-up."""
    with server.connect(database) as connection, connection.cursor() as cursor:
        for table in ("ledger", "window_cells", "window_keys", "unparsed", "unparsed_lines"):
            cursor.execute(f"DELETE FROM {table}")
        cursor.execute("UPDATE sink_guard SET batch_id = -1, seq = 0")


def test_a_killed_database_loses_and_doubles_nothing(tmp_path: Any) -> None:
    rng = seeded("mysql killed")
    with MySqlServer(tmp_path / "m") as server:
        settings = SinksSettings(mysql=server.new_database())
        sinks = Sinks(settings, worked.DEFINITIONS, clock_ms=lambda: worked.NOW_MS, patience_s=0.2)
        sinks.open(worked.QUERY)
        kills = 0
        for batch_id in range(40):
            if rng.random() < 0.08 and kills < 3:
                kills += 1
                # Kill the server while a merge runs: before, during or after its commit.
                killer = threading.Timer(rng.random() * 0.02, server.kill9)
                killer.start()
            else:
                killer = None
            one = numbered(batch_id)
            while True:
                try:
                    sinks.apply(one)
                    break
                except SinkUnavailable as error:
                    assert error.sink == "mysql"
                    assert sinks.states["mysql"].startswith("down: ")
                    if killer is not None:
                        killer.join()
                    if server.process is None:
                        server.start()
            if killer is not None:
                killer.join()
                if server.process is None:
                    server.start()
        assert settings.mysql is not None
        with server.connect(settings.mysql) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT `count` FROM requests_by_status WHERE size = '10s' AND status = '200'"
            )
            assert [row["count"] for row in cursor.fetchall()] == [80]


def numbered(batch_id: int) -> Batch:
    """Return the batch with this id. All these batches have the same rows, but later offsets."""
    return dataclasses.replace(
        worked.BATCH_7,
        batch_id=batch_id,
        ranges=[OffsetRange("logs.access", 0, batch_id * 6, batch_id * 6 + 6)],
    )


@pytest.fixture
def own_redis(tmp_path: Any) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "r") as server:
        yield server


def test_redis_away_makes_the_stream_wait_and_the_replay_brings_it_up(
    mysql_server: MySqlServer, own_redis: RedisServer
) -> None:
    settings = SinksSettings(mysql=mysql_server.new_database(), redis=own_redis.settings)
    sinks = Sinks(settings, worked.DEFINITIONS, clock_ms=lambda: worked.NOW_MS, patience_s=1)
    sinks.open(worked.QUERY)
    sinks.apply(worked.BATCH_7)
    own_redis.kill9()
    with pytest.raises(SinkUnavailable, match="redis does not answer"):
        sinks.apply(worked.BATCH_8)
    assert sinks.states["redis"].startswith("down: ")
    own_redis.start()  # it is empty, because it stores nothing on disk
    assert sinks.apply(worked.BATCH_8) is BatchOutcome.REPLAYED
    # A thread refills an empty Redis between batches (decision 0006).
    whole = {"mysql": "ok", "redis": "ok"}
    wait_until(lambda: sinks.states == whole, 20, "the view is filled")
    for key, fields in worked.REDIS_AFTER_8.items():
        assert own_redis.client().hgetall(key) == fields, key


def test_a_view_of_thousands_of_keys_is_whole(
    settings: SinksSettings, redis_server: RedisServer
) -> None:
    sinks = Sinks(settings, worked.DEFINITIONS, clock_ms=lambda: worked.NOW_MS, patience_s=5)
    sinks.open(worked.QUERY)
    keys = {f"/path/{n}": n + 1 for n in range(3_500)}
    rows = worked.counts("hits_by_path", "10:00:00", keys)
    sinks.apply(dataclasses.replace(worked.BATCH_7, rows=rows))
    client = redis_server.client()
    shown = client.hgetall("mill:hits_by_path:1m:21260801T100000Z")
    assert shown == {key: str(count) for key, count in keys.items()}
    top = client.zrevrange("mill:hits_by_path:1m:top", 0, -1)
    assert top == [f"/path/{n}" for n in range(3_499, 3_489, -1)]


def test_a_stranger_in_a_key_of_the_mill_stops_the_write_before_it_begins(
    settings: SinksSettings, redis_server: RedisServer
) -> None:
    sinks = Sinks(settings, worked.DEFINITIONS, clock_ms=lambda: worked.NOW_MS, patience_s=1)
    sinks.open(worked.QUERY)
    client = redis_server.client()
    client.set("mill:latency:1m:21260801T100000Z", "not a hash")
    with pytest.raises(Exception, match="WRONGTYPE"):
        sinks.apply(worked.BATCH_7)
    assert not client.exists("mill:requests_by_status:1m:21260801T100000Z")
    client.delete("mill:latency:1m:21260801T100000Z")
    assert sinks.apply(worked.BATCH_7) is BatchOutcome.REPLAYED
    assert client.hget("mill:latency:1m:21260801T100000Z", "*.count") == "3"


def test_unparsed_lines_are_counted_and_their_first_kept(
    mysql_server: MySqlServer, settings: SinksSettings
) -> None:
    sinks = Sinks(settings, worked.DEFINITIONS, clock_ms=lambda: worked.NOW_MS, patience_s=1)
    sinks.open(worked.QUERY)
    many = tuple(UnparsedSample(0, n, b"x" * 5_000) for n in range(1_200))
    flood = UnparsedRow("logs.access", "access/access.log", "format", 5_000, many)
    sinks.apply(dataclasses.replace(worked.BATCH_7, unparsed=[flood]))
    sinks.apply(dataclasses.replace(worked.BATCH_8, unparsed=UNPARSED))
    assert settings.mysql is not None
    with mysql_server.connect(settings.mysql) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT topic, file, reason, `count` FROM unparsed")
        assert list(cursor.fetchall()) == [
            {
                "topic": "logs.access",
                "file": "access/access.log",
                "reason": "format",
                "count": 5_002,
            }
        ]
        cursor.execute("SELECT COUNT(*) AS n, MAX(LENGTH(line)) AS m FROM unparsed_lines")
        assert list(cursor.fetchall()) == [{"n": 1_000, "m": 4_096}]


def test_anyone_may_read_the_view_and_nobody_write_it_without_the_secret(
    settings: SinksSettings, redis_server: RedisServer
) -> None:
    sinks = Sinks(settings, worked.DEFINITIONS, clock_ms=lambda: worked.NOW_MS, patience_s=1)
    sinks.open(worked.QUERY)
    sinks.apply(worked.BATCH_7)
    reader: Any = redis_server.reader()
    assert reader.hget("mill:requests_by_status:1m", "200") == "2"
    assert reader.ping()
    for refused in (
        ("SET", "mill:x", "1"),
        ("KEYS", "*"),
        ("GET", "other"),
        ("EVAL", "return 1", "0"),
        ("PUBLISH", "mill:updates", "x"),
        ("CONFIG", "GET", "*"),
    ):
        with pytest.raises(NoPermissionError):
            reader.execute_command(*refused)


def test_old_windows_are_purged_where_the_metric_says_so(mysql_server: MySqlServer) -> None:
    database = mysql_server.new_database()
    short = [
        dataclasses.replace(one, keep_mysql_s={10: 100, 60: 100}) for one in worked.DEFINITIONS
    ]
    sink = MySqlSink(database, patience_s=1)
    sink.open(worked.QUERY, short, worked.NOW_MS // 1000)
    sink.apply(worked.BATCH_7)
    assert sink.purge(worked.NOW_MS // 1000) == 0
    # At 10:01:51 the window of 10 s that ends at 10:00:10 is older than 100 s. The window of a
    # minute that ends at 10:01:00 is not.
    sink.purge(worked.at("10:01:51"))
    with mysql_server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT size_s FROM windows")
        assert list(cursor.fetchall()) == [{"size_s": 60}]
        cursor.execute("SELECT DISTINCT size_s FROM window_keys")
        assert list(cursor.fetchall()) == [{"size_s": 60}]
