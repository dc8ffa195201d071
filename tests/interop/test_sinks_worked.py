"""The eight metrics of the worked example in real servers, cell by cell: after half of the batches,
after all, after a replay, and with a fenced driver."""

import dataclasses
import json
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from sinks.config import MySqlSettings, SinksSettings
from sinks.errors import DefinitionChanged, FencedWriter, LedgerMismatch
from sinks.rows import Batch, OffsetRange
from sinks.store import BatchOutcome, Sinks
from tests.harness import worked
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.redis import redis_server as private_redis

pytestmark = pytest.mark.live


@dataclasses.dataclass
class Mill:
    """Both servers, with methods that read their contents."""

    mysql: MySqlServer
    redis: RedisServer
    database: MySqlSettings

    @property
    def settings(self) -> SinksSettings:
        return SinksSettings(mysql=self.database, redis=self.redis.settings)

    def driver(self) -> Sinks:
        """Return a driver whose maintenance never runs, so that all changes come from batches."""
        return Sinks(
            self.settings,
            worked.DEFINITIONS,
            clock_ms=lambda: worked.NOW_MS,
            patience_s=2,
            tend_every_s=3_600,
        )

    def query(self, sql: str) -> list[dict[str, object]]:
        with self.mysql.connect(self.database) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def cells(self) -> worked.Expected:
        found: worked.Expected = {}
        for row in self.query("SELECT * FROM windows"):
            start = row["start_at"]
            assert isinstance(start, datetime)
            quantiles = row["quantiles"]
            key = (str(row["metric"]), int(str(row["size_s"])), f"{start:%H:%M:%S}", str(row["k1"]))
            found[key] = (
                row["count"],
                row["sum"],
                row["min"],
                row["max"],
                row["value"],
                None if quantiles is None else json.loads(str(quantiles)),
            )
        return found

    def guard(self) -> tuple[object, ...]:
        return tuple(
            self.query("SELECT query_id, epoch, batch_id, seq FROM sink_guard")[0].values()
        )

    def ledger(self) -> dict[object, object]:
        return {row["topic"]: row["end_offset"] for row in self.query("SELECT * FROM ledger")}

    def everything(self) -> object:
        """Return all data of both servers that a batch can change."""
        tables = ["sink_guard", "ledger", "windows", "window_keys", "metrics", "unparsed"]
        client: Any = self.redis.client()
        keys = sorted(client.scan_iter("*"))
        read = {"hash": client.hgetall, "zset": lambda k: client.zrange(k, 0, -1, withscores=True)}
        values = {key: read[client.type(key)](key) for key in keys}
        expiry = {key: client.expiretime(key) for key in keys}
        return {table: self.query(f"SELECT * FROM {table}") for table in tables}, values, expiry


@pytest.fixture
def mill(mysql_server: MySqlServer, redis_server: RedisServer) -> Iterator[Mill]:
    yield Mill(mysql_server, redis_server, mysql_server.new_database())


def driver_at(mill: Mill, *batches: Batch) -> Sinks:
    """Return a driver that has applied batches to an empty mill."""
    sinks = mill.driver()
    sinks.open(worked.QUERY)
    for batch in batches:
        assert sinks.apply(batch) is BatchOutcome.MERGED
    return sinks


def test_half_way_every_cell_stands(mill: Mill) -> None:
    driver_at(mill, worked.BATCH_7)
    assert mill.cells() == worked.AFTER_7
    assert mill.ledger() == {"logs.access": 4, "logs.api": 4}
    assert mill.guard() == (worked.QUERY, 1, 7, 1)


def test_at_the_end_every_cell_key_and_expiry_stands(mill: Mill) -> None:
    driver_at(mill, worked.BATCH_7, worked.BATCH_8)
    assert mill.cells() == worked.AFTER_8
    assert mill.ledger() == {"logs.access": 7, "logs.api": 7}
    assert mill.guard() == (worked.QUERY, 1, 8, 2)
    client: Any = mill.redis.client()
    for key, fields in worked.REDIS_AFTER_8.items():
        assert client.hgetall(key) == fields, key
    for key, ranking in worked.REDIS_TOPS_AFTER_8.items():
        assert dict(client.zrange(key, 0, -1, withscores=True)) == ranking, key
    for key, moment in worked.REDIS_EXPIRY_AFTER_8.items():
        assert client.expiretime(key) == moment, key
    assert client.ttl("mill:requests_by_status:1m") == -1
    guard = {"epoch": "1", "query": worked.QUERY, "batch": "8", "seq": "2"}
    assert client.hgetall("mill:guard") == guard
    keys = mill.query(
        "SELECT n_keys FROM window_keys WHERE metric = 'requests_by_status' AND size_s = 60 "
        "AND start_at = '2126-08-01 10:00:00'"
    )
    assert keys == [{"n_keys": 3}]


