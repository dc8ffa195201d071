"""Maintenance of the sinks between batches: repairs without new lines, refills in steps, rankings,
restored servers."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pymysql
import pytest

from sinks.config import SinksSettings
from sinks.errors import DefinitionChanged, FencedWriter, LedgerMismatch, SinkUnavailable
from sinks.mysql.cell_reader import MySqlCellReader
from sinks.mysql.sink import MySqlSink
from sinks.rows import Batch, FoldRow, MetricDefinition, OffsetRange, UnparsedRow, UnparsedSample
from sinks.store import BatchOutcome, Sinks
from sinks.values import Aggregate
from tests.harness import worked
from tests.harness.cell_blocks import encode
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

Drive = Callable[..., Sinks]
TEN = worked.at("10:00:00")
MINUTE = "mill:requests_by_status:1m"


@pytest.fixture
def drive() -> Iterator[Drive]:
    """Return a function that opens drivers. They are closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(settings: SinksSettings, *metrics: MetricDefinition, **more: Any) -> Sinks:
            more.setdefault("clock_ms", lambda: worked.NOW_MS)
            more.setdefault("tend_every_s", 60)
            sinks = Sinks(settings, metrics or worked.DEFINITIONS, patience_s=2, **more)
            stack.callback(sinks.close)
            return sinks

        yield make


def batch(batch_id: int, *rows: FoldRow, now_ms: int = worked.NOW_MS) -> Batch:
    """Return the batch with this id. It has one line, at the offset `batch_id` of one partition."""
    covered = [OffsetRange("logs.access", 0, batch_id, batch_id + 1)]
    return Batch(worked.QUERY, batch_id, rows, (), covered, 1, now_ms)


def metric(**changes: Any) -> MetricDefinition:
    """Return a metric with one key column."""
    return dataclasses.replace(worked.DEFINITIONS[0], name="m", key_columns=("k",), **changes)


def summed(key: str, value: int) -> FoldRow:
    number = Decimal(value)
    return FoldRow("m", TEN, (key,), 1, number, number, number)


def tend_until_filled(sinks: Sinks) -> None:
    """Run maintenance until the refill has ended."""

    def is_filled() -> bool:
        sinks.tend()
        assert sinks._view is not None
        return not sinks._view.is_refilling

    wait_until(is_filled, 10, "the refill ends")


def query(server: MySqlServer, settings: SinksSettings, sql: str) -> list[dict[str, Any]]:
    assert settings.mysql is not None
    with server.connect(settings.mysql) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def test_a_redis_emptied_while_no_line_comes_is_filled_again(
    settings: SinksSettings, redis_server: RedisServer, drive: Drive
) -> None:
    sinks = drive(settings, tend_every_s=0.05)
    sinks.open(worked.QUERY)
    sinks.apply(worked.BATCH_7)
    client = redis_server.client()
    before = client.hgetall(MINUTE)
    client.flushall()
    wait_until(lambda: client.hget("mill:meta", "rebuilding") is None, 10, "refill ends")
    wait_until(lambda: client.hgetall(MINUTE) == before, 10, "Redis is filled again")
    assert client.hget("mill:meta", "lines") == "6"


def test_the_upkeep_thread_of_an_unclosed_driver_ends_with_it(settings: SinksSettings) -> None:
    sinks = Sinks(settings, worked.DEFINITIONS, patience_s=1, tend_every_s=0.02)
    sinks.open(worked.QUERY)
    tender = sinks._tender
    assert tender is not None
    assert tender.is_alive()
    del sinks
    wait_until(lambda: not tender.is_alive(), 10, "the thread ends")


