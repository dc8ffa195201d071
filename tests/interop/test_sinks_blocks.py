"""Batches applied as blocks give the same cells in real servers as the same batches applied as
rows.

Every batch is applied twice: as rows to one mill, and as blocks (made by the reference encoder) to
another. Any difference except in `seq` is a fault.
"""

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pymysql
import pytest

from sinks.cells.blocks import ADDITIVE
from sinks.cells.merge import fold_to_windows
from sinks.config import SinksSettings
from sinks.errors import FencedWriter, LedgerMismatch
from sinks.keys import K_COLUMN_CHARACTERS, Key
from sinks.mysql.sink import MySqlSink
from sinks.rows import Batch, CellBlock, FoldRow, MetricDefinition, OffsetRange
from sinks.store import BatchOutcome, Sinks
from sinks.values import SUM_MAX, combined
from tests.harness import worked
from tests.harness.cell_blocks import encode
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.seed import seeded
from tests.interop.test_sinks_care import tend_until_filled
from tests.interop.test_sinks_faults import Faults, clear, snapshot

pytestmark = pytest.mark.live

TEN = worked.at("10:00:00")
PARTS: tuple[str | None, ...] = (
    "/", "/a", "/A", "/a ", "é", "🙂", "it's", "back\\slash", "nul\0", "tab\t", "line\r\n", "",
    "(other)", "*", "NULL", "),('',", "(", None, "w" * 254, "v" * 255,
    "x" * 512, "y" * 513, "🙂" * 512, "z" * 600,
)  # fmt: skip
UNTOLD = {"seq", "window_number"}
NUMBERS = ("0", "-1E-12", "1E-12", "0.0000004", "-3.5", "9999999999999999.999999999999", "7")

Drive = Callable[..., Sinks]


def metric(name: str, columns: int, measure: str, **changes: Any) -> MetricDefinition:
    return dataclasses.replace(
        worked.DEFINITIONS[0],
        name=name,
        key_columns=("a", "b", "c")[:columns],
        measure=measure,
        keep_redis_s={10: 3_600, 60: 3_600, 0: None},
        windows_s=changes.pop("windows_s", (10, 60, 0)),
        **changes,
    )


METRICS = [
    *(
        metric(f"m{columns}_{measure}", columns, measure, top=3 if columns else None)
        for columns in range(4)
        for measure in ("count", "sum", "min", "max", "mean", "share")
    ),
    metric("few", 1, "sum", max_keys=6, top=2),
    metric("few_of_two", 2, "count", max_keys=4),
    metric("short", 1, "count", keep_mysql_s={10: 60, 60: 60}),
]
BY_NAME = {one.name: one for one in METRICS}


@pytest.fixture
def drive() -> Iterator[Drive]:
    """Return a function that opens drivers. They are closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(settings: SinksSettings, metrics: Sequence[MetricDefinition] = METRICS) -> Sinks:
            sinks = Sinks(
                settings, metrics, clock_ms=lambda: worked.NOW_MS, patience_s=5, tend_every_s=60
            )
            stack.callback(sinks.close)
            return sinks

        yield make


def random_rows(rng: random.Random, metrics: Sequence[MetricDefinition]) -> list[FoldRow]:
    """Return random rows, at most one for each metric, slice and key, as the stream's fold does."""
    rows = {}
    for definition in metrics:
        for _ in range(rng.randrange(1, 14)):
            start_s = TEN - 10 * rng.randrange(14)
            key = tuple(rng.choice(PARTS) for _ in definition.key_columns)
            rows[definition.name, start_s, key] = _row(rng, definition, start_s, key)
    return list(rows.values())