def test_the_sinks_tell_how_they_took_a_batch(mill: Mill) -> None:
    sinks = driver_at(mill, worked.BATCH_7)
    taken = sinks.taken
    assert taken.mysql_s is not None and taken.mysql_s > 0
    assert taken.redis_s is not None and taken.redis_s > 0
    assert taken.cells == len(mill.cells()), "the database was empty"
    assert sinks.apply(worked.BATCH_7) is BatchOutcome.REPLAYED
    assert sinks.taken.cells == 0


def test_the_view_reads_with_the_keys_own_names(mill: Mill) -> None:
    driver_at(mill, worked.BATCH_7, worked.BATCH_8)
    rows = mill.query(
        "SELECT status, `count` FROM requests_by_status WHERE size = '1m' "
        "ORDER BY start_at DESC, status"
    )
    assert [(row["status"], row["count"]) for row in rows] == [
        ("200", 2),
        ("304", 1),
        ("404", 1),
        ("200", 1),
    ]


def test_replays_and_drivers_of_the_past_change_nothing(mill: Mill) -> None:
    sinks = driver_at(mill, worked.BATCH_7, worked.BATCH_8)
    before = mill.everything()
    assert sinks.apply(worked.BATCH_8) is BatchOutcome.REPLAYED
    assert sinks.apply(worked.BATCH_7) is BatchOutcome.REPLAYED
    assert mill.everything() == before

    successor = mill.driver()
    assert successor.open(worked.QUERY) == 2
    before = mill.everything()
    with pytest.raises(FencedWriter):
        sinks.apply(worked.BATCH_8)
    next_batch = dataclasses.replace(
        worked.BATCH_8, batch_id=9, ranges=[OffsetRange("logs.access", 0, 7, 9)]
    )
    with pytest.raises(FencedWriter):
        sinks.apply(next_batch)
    assert mill.everything() == before
    assert successor.apply(next_batch) is BatchOutcome.MERGED


def test_a_driver_of_another_query_replaces_the_first_and_begins_at_batch_0(mill: Mill) -> None:
    old = driver_at(mill, worked.BATCH_7)
    other = "99999999-2222-3333-4444-555555555555"
    new = mill.driver()
    new.open(other)
    assert mill.guard() == (other, 2, -1, 1)
    resumed = dataclasses.replace(worked.BATCH_8, query_id=other, batch_id=0)
    assert new.apply(resumed) is BatchOutcome.MERGED
    with pytest.raises(FencedWriter):
        old.apply(worked.BATCH_8)
    assert mill.cells() == worked.AFTER_8


@pytest.mark.parametrize(
    ("start", "end"),
    [(5, 9), (3, 7), (0, 9)],
    ids=["a gap", "an overlap", "from the beginning but longer"],
)
def test_a_batch_that_does_not_continue_the_ledger_is_refused(
    mill: Mill, start: int, end: int
) -> None:
    sinks = driver_at(mill, worked.BATCH_7)
    before = mill.everything()
    crooked = dataclasses.replace(
        worked.BATCH_8, ranges=[OffsetRange("logs.access", 0, start, end)]
    )
    with pytest.raises(LedgerMismatch, match=r"logs\.access-0"):
        sinks.apply(crooked)
    assert mill.everything() == before


def test_a_known_batch_id_with_new_offsets_is_refused(mill: Mill) -> None:
    """After a power cut Spark can plan batch 7 again with a larger end. The sinks must reject
    it."""
    sinks = driver_at(mill, worked.BATCH_7)
    with pytest.raises(LedgerMismatch):
        sinks.apply(dataclasses.replace(worked.BATCH_8, batch_id=7))
    assert mill.cells() == worked.AFTER_7


def test_a_changed_definition_under_an_old_name_is_refused(mill: Mill) -> None:
    driver_at(mill, worked.BATCH_7)
    changed = [
        dataclasses.replace(one, definition_hash=b"changed".ljust(16))
        if one.name == "latency"
        else one
        for one in worked.DEFINITIONS
    ]
    later = Sinks(mill.settings, changed, clock_ms=lambda: worked.NOW_MS, patience_s=2)
    with pytest.raises(DefinitionChanged, match=r"latency.*new name.*stream forget latency"):
        later.open(worked.QUERY)
    assert mill.guard()[1] == 1


