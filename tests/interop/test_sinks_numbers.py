"""Quotients, sums, extremes and estimates are the same in Python and in the server."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest

from sinks.cells.merge import CellId
from sinks.config import MySqlSettings
from sinks.keys import key_hash
from sinks.mysql.cell_reader import MySqlCellReader
from sinks.mysql.sink import MySqlSink
from sinks.read_counts import CountsReader
from sinks.rows import Batch, CellBlock, FoldRow, MetricDefinition, OffsetRange
from sinks.values import ARITHMETIC, SUM_MAX, Aggregate, value_of
from tests.harness import worked
from tests.harness.cell_blocks import encode
from tests.harness.mysql import MySqlServer
from tests.harness.seed import seeded

pytestmark = pytest.mark.live

BASE = worked.DEFINITIONS[0]
LARGEST = Decimal("9" * 26 + "." + "9" * 12)


def metric(name: str, measure: str, keys: Sequence[str] = ("k",)) -> MetricDefinition:
    return replace(
        BASE,
        name=name,
        key_columns=tuple(keys),
        measure=measure,
        windows_s=(0,),
        slice_s=0,
        top=None,
        definition_hash=name.encode().ljust(16),
    )


def batch(number: int, rows: Sequence[FoldRow] = (), blocks: Sequence[CellBlock] = ()) -> Batch:
    return Batch(
        query_id=worked.QUERY,
        batch_id=number,
        rows=rows,
        unparsed=(),
        ranges=[OffsetRange("logs.access", 0, number, number + 1)],
        lines=1,
        now_ms=worked.NOW_MS,
        blocks=blocks,
    )


def opened(settings: MySqlSettings, *metrics: MetricDefinition) -> MySqlSink:
    sink = MySqlSink(settings, patience_s=5)
    sink.open(worked.QUERY, metrics, 0)
    return sink


def shown(server: MySqlServer, settings: MySqlSettings, view: str) -> dict[str, Decimal]:
    with server.connect(settings) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT k, value FROM {view}")
        return {row["k"]: row["value"] for row in cursor.fetchall()}


def test_quotients_of_any_size_are_the_same_in_the_server(mysql_server: MySqlServer) -> None:
    chance = seeded("quotients")
    sums = {
        "case 21": (Decimal("0.0000044"), 3),
        "nothing": (Decimal(0), 7),
        "least": (Decimal("1E-12"), 10**9),
        "one whole": (Decimal(1725724716113000125), 1),
        "largest": (LARGEST, 1),
        "largest sum": (SUM_MAX, 3),
        "negative half": (Decimal("-0.000000000001"), 2),
        "just below one": (Decimal("6.999999999999"), 7),
    }
    for number in range(400):
        count = chance.randrange(1, 10 ** chance.randrange(1, 10))
        digits = chance.randrange(1, 10 ** chance.randrange(1, 36))
        sums[f"drawn {number}"] = (Decimal(chance.choice((1, -1)) * digits).scaleb(-12), count)
    sink = opened(settings := mysql_server.new_database(), metric("means", "mean"))
    sink.apply(batch(1, [FoldRow("means", 0, (key,), n, s) for key, (s, n) in sums.items()]))
    found = shown(mysql_server, settings, "means")
    expected = {key: value_of("mean", Aggregate(n, s)) for key, (s, n) in sums.items()}
    assert {k: v for k, v in found.items() if v != expected[k]} == {}
    assert found.keys() == expected.keys()
    with mysql_server.connect(settings) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT k1, value FROM windows WHERE metric = 'means'")
        assert {row["k1"]: row["value"] for row in cursor.fetchall()} == expected


@pytest.mark.parametrize("as_blocks", [False, True], ids=["rows", "blocks"])
def test_whole_numbers_of_19_digits_and_sums_beyond_64_bits_are_exact(
    mysql_server: MySqlServer, as_blocks: bool
) -> None:
    values: dict[str, tuple[Decimal | int, Decimal | int]] = {
        "case 30": (1725724716113000123, 1725724716113000125),
        "bigints": (2**63 - 1, 2**63 - 1),
        "negative": (-(2**63), -(2**63)),
        "widest": (LARGEST, LARGEST),
        "across": (-(2**63), 2**63 - 1),
    }
    metrics = [metric(measure + "s", measure) for measure in ("sum", "min", "max")]
    sink = opened(settings := mysql_server.new_database(), *metrics)
    for number in (0, 1):
        numbers = {key: Decimal(pair[number]) for key, pair in values.items()}
        cells = {(key,): Aggregate(1, one, one, one) for key, one in numbers.items()}
        if as_blocks:
            some = [encode(one, 0, 0, list(cells.items())) for one in metrics]
            sink.apply(batch(number, blocks=some))
        else:
            rows = [
                FoldRow(one.name, 0, key, cell.count, cell.sum, cell.min, cell.max)
                for one in metrics
                for key, cell in cells.items()
            ]
            sink.apply(batch(number, rows))
    pairs = {key: tuple(map(Decimal, pair)) for key, pair in values.items()}
    assert shown(mysql_server, settings, "sums") == {
        key: ARITHMETIC.add(*pair) for key, pair in pairs.items()
    }
    assert shown(mysql_server, settings, "mins") == {k: min(pair) for k, pair in pairs.items()}
    assert shown(mysql_server, settings, "maxs") == {k: max(pair) for k, pair in pairs.items()}
    assert shown(mysql_server, settings, "sums")["case 30"] == 3451449432226000248


def test_what_is_an_estimate_is_told_by_views_and_readers(mysql_server: MySqlServer) -> None:
    few, many = [f"v{n}" for n in range(1_024)], [f"v{n}" for n in range(1_025)]
    users = metric("users", "unique")
    times = metric("times", "percentile")
    sink = opened(settings := mysql_server.new_database(), users, times)
    rows = [
        FoldRow("users", 0, ("few",), 2_000, hll=worked.hll(*few)),
        FoldRow("users", 0, ("many",), 2_000, hll=worked.hll(*many)),
        FoldRow("users", 0, ("older",), 2, hll=worked.older_hll("a", "b")),
        FoldRow("times", 0, ("few",), 200, kll=worked.kll(*range(200))),
        FoldRow("times", 0, ("many",), 201, kll=worked.kll(*range(201))),
    ]
    sink.apply(batch(1, rows))
    with mysql_server.connect(settings) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT k, value, estimate FROM users ORDER BY k")
        found = [(row["k"], row["value"], row["estimate"]) for row in cursor.fetchall()]
        assert found[0] == ("few", 1_024, 0)
        assert [row[2] for row in found] == [0, 1, 1]
        cursor.execute("SELECT k, estimate FROM times ORDER BY k")
        assert [row["estimate"] for row in cursor.fetchall()] == [0, 1]
        cursor.execute("SELECT k1, estimate FROM windows ORDER BY metric, k1")
        assert [row["estimate"] for row in cursor.fetchall()] == [0, 1, 0, 1, 1]
    reader = CountsReader(settings)
    by_key = {one.key: one for one in reader.read("users", 0, 0, windows=1, keys=9).totals}
    reader.close()
    assert {key[0]: one.is_estimate for key, one in by_key.items()} == {
        "few": False,
        "many": True,
        "older": True,
    }


def test_sketches_of_an_older_version_take_more_values(mysql_server: MySqlServer) -> None:
    users = metric("users", "unique")
    sink = opened(settings := mysql_server.new_database(), users)
    old, new = [f"v{n}" for n in range(900)], [f"v{n}" for n in range(450, 1_350)]
    sink.apply(batch(1, [FoldRow("users", 0, ("k",), 900, hll=worked.older_hll(*old))]))
    sink.apply(batch(2, [FoldRow("users", 0, ("k",), 900, hll=worked.hll(*new))]))
    assert abs(shown(mysql_server, settings, "users")["k"] - 1_350) < 1_350 * 0.05
    cell = MySqlCellReader(sink, [users]).cells_between("users", 0, 0, 0)
    assert [one for one, _ in cell] == [CellId("users", 0, 0, key_hash(("k",)))]
