"""The monitor's queries to MySQL: the counts of a page, and the lines that were not counted."""

import dataclasses

import pytest

from sinks.config import SinksSettings
from sinks.read import ask_mysql
from sinks.read_counts import CountsReader
from sinks.rows import UnparsedRow
from sinks.store import Sinks
from tests.harness import worked
from tests.harness.mysql import MySqlServer

pytestmark = pytest.mark.live

NOT_COUNTED = [
    UnparsedRow(topic="logs.access", file="access/a.log", reason="not_combined", count=7),
    UnparsedRow(topic="logs.access", file="access/a.log", reason="expression_null:slow", count=90),
    UnparsedRow(topic="logs.access", file="access/b.log", reason="expression_null:ms", count=90),
    UnparsedRow(topic="logs.access", file="access/b.log", reason="poison", count=2),
]


def test_what_was_not_counted_outlives_the_stream_as_lines_and_as_faults(
    mysql_server: MySqlServer,
) -> None:
    database = mysql_server.new_database()
    assert ask_mysql(database).keys() == {"uptime_s"}, "before the first start"
    sinks = Sinks(
        SinksSettings(mysql=database, redis=None),
        worked.DEFINITIONS,
        clock_ms=lambda: worked.NOW_MS,
        patience_s=2,
    )
    sinks.open(worked.QUERY)
    sinks.apply(dataclasses.replace(worked.BATCH_7, unparsed=NOT_COUNTED))
    sinks.close()
    told = ask_mysql(database)
    assert (told["lines_unparsed"], told["lines_set_aside"], told["metric_faults"]) == (7, 2, 180)
    assert (told["epoch"], told["batch_id"]) == (1, 7)
    rows = told["unparsed"]
    assert isinstance(rows, list)
    assert [row["count"] for row in rows] == [90, 90, 7, 2]


def test_totals_windows_and_keys_are_those_of_the_tables(mysql_server: MySqlServer) -> None:
    database = mysql_server.new_database()
    sinks = Sinks(
        SinksSettings(mysql=database, redis=None),
        worked.DEFINITIONS,
        clock_ms=lambda: worked.NOW_MS,
        patience_s=2,
    )
    sinks.open(worked.QUERY)
    for batch in (worked.BATCH_7, worked.BATCH_8):
        sinks.apply(batch)
    sinks.close()
    reader = CountsReader(database)
    now_s = worked.NOW_MS // 1000
    try:
        assert {one.name for one in worked.DEFINITIONS} == set(reader.names())
        assert set(reader.since()) == set(reader.names())
        found = reader.read("requests_by_status", 60, now_s, windows=60, keys=10)
        cells = {
            (start, key): count
            for (metric, size, start, key), (count, *_) in worked.AFTER_8.items()
            if metric == "requests_by_status" and size == 60
        }
        assert sum(window.count for window in found.windows) == sum(
            int(str(count)) for count in cells.values()
        )
        assert {window.keys for window in found.windows} <= {1, 2, 3}
        assert found.latest
        assert not found.is_unique
        few = reader.read("requests_by_status", 60, now_s, windows=60, keys=1)
        assert len(few.latest) == 1
        assert few.latest[0].count == max(one.count for one in found.latest)
        assert reader.read("no_such_metric", 60, now_s, windows=60, keys=5).windows == ()
    finally:
        reader.close()