def test_a_refill_goes_on_in_steps_while_batches_are_merged(
    settings: SinksSettings, redis_server: RedisServer, drive: Drive
) -> None:
    keep = {10: None, 60: None}
    many = metric(measure="count", top=5, keep_redis_s=keep)
    sinks = drive(settings, many)
    sinks.open(worked.QUERY)
    starts = [TEN - 10 * n for n in range(60)]
    keys = [f"key {n}" for n in range(120)]
    sinks.apply(batch(0, *(FoldRow("m", start, (key,), 2) for start in starts for key in keys)))
    client = redis_server.client()
    hashes = [key for key in client.scan_iter("mill:m:*") if not key.endswith(":top")]
    lengths = {key: client.hlen(key) for key in hashes}
    assert len(lengths) > 60
    client.flushall()
    view = sinks._view
    assert view is not None
    view.catch_up(sinks._guard, sinks._progress)  # type: ignore[arg-type]  # opened above
    assert sinks._guard is not None
    view.refill(sinks._guard, worked.NOW_MS // 1000, 0)
    assert view.is_refilling
    assert client.hget("mill:meta", "rebuilding") == "1"
    # The refill begins with the newest windows, so the oldest one is missing. The next batch
    # changes one window of each kind.
    assert client.exists("mill:m:1m:21260801T100000Z")
    oldest = "mill:m:10s:21260801T095010Z"
    assert not client.exists(oldest)
    sinks.apply(batch(1, FoldRow("m", TEN, ("key 1",), 5), FoldRow("m", starts[-1], ("key 1",), 5)))
    tend_until_filled(sinks)
    assert client.hget("mill:meta", "rebuilding") is None
    assert client.hlen(oldest) == len(keys)
    assert client.hget(oldest, "key 1") == "7"
    assert {key: client.hlen(key) for key in hashes} == lengths
    assert client.zcard("mill:m:1m:21260801T095000Z:top") == 5


def test_a_refill_that_finds_redis_emptied_again_begins_again(
    settings: SinksSettings, redis_server: RedisServer, drive: Drive
) -> None:
    sinks = drive(settings)
    sinks.open(worked.QUERY)
    sinks.apply(worked.BATCH_7)
    client = redis_server.client()
    client.flushall()
    view, guard = sinks._view, sinks._guard
    assert view is not None
    assert guard is not None
    view.catch_up(guard, sinks._progress)
    client.flushall()
    view.refill(guard, worked.NOW_MS // 1000, 5)
    tend_until_filled(sinks)
    assert client.hgetall("mill:requests_by_status:1m:21260801T100000Z") == {"200": "2", "304": "1"}


def test_a_ranking_whose_values_fall_is_read_again(
    settings: SinksSettings, redis_server: RedisServer, drive: Drive
) -> None:
    sinks = drive(settings, metric(measure="sum", top=2))
    sinks.open(worked.QUERY)
    sinks.apply(
        batch(0, *(summed(key, value) for key, value in zip("abcd", (5, 4, 3, 2), strict=True)))
    )
    top = "mill:m:1m:21260801T100000Z:top"
    client: Any = redis_server.client()
    assert client.zrevrange(top, 0, -1) == ["a", "b"]
    sinks.apply(batch(1, summed("a", -10)))
    assert client.zrevrange(top, 0, -1) == ["b", "c"]
    assert client.zrevrange("mill:m:1m:top", 0, -1) == ["b", "c"]
    client.hset("mill:guard", "seq", 0)
    client.zadd(top, {"a": 99})
    sinks.apply(batch(1, summed("a", -10)))
    assert client.zrevrange(top, 0, -1) == ["b", "c"]


def test_of_equals_at_the_end_of_a_ranking_the_first_by_name_stay(
    settings: SinksSettings, redis_server: RedisServer, drive: Drive
) -> None:
    sinks = drive(settings, metric(measure="count", top=3))
    sinks.open(worked.QUERY)
    counts = {"z": 2, "b": 1, "d": 1, "a": 1, "c": 1}
    sinks.apply(batch(0, *(FoldRow("m", TEN, (key,), count) for key, count in counts.items())))
    client: Any = redis_server.client()
    found = client.zrange("mill:m:1m:top", 0, -1, withscores=True)
    assert found == [("a", 1.0), ("b", 1.0), ("z", 2.0)]


def test_a_window_ahead_becomes_the_latest_when_its_time_comes(
    settings: SinksSettings, redis_server: RedisServer, drive: Drive
) -> None:
    now_ms = [worked.NOW_MS]
    many = metric(measure="count", keep_redis_s={10: None, 60: None})
    sinks = drive(settings, many, clock_ms=lambda: now_ms[0])
    sinks.open(worked.QUERY)
    ahead = FoldRow("m", TEN + 7_200, ("x",), 1)
    sinks.apply(batch(0, ahead, FoldRow("m", TEN, ("x",), 1)))
    client = redis_server.client()
    assert client.hget("mill:m:1m", "@start") == "21260801T100000Z"
    now_ms[0] += 3_700_000
    sinks.tend()
    assert client.hget("mill:m:1m", "@start") == "21260801T120000Z"
    # A driver that starts later must find windows in the future in MySQL.
    sinks.apply(batch(1, FoldRow("m", TEN + 10_800, ("x",), 1), now_ms=now_ms[0]))
    sinks.close()
    later = drive(settings, many, clock_ms=lambda: now_ms[0])
    later.open(worked.QUERY)
    now_ms[0] += 3_700_000
    later.tend()
    assert client.hget("mill:m:1m", "@start") == "21260801T130000Z"


def test_a_truth_set_back_is_resumed_from_and_no_newer_driver(
    mysql_server: MySqlServer, settings: SinksSettings, drive: Drive
) -> None:
    sinks = drive(settings)
    sinks.open(worked.QUERY)
    sinks.open(worked.QUERY)
    sinks.apply(worked.BATCH_7)
    query(mysql_server, settings, "UPDATE sink_guard SET epoch = 1, batch_id = -1, seq = 0")
    with pytest.raises(LedgerMismatch, match="was restored: its writer is query"):
        sinks.apply(worked.BATCH_8)
    query(mysql_server, settings, "DELETE FROM sink_guard")
    with pytest.raises(LedgerMismatch, match="was restored: its writer is query"):
        sinks.apply(worked.BATCH_8)
    query(mysql_server, settings, "DROP TABLE ledger, window_cells, window_keys, sink_guard")
    with pytest.raises(LedgerMismatch, match="emptied"):
        sinks.apply(worked.BATCH_8)
    assert sinks.open("another-query") == 1
    assert sinks.ledger() == {}


def test_a_driver_of_the_past_does_not_empty_the_view(
    settings: SinksSettings, redis_server: RedisServer, drive: Drive
) -> None:
    old, new = drive(settings), drive(settings)
    old.open(worked.QUERY)
    new.open(worked.QUERY)
    new.apply(worked.BATCH_7)
    client = redis_server.client()
    client.delete("mill:guard")
    with pytest.raises(FencedWriter):
        old.tend()
    assert client.exists(MINUTE)
    assert not client.exists("mill:guard")


def test_a_refused_definition_changes_nothing_for_readers(
    mysql_server: MySqlServer, settings: SinksSettings, drive: Drive
) -> None:
    sinks = drive(settings)
    sinks.open(worked.QUERY)
    sinks.apply(worked.BATCH_7)
    changed = [
        dataclasses.replace(one, key_columns=("verb",), definition_hash=bytes(16))
        for one in worked.DEFINITIONS
        if one.name == "requests_by_status"
    ]
    with pytest.raises(DefinitionChanged):
        drive(settings, *changed).open("another-query")
    assert query(mysql_server, settings, "SELECT status FROM requests_by_status")
    assert sinks.apply(worked.BATCH_8) is BatchOutcome.MERGED


@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_bin"])
def test_a_view_is_compared_by_clients_of_any_collation(
    mysql_server: MySqlServer, settings: SinksSettings, drive: Drive, collation: str
) -> None:
    sinks = drive(settings)
    sinks.open(worked.QUERY)
    sinks.apply(worked.BATCH_7)
    assert settings.mysql is not None
    with mysql_server.connect(settings.mysql) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET NAMES utf8mb4 COLLATE {collation}")
        cursor.execute(
            "SELECT `count` FROM requests_by_status WHERE size = '1m' AND status = '200'"
        )
        assert list(cursor.fetchall()) == [{"count": 2}]


@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_bin"])
def test_a_view_finds_a_window_by_the_primary_key(
    mysql_server: MySqlServer, settings: SinksSettings, drive: Drive, collation: str
) -> None:
    drive(settings).open(worked.QUERY)
    assert settings.mysql is not None
    with mysql_server.connect(settings.mysql) as connection, connection.cursor() as cursor:
        starts = [
            (size_s, f"2026-08-01 {minute // 60:02}:{minute % 60:02}:00")
            for size_s in (10, 60)
            for minute in range(600)
        ]
        cursor.executemany(
            "INSERT INTO window_keys (window_number, metric, size_s, start_at, n_keys)"
            " VALUES (%s, 'requests_by_status', %s, %s, 3)",
            [(number, *start) for number, start in enumerate(starts, 1)],
        )
        cursor.executemany(
            "INSERT INTO window_cells (window_number, k_id, `count`, seq) VALUES (%s, %s, 1, 1)",
            [(number, f"={key}") for number in range(1, len(starts) + 1) for key in "abc"],
        )
        cursor.execute("ANALYZE TABLE window_keys, window_cells")
        cursor.execute(f"SET NAMES utf8mb4 COLLATE {collation}")
        for wanted in (
            "SELECT * FROM requests_by_status WHERE size = '1m' AND start_at = '2026-08-01 04:05'",
            "SELECT * FROM requests_by_status WHERE size = '10s'"
            " AND start_at >= '2026-08-01 04:05' AND start_at < '2026-08-01 04:07'",
        ):
            cursor.execute("FLUSH LOCAL STATUS")
            cursor.execute(wanted)
            assert cursor.fetchall()
            cursor.execute("SHOW LOCAL STATUS LIKE 'Handler_read%'")
            read = {str(row["Variable_name"]): int(row["Value"]) for row in cursor.fetchall()}
            assert sum(read.values()) < 20, f"{wanted}: {read}"


def test_a_database_lost_while_redis_is_caught_up_makes_the_stream_wait(
    settings: SinksSettings, redis_server: RedisServer, drive: Drive, monkeypatch: Any
) -> None:
    sinks = drive(settings)
    sinks.open(worked.QUERY)
    sinks.apply(worked.BATCH_7)
    redis_server.client().flushall()

    def lost(*_: object) -> None:
        raise pymysql.err.OperationalError(2013, "Lost connection to server during query")

    with monkeypatch.context() as patched:
        patched.setattr("sinks.mysql.cell_reader.cell_of", lost)
        with pytest.raises(SinkUnavailable, match="mysql does not answer"):
            sinks.apply(worked.BATCH_7)
    wait_until(lambda: sinks.apply(worked.BATCH_7), 10, "it is tried again")
    assert redis_server.client().hget(MINUTE, "200") == "2"


def test_a_purge_goes_on_until_nothing_old_is_left(
    mysql_server: MySqlServer, settings: SinksSettings, drive: Drive
) -> None:
    assert settings.mysql is not None
    short = metric(measure="count", windows_s=(10,), keep_mysql_s={10: 100})
    sink = MySqlSink(settings.mysql, patience_s=2)
    sink.open(worked.QUERY, [short], TEN)
    sink.apply(batch(0, *(FoldRow("m", TEN, (str(n),), 1) for n in range(25))))
    later = TEN + 1_000
    assert [sink.purge(later, rows_max=10) for _ in range(3)] == [True, True, False]
    assert query(mysql_server, settings, "SELECT COUNT(*) AS n FROM windows") == [{"n": 0}]
    sink.close()


def test_a_lock_held_by_another_is_waited_for_and_the_merge_repeated(
    mysql_server: MySqlServer, settings: SinksSettings, drive: Drive
) -> None:
    sinks = drive(settings)
    sinks.open(worked.QUERY)
    assert settings.mysql is not None
    with mysql_server.connect(settings.mysql) as other, other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM sink_guard FOR UPDATE")
        # 1205 is MySQL's lock timeout, after the session's five seconds. That is longer than this
        # driver waits, so it gives up.
        with pytest.raises(SinkUnavailable, match="1205"):
            sinks.apply(worked.BATCH_7)
        cursor.execute("ROLLBACK")
    assert sinks.apply(worked.BATCH_7) is BatchOutcome.MERGED
    assert query(mysql_server, settings, "SELECT seq FROM sink_guard") == [{"seq": 1}]


def test_redis_alone_keeps_samples_and_resumes_when_it_was_emptied(
    tmp_path: Any, drive: Drive
) -> None:
    with RedisServer(tmp_path / "r", durable=True) as server:
        sinks = drive(SinksSettings(redis=server.settings))
        sinks.open(worked.QUERY)
        samples = tuple(UnparsedSample(0, n, b"no \xff line") for n in range(1_200))
        flood = UnparsedRow("logs.access", "access/access.log", "format", 5_000, samples)
        sinks.apply(dataclasses.replace(worked.BATCH_7, unparsed=[flood]))
        sinks.apply(dataclasses.replace(worked.BATCH_8, unparsed=[flood]))
        client: Any = server.client()
        assert list(client.hgetall("mill:unparsed").values()) == ["10000"]
        # The hash has a thousand sample lines, and one field with their number.
        assert client.hlen("mill:unparsed_lines:2126-08-01") == 1_001
        state = "mill:state:requests_by_status:10s:21260801T100010Z"
        assert client.expiretime(state) == worked.at("11:00:20") + 86_400
        client.flushall()
        with pytest.raises(LedgerMismatch):
            sinks.apply(worked.BATCH_8)
        assert sinks.open("another-query") == 1


@pytest.mark.parametrize("as_rows", [True, False])
def test_a_mill_without_numbers_for_windows_waits_until_there_are_more(
    mysql_server: MySqlServer, settings: SinksSettings, drive: Drive, as_rows: bool
) -> None:
    """Window numbers end at 4,294,967,295. The error names statements, and after they are run the
    same driver can continue."""
    counts = metric(measure="count", windows_s=(10,))
    sinks = drive(settings, counts)
    sinks.open(worked.QUERY)
    query(mysql_server, settings, "ALTER TABLE window_keys AUTO_INCREMENT = 4294967294")
    for batch_id in range(2):
        start_s = TEN + 10 * batch_id
        assert sinks.apply(in_form(batch_id, counts, start_s, as_rows)) is BatchOutcome.MERGED
    third = in_form(2, counts, TEN + 20, as_rows)
    with pytest.raises(SinkUnavailable, match="no number is left") as refused:
        sinks.apply(third)
    assert sinks.apply(in_form(1, counts, TEN + 10, as_rows)) is BatchOutcome.REPLAYED
    for statement in str(refused.value).split("`")[1::2]:
        query(mysql_server, settings, statement)
    # The same driver continues after these statements.
    assert sinks.apply(third) is BatchOutcome.MERGED
    again = [FoldRow("m", TEN + 20, ("a",), 4)]
    assert sinks.apply(batch(3, *again)) is BatchOutcome.MERGED
    found = query(mysql_server, settings, "SELECT `count` FROM windows ORDER BY start_at")
    assert [row["count"] for row in found] == [1, 1, 5]


def in_form(batch_id: int, of: MetricDefinition, start_s: int, as_rows: bool) -> Batch:
    """Return a batch that creates one window, either by a row or by a block."""
    if as_rows:
        return batch(batch_id, FoldRow("m", start_s, ("a",), 1))
    block = encode(of, 10, start_s, [(("a",), Aggregate(1))])
    return dataclasses.replace(batch(batch_id), blocks=[block])


def test_cells_are_told_apart_by_the_lowest_bits_of_seq(
    mysql_server: MySqlServer, settings: SinksSettings, redis_server: RedisServer, drive: Drive
) -> None:
    """`seq` can exceed 32 bits, but a cell stores only its lowest 32 bits. A Redis that has missed
    merges must still get exactly the cells that are newer."""
    counts = metric(measure="count", windows_s=(60,))
    drive(settings, counts).open(worked.QUERY)
    query(mysql_server, settings, f"UPDATE sink_guard SET seq = {2**32 - 2}")
    redis_server.client().flushall()
    sinks = drive(settings, counts)
    sinks.open(worked.QUERY)
    tend_until_filled(sinks)
    sinks.apply(batch(0, FoldRow("m", TEN, ("old",), 1)))
    alone = drive(SinksSettings(mysql=settings.mysql), counts)
    alone.open(worked.QUERY)
    for batch_id in range(1, 4):
        alone.apply(batch(batch_id, FoldRow("m", TEN, (f"new {batch_id}",), batch_id)))
    assert settings.mysql is not None
    sink = MySqlSink(settings.mysql, patience_s=2)
    cell_reader = MySqlCellReader(sink, [counts])
    newer = cell_reader.cells_after(2**32 - 1, 100)
    assert newer is not None
    assert {cell.key for _, cell in newer} == {("new 1",), ("new 2",), ("new 3",)}
    # Redis is so far behind that 32 bits cannot tell which cells are newer. None means that
    # everything must be filled again.
    assert cell_reader.cells_after(2**32 + 2 - 2**31, 100) is None
    later = drive(settings, counts)
    later.open(worked.QUERY)
    assert later._view is not None
    assert not later._view.is_refilling
    shown = redis_server.client().hgetall(MINUTE.replace("requests_by_status", "m"))
    assert shown.pop("@start")
    assert shown == {"old": "1", "new 1": "1", "new 2": "2", "new 3": "3"}