def _row(rng: random.Random, definition: MetricDefinition, start_s: int, key: Key) -> FoldRow:
    if definition.measure == "count":
        return FoldRow(definition.name, start_s, key, rng.randrange(1, 100))
    numbers = [Decimal(rng.choice(NUMBERS)) for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.1:
        return FoldRow(definition.name, start_s, key, len(numbers))
    total = sum(numbers, Decimal(0))
    return FoldRow(definition.name, start_s, key, len(numbers), total, min(numbers), max(numbers))


def as_blocks(
    rng: random.Random, batch: Batch, by_name: dict[str, MetricDefinition] = BY_NAME
) -> Batch:
    """Return the batch as a large batch would be: long keys as rows, and the rest as blocks."""
    long = [row for row in batch.rows if any(_is_long(part) for part in row.key)]
    short = [
        row for row in batch.rows if row not in long and by_name[row.metric].measure in ADDITIVE
    ]
    rest = [row for row in batch.rows if row not in short]
    cells = fold_to_windows(short, by_name, 0, left_out=set())
    pieces: dict[tuple[Any, int], list[Any]] = {}
    for cell_id, gathered in cells.items():
        # Put the cells of a window into one block or into several. A key can be in several blocks.
        for number, part in enumerate(gathered.parts):
            place = (cell_id.window, rng.randrange(2) if number == 0 else 2 + number)
            if rng.random() < 0.5 or number == 0:
                pieces.setdefault(place, []).append((gathered.key, [part]))
            else:
                pieces[place] = [*pieces.get(place, []), (gathered.key, [part])]
    blocks = [
        encode(
            by_name[window.metric],
            window.size_s,
            window.start_s,
            [(key, combined(parts)) for key, parts in some],
        )
        for (window, _), some in pieces.items()
    ]
    rng.shuffle(blocks)
    return dataclasses.replace(batch, rows=rest, blocks=blocks)


def _is_long(part: str | None) -> bool:
    return part is not None and len(part) > K_COLUMN_CHARACTERS


def batch(batch_id: int, rows: Sequence[FoldRow] = (), **more: Any) -> Batch:
    covered = [OffsetRange("logs.access", 0, batch_id, batch_id + 1)]
    return Batch(worked.QUERY, batch_id, rows, (), covered, 1, worked.NOW_MS, **more)


def tables(server: MySqlServer, settings: SinksSettings) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of the tables, without `seq` and window numbers, which may differ."""
    assert settings.mysql is not None
    found = {}
    with server.connect(settings.mysql) as connection, connection.cursor() as cursor:
        for table in ("windows", "window_keys", "ledger", "unparsed"):
            cursor.execute(f"SELECT * FROM {table}")
            found[table] = sorted(
                (
                    {name: value for name, value in row.items() if name not in UNTOLD}
                    for row in cursor.fetchall()
                ),
                key=repr,
            )
    return found


def redis_keys(server: RedisServer) -> dict[str, Any]:
    """Return all values in Redis, with their expiry times. Of a ranking return only the scores,
    because members with the same score have no fixed order."""
    client: Any = server.client()

    def scores(key: str) -> list[float]:
        return [score for _, score in client.zrange(key, 0, -1, withscores=True)]

    read = {"hash": client.hgetall, "zset": scores}
    return {
        key: (read[client.type(key)](key), client.expiretime(key)) for key in client.scan_iter("*")
    }


def test_blocks_count_what_rows_count(
    mysql_server: MySqlServer, redis_server: RedisServer, drive: Drive
) -> None:
    rng = seeded("blocks and rows")
    by_rows = SinksSettings(mysql=mysql_server.new_database())
    by_blocks = SinksSettings(mysql=mysql_server.new_database(), redis=redis_server.settings)
    rows, blocks = drive(by_rows), drive(by_blocks)
    assert blocks.takes_blocks
    for sinks in (rows, blocks):
        sinks.open(worked.QUERY)
    for batch_id in range(6):
        one = batch(batch_id, random_rows(rng, METRICS))
        assert rows.apply(one) is BatchOutcome.MERGED
        assert blocks.apply(as_blocks(rng, one)) is BatchOutcome.MERGED
        found, expected = tables(mysql_server, by_blocks), tables(mysql_server, by_rows)
        for table, lines in expected.items():
            assert found[table] == lines, f"{table} after batch {batch_id}"
    assert any(line["k1"] == "(other)" for line in expected["windows"])
    # Redis of the mill with blocks must equal an empty Redis after it is filled from the MySQL of
    # the mill with rows.
    shown = redis_keys(redis_server)
    redis_server.client().flushall()
    again = drive(SinksSettings(mysql=by_rows.mysql, redis=redis_server.settings))
    again.open(worked.QUERY)
    tend_until_filled(again)
    expected_view = redis_keys(redis_server)
    for key in {*shown, *expected_view} - {"mill:guard", "mill:meta"}:
        assert shown.get(key) == expected_view.get(key), key


def test_quotients_round_as_python_rounds_them(mysql_server: MySqlServer, drive: Drive) -> None:
    rng = seeded("quotients")
    mean = metric("mean", 1, "mean")
    rows = []
    for number in range(400):
        count = rng.choice((2, 3, 7, 10**4 + 1, 10**9 + 7, rng.randrange(1, 10**12)))
        # Make quotients that lie exactly between two shown values, or directly beside that point.
        half = (Decimal(2 * rng.randrange(10**6) + 1) * count).scaleb(-6) / 2
        near = rng.choice((Decimal(0), Decimal("1E-12"), Decimal("-1E-12")))
        total = (half + near) * rng.choice((1, -1))
        total = total.quantize(Decimal("1E-12"))
        rows.append(FoldRow("mean", TEN, (f"k{number}",), count, total, Decimal(0), Decimal(1)))
    settings = [SinksSettings(mysql=mysql_server.new_database()) for _ in range(2)]
    for each, one in zip(
        settings,
        (batch(0, rows), as_blocks(rng, batch(0, rows), {"mean": mean})),
        strict=True,
    ):
        sinks = drive(each, [mean])
        sinks.open(worked.QUERY)
        sinks.apply(one)
    assert tables(mysql_server, settings[1]) == tables(mysql_server, settings[0])


def summed(value: str, start_s: int = TEN, key: str = "a") -> CellBlock:
    row = FoldRow("sums", start_s, (key,), 1, Decimal(value), Decimal(0), Decimal(0))
    one = metric("sums", 1, "sum")
    (gathered,) = fold_to_windows(
        [row], {"sums": dataclasses.replace(one, windows_s=(10,))}, 0, left_out=set()
    ).values()
    return encode(one, 10, start_s, [((key,), combined(gathered.parts))])


def test_a_sum_at_its_limit_stays_there_and_stops_nothing(
    mysql_server: MySqlServer, drive: Drive
) -> None:
    settings = SinksSettings(mysql=mysql_server.new_database())
    sinks = drive(settings, [metric("sums", 1, "sum", top=1)])
    sinks.open(worked.QUERY)
    limit = str(SUM_MAX)
    values = [limit, limit, "-5"]
    for batch_id, value in enumerate(values):
        sinks.apply(batch(batch_id, blocks=[summed(value)]))
    as_row = FoldRow("sums", TEN, ("a",), 1, Decimal(-5), Decimal(0), Decimal(0))
    sinks.apply(batch(3, [as_row]))
    (cell,) = (c for c in tables(mysql_server, settings)["windows"] if c["size_s"] == 10)
    assert (str(cell["sum"]), cell["count"]) == (limit, 4)


def test_a_replay_of_blocks_changes_nothing(
    mysql_server: MySqlServer, redis_server: RedisServer, drive: Drive
) -> None:
    rng = seeded("replayed blocks")
    settings = SinksSettings(mysql=mysql_server.new_database(), redis=redis_server.settings)
    sinks = drive(settings)
    sinks.open(worked.QUERY)
    some = [as_blocks(rng, batch(n, random_rows(rng, METRICS))) for n in range(3)]
    for one in some[:2]:
        assert sinks.apply(one) is BatchOutcome.MERGED
    before = tables(mysql_server, settings), redis_keys(redis_server)
    for one in some[:2]:
        assert sinks.apply(one) is BatchOutcome.REPLAYED
    successor = drive(settings)
    successor.open(worked.QUERY)
    with pytest.raises(FencedWriter):
        sinks.apply(some[2])
    crooked = dataclasses.replace(some[2], ranges=[OffsetRange("logs.access", 0, 1, 3)])
    with pytest.raises(LedgerMismatch):
        successor.apply(crooked)
    after = tables(mysql_server, settings), redis_keys(redis_server)
    assert after[0] == before[0]
    for key in {*before[1], *after[1]} - {"mill:guard", "mill:meta"}:
        assert after[1].get(key) == before[1].get(key), key


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["not done", "done, answer lost"])
def test_a_link_lost_at_any_statement_of_blocks_counts_nothing_twice(
    mysql_server: MySqlServer, after: bool
) -> None:
    rng = seeded("blocks and lost links")
    metrics = [metric("s", 1, "sum"), metric("e", 0, "mean"), metric("few", 1, "sum", max_keys=6)]
    by_name = {one.name: one for one in metrics}
    rows = [random_rows(rng, metrics) for _ in range(2)]
    batches = [as_blocks(rng, batch(n, some), by_name) for n, some in enumerate(rows)]
    database = mysql_server.new_database()
    MySqlSink(database, patience_s=5).open(worked.QUERY, metrics, 0)

    def run(faults: Faults) -> list[list[dict[str, object]]]:
        clear(mysql_server, database)
        sink = MySqlSink(database, patience_s=5, connect=faults.connect)
        sink.open(worked.QUERY, metrics, 0)
        faults.calls = 0
        for one in batches:
            sink.apply(one)
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
    assert at > 40


def test_a_block_that_says_too_few_cells_is_refused_whole(
    mysql_server: MySqlServer, drive: Drive
) -> None:
    settings = SinksSettings(mysql=mysql_server.new_database())
    sinks = drive(settings, [metric("sums", 1, "sum")])
    sinks.open(worked.QUERY)
    two = [summed("1"), summed("1", TEN - 10)]
    wrong = dataclasses.replace(two[1], keys=2)
    with pytest.raises(ValueError, match="sums have 2 cells, their headers say 3"):
        sinks.apply(batch(0, blocks=[two[0], wrong]))
    assert not tables(mysql_server, settings)["windows"]
    assert sinks.apply(batch(0, blocks=two)) is BatchOutcome.MERGED
    assert (sinks.taken.cells, sinks.taken.redis_s) == (2, None), "this mill has no Redis"


def test_large_blocks_are_cut_to_what_the_server_takes(
    mysql_server: MySqlServer, drive: Drive
) -> None:
    many = metric("many", 1, "count", windows_s=(60,), max_keys=10_000)
    settings = SinksSettings(mysql=mysql_server.new_database())
    sinks = drive(settings, [many])
    sinks.open(worked.QUERY)
    assert settings.mysql is not None
    with mysql_server.connect(settings.mysql) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@max_allowed_packet AS octets")
        row = cursor.fetchone()
        assert row is not None
        before = row["octets"]
        cursor.execute("SET GLOBAL max_allowed_packet = 65536")
        try:
            rows = [FoldRow("many", TEN, (f"{n:0500}",), n + 1) for n in range(2_000)]
            one = as_blocks(seeded("large blocks"), batch(0, rows), {"many": many})
            sinks.close()
            later = drive(settings, [many])
            later.open(worked.QUERY)
            assert later.apply(one) is BatchOutcome.MERGED
        finally:
            cursor.execute("SET GLOBAL max_allowed_packet = %s", (before,))
        cursor.execute("SELECT SUM(`count`) AS c, COUNT(*) AS n FROM windows")
        assert cursor.fetchone() == {"c": 2_000 * 2_001 // 2, "n": 2_000}


def test_a_redis_that_missed_blocks_is_caught_up(
    mysql_server: MySqlServer, redis_server: RedisServer, drive: Drive
) -> None:
    rng = seeded("missed blocks")
    settings = SinksSettings(mysql=mysql_server.new_database(), redis=redis_server.settings)
    sinks = drive(settings)
    sinks.open(worked.QUERY)
    sinks.apply(as_blocks(rng, batch(0, random_rows(rng, METRICS))))
    alone = drive(SinksSettings(mysql=settings.mysql))
    alone.open(worked.QUERY)
    alone.apply(as_blocks(rng, batch(1, random_rows(rng, METRICS))))
    later = drive(settings)
    later.open(worked.QUERY)
    view = later._view
    assert view is not None
    assert not view.is_refilling
    caught_up = redis_keys(redis_server)
    redis_server.client().flushall()
    later.tend()
    tend_until_filled(later)
    filled = redis_keys(redis_server)
    for key in {*filled, *caught_up} - {"mill:meta"}:
        assert filled.get(key) == caught_up.get(key), key


def test_what_a_driver_remembers_is_what_stands_there(
    mysql_server: MySqlServer, drive: Drive
) -> None:
    """A driver with a cache of window numbers must give the same tables as a driver without a
    cache. Apply blocks, rows, failed merges and purges in turn."""
    rng = seeded("remembered cells")
    settings = [SinksSettings(mysql=mysql_server.new_database()) for _ in range(2)]
    first, other = (drive(each) for each in settings)
    for sinks in (first, other):
        sinks.open(worked.QUERY)
    for batch_id in range(12):
        one = batch(batch_id, random_rows(rng, METRICS))
        if rng.random() < 0.4:
            one = as_blocks(rng, one)
        other.open(worked.QUERY)
        other.apply(one)
        match rng.randrange(4):
            case 0:
                _fail_once(first, one)
            case 1:
                assert first._mysql is not None
                first._mysql.purge(worked.NOW_MS // 1000)
        first.apply(one)
    found, expected = (tables(mysql_server, each) for each in settings)
    assert found == expected


def test_what_a_failed_merge_saw_is_not_remembered(mysql_server: MySqlServer, drive: Drive) -> None:
    settings = SinksSettings(mysql=mysql_server.new_database())
    sums = metric("sums", 1, "sum", windows_s=(10,))
    sinks = drive(settings, [sums])
    sinks.open(worked.QUERY)
    sinks.apply(batch(0, blocks=[summed("1", key="a")]))
    # In the merge that fails, the server adds two keys to the window. The driver then reads the
    # window's number of keys for a third key, and must forget it after the failure.
    row = FoldRow("sums", TEN, ("z" * 600,), 1, Decimal(1), Decimal(1), Decimal(1))
    _fail_once(sinks, batch(1, [row], blocks=[summed("1", key="b"), summed("1", key="c")]))
    sinks.apply(batch(1, [row]))
    found = tables(mysql_server, settings)
    assert [line["n_keys"] for line in found["window_keys"]] == [2] == [len(found["windows"])]


def test_keys_are_counted_without_the_overflow_key_when_the_limit_was_raised(
    mysql_server: MySqlServer, drive: Drive
) -> None:
    settings = SinksSettings(mysql=mysql_server.new_database())
    sums = metric("sums", 1, "sum", windows_s=(10,))
    first = drive(settings, [dataclasses.replace(sums, max_keys=2)])
    first.open(worked.QUERY)
    first.apply(batch(0, blocks=[summed("1", key=key) for key in "abcd"]))
    later = drive(settings, [dataclasses.replace(sums, max_keys=20)])
    later.open(worked.QUERY)
    later.apply(batch(1, blocks=[summed("1", key="x")]))
    found = tables(mysql_server, settings)
    assert [line["n_keys"] for line in found["window_keys"]] == [3]
    assert sorted(line["k1"] for line in found["windows"])[0] == "(other)"
    assert len(found["windows"]) == 4


def test_a_ranking_that_falls_by_blocks_is_read_again(
    mysql_server: MySqlServer, redis_server: RedisServer, drive: Drive
) -> None:
    settings = SinksSettings(mysql=mysql_server.new_database(), redis=redis_server.settings)
    sinks = drive(settings, [metric("sums", 1, "sum", windows_s=(10,), top=2)])
    sinks.open(worked.QUERY)
    values = zip("abcd", ("5", "4", "3", "2"), strict=True)
    sinks.apply(batch(0, blocks=[summed(value, key=key) for key, value in values]))
    client: Any = redis_server.client()
    top = "mill:sums:10s:21260801T100000Z:top"
    assert client.zrevrange(top, 0, -1) == ["a", "b"]
    sinks.apply(batch(1, blocks=[summed("-10", key="a")]))
    assert client.zrevrange(top, 0, -1) == ["b", "c"]


def _fail_once(sinks: Sinks, one: Batch) -> None:
    """Let a merge fail after its cells were written, but before its ledger is written."""
    torn = dataclasses.replace(one, ranges=[OffsetRange("x" * 300, 0, 0, 1)])
    with pytest.raises(pymysql.err.DataError):
        sinks.apply(torn)