def test_a_wiped_redis_is_filled_from_mysql(mill: Mill) -> None:
    sinks = driver_at(mill, worked.BATCH_7, worked.BATCH_8)
    whole = mill.everything()
    mill.redis.client().flushall()
    assert sinks.apply(worked.BATCH_8) is BatchOutcome.REPLAYED
    # The replayed batch refills Redis only for a limited time. On a busy machine that is not
    # enough, so continue here.
    while sinks.states["redis"] == "rebuilding":
        sinks.tend()
    after = mill.everything()
    assert isinstance(after, tuple)
    assert isinstance(whole, tuple)
    assert after[0] == whole[0]
    differing = {k for k in {*after[1], *whole[1]} if after[1].get(k) != whole[1].get(k)}
    assert differing <= {"mill:meta"}
    assert after[2] == whole[2]


def test_a_redis_that_missed_a_merge_is_caught_up_by_the_next(mill: Mill) -> None:
    driver_at(mill, worked.BATCH_7)
    only_mysql = Sinks(
        SinksSettings(mysql=mill.database),
        worked.DEFINITIONS,
        clock_ms=lambda: worked.NOW_MS,
        patience_s=2,
    )
    only_mysql.open(worked.QUERY)
    only_mysql.apply(worked.BATCH_8)
    later = mill.driver()
    later.open(worked.QUERY)
    client: Any = mill.redis.client()
    for key, fields in worked.REDIS_AFTER_8.items():
        assert client.hgetall(key) == fields, key


def test_a_rebuild_that_died_half_way_begins_again(mill: Mill) -> None:
    driver_at(mill, worked.BATCH_7, worked.BATCH_8)
    client = mill.redis.client()
    client.hset("mill:meta", "rebuilding", "1")
    client.delete("mill:requests_by_status:1m:21260801T100000Z")
    mill.driver().open(worked.QUERY)
    key = "mill:requests_by_status:1m:21260801T100000Z"
    assert client.hgetall(key) == worked.REDIS_AFTER_8[key]
    assert not client.hexists("mill:meta", "rebuilding")


def test_a_mysql_restored_from_a_copy_is_what_redis_shows(mill: Mill) -> None:
    driver_at(mill, worked.BATCH_7, worked.BATCH_8)
    client = mill.redis.client()
    client.hset("mill:guard", mapping={"epoch": "9", "seq": "40"})
    client.hset("mill:requests_by_status:1m:21260801T100000Z", "200", "99")
    mill.driver().open(worked.QUERY)
    assert client.hget("mill:requests_by_status:1m:21260801T100000Z", "200") == "2"
    assert client.hget("mill:guard", "seq") == "2"


def test_redis_alone_counts_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    with private_redis(tmp_path_factory.mktemp("r"), durable=True) as server:
        settings = SinksSettings(redis=server.settings)

        def driver() -> Sinks:
            return Sinks(settings, worked.DEFINITIONS, clock_ms=lambda: worked.NOW_MS)

        sinks = driver()
        sinks.open(worked.QUERY)
        assert sinks.apply(worked.BATCH_7) is BatchOutcome.MERGED
        server.kill9()
        server.start()
        assert sinks.apply(worked.BATCH_7) is BatchOutcome.REPLAYED
        assert sinks.apply(worked.BATCH_8) is BatchOutcome.MERGED
        assert sinks.apply(worked.BATCH_8) is BatchOutcome.REPLAYED
        client = server.client()
        for key, fields in worked.REDIS_AFTER_8.items():
            assert client.hgetall(key) == fields, key
        for key, moment in worked.REDIS_EXPIRY_AFTER_8.items():
            assert client.expiretime(key) == moment, key
        assert sinks.ledger() == {("logs.access", 0): 7, ("logs.api", 0): 7}
        driver().open(worked.QUERY)
        with pytest.raises(FencedWriter):
            sinks.apply(worked.BATCH_8)


def test_a_late_line_counts_in_mysql_and_is_not_shown_where_its_window_is_gone(mill: Mill) -> None:
    year_later = worked.NOW_MS + 365 * 86_400_000
    sinks = driver_at(mill, worked.BATCH_7)
    late = dataclasses.replace(worked.BATCH_8, now_ms=year_later)
    assert sinks.apply(late) is BatchOutcome.MERGED
    assert mill.cells() == worked.AFTER_8
    assert not mill.redis.client().exists("mill:requests_by_status:1m:21260801T095900Z")


def test_values_are_exact_decimals(mill: Mill) -> None:
    driver_at(mill, worked.BATCH_7, worked.BATCH_8)
    shown = mill.query("SELECT value FROM error_rate WHERE size = '10s' ORDER BY start_at")
    assert [row["value"] for row in shown] == [Decimal("0.333333333333333333"), Decimal("0.5")]
