"""MySQL keeps windows for a time that depends on their size. Before it deletes windows by a new,
shorter time, it gives a notice.

The times are weeks, so the tests set the clock.
"""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.checks.keeps import deletions
from appliance.mill.settings import Mill
from sinks.config import MySqlSettings, SinksSettings
from sinks.keeping import NOTICE_S, words
from sinks.mysql.link import connect
from sinks.mysql.metric_changes import begin_to_forget, forget_rows
from sinks.mysql.purging import begin_now, read_terms
from sinks.mysql.sink import MySqlSink
from sinks.rows import Batch, FoldRow, MetricDefinition, OffsetRange
from sinks.store import Sinks
from sinks.values import Aggregate
from tests.harness import worked
from tests.harness.cell_blocks import encode
from tests.harness.mysql import MySqlServer
from tests.unit.appliance.test_commands import mill

pytestmark = pytest.mark.live

DAY_S = 86_400
MONTH_S = 30 * DAY_S
NOW_S = worked.at("10:00:00")
OLD_S = NOW_S - 100 * DAY_S
# The minutes of three lines: 100 days ago, 40 days ago, and today.
STARTS_S = (OLD_S, NOW_S - 40 * DAY_S, NOW_S)
MINUTE, HOUR = 60, 3600


def metric(keep_s: dict[int, int | None]) -> MetricDefinition:
    """Return a metric that counts by minute, by hour and in total, with these times in MySQL."""
    return dataclasses.replace(
        worked.DEFINITIONS[0],
        name="m",
        measure="count",
        key_columns=("k",),
        windows_s=(MINUTE, HOUR, 0),
        slice_s=MINUTE,
        keep_mysql_s=keep_s,
    )


FOREVER = metric({})
SHIPPED = metric({MINUTE: 90 * DAY_S})
MONTH = metric({MINUTE: MONTH_S})


def batch(batch_id: int, *starts_s: int, now_s: int = NOW_S) -> Batch:
    """Return the batch with this id. It has one line for each of these minutes."""
    rows = [FoldRow("m", start_s, ("a",), 1) for start_s in starts_s]
    covered = [OffsetRange("logs.access", 0, batch_id, batch_id + 1)]
    return Batch(worked.QUERY, batch_id, rows, (), covered, len(rows), now_s * 1000)


@pytest.fixture
def database(mysql_server: MySqlServer) -> MySqlSettings:
    return mysql_server.new_database()


class Stage:
    """One database, opened by one driver after the other."""

    def __init__(self, settings: MySqlSettings) -> None:
        self._settings = settings
        self.sink = self._driver()

    def open(self, definition: MetricDefinition, now_s: int = NOW_S) -> MySqlSink:
        """Close the driver, and open the database with the next one."""
        self.sink.close()
        self.sink = self._driver()
        self.sink.open(worked.QUERY, [definition], now_s)
        return self.sink

    def windows(self) -> dict[int, list[int]]:
        """Return the counts of the stored windows by size, oldest window first."""
        found: dict[int, list[int]] = {}
        for size_s, count in self.ask("SELECT size_s, count FROM windows ORDER BY start_at"):
            found.setdefault(int(size_s), []).append(int(count))
        return found

    def ask(self, sql: str) -> Any:
        """Return the rows that a query returns."""
        return self.run(lambda cursor: (cursor.execute(sql), cursor.fetchall())[1])

    def run(self, work: Any) -> Any:
        """Call a function with a cursor of another connection. Return the function's result."""
        connection = connect(self._settings)
        try:
            return work(connection.cursor())
        finally:
            connection.close()

    def _driver(self) -> MySqlSink:
        return MySqlSink(self._settings, patience_s=2)


@pytest.fixture
def stage(database: MySqlSettings) -> Iterator[Stage]:
    made = Stage(database)
    yield made
    made.sink.close()


def purge_all(sink: MySqlSink, now_s: int) -> None:
    while sink.purge(now_s):
        pass


def test_an_old_line_counts_in_the_windows_that_are_still_kept_and_that_is_counted(
    stage: Stage,
) -> None:
    sink = stage.open(SHIPPED)
    assert sink.notices == ()
    merged = sink.apply(batch(0, *STARTS_S))
    assert stage.windows() == {MINUTE: [1, 1], HOUR: [1, 1, 1], 0: [3]}
    assert merged.left_out == 1


def test_blocks_of_windows_that_are_not_kept_are_counted_too(stage: Stage) -> None:
    sink = stage.open(SHIPPED)
    keys = [((name,), Aggregate(1)) for name in "ab"]
    blocks = [encode(SHIPPED, size_s, OLD_S // size_s * size_s, keys) for size_s in (MINUTE, HOUR)]
    merged = sink.apply(dataclasses.replace(batch(0), blocks=blocks))
    assert merged.left_out == 2
    assert stage.windows() == {HOUR: [1, 1]}


def test_what_is_there_goes_after_a_notice_of_a_week_and_of_that_size_alone(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.open(FOREVER).apply(batch(0, *STARTS_S))
    assert "keep" not in caplog.text
    sink = stage.open(SHIPPED)
    assert "m: 1 cells of MySQL's 1m windows are older than `keep` (90d)" in caplog.text
    (notice,) = sink.notices
    assert (notice.place, notice.cells, notice.from_s) == (("m", MINUTE), 1, NOW_S + NOTICE_S)
    purge_all(sink, NOW_S + NOTICE_S - 1)
    assert stage.windows()[MINUTE] == [1, 1, 1]
    # Until the notice ends, late lines still count in old windows, because the user can still set
    # `forever`.
    assert sink.apply(batch(1, OLD_S)).left_out == 0
    assert stage.windows()[MINUTE] == [2, 1, 1]
    purge_all(sink, NOW_S + NOTICE_S)
    assert sink.notices == ()
    assert stage.windows() == {MINUTE: [1, 1], HOUR: [2, 1, 1], 0: [4]}
    later_s = NOW_S + NOTICE_S
    assert sink.apply(batch(2, OLD_S, now_s=later_s)).left_out == 1
    assert stage.windows() == {MINUTE: [1, 1], HOUR: [3, 1, 1], 0: [5]}


def test_restarts_neither_restart_a_notice_nor_end_it(stage: Stage) -> None:
    stage.open(FOREVER).apply(batch(0, *STARTS_S))
    for day in range(7):
        (notice,) = stage.open(SHIPPED, NOW_S + day * DAY_S).notices
        assert notice.from_s == NOW_S + NOTICE_S
        purge_all(stage.sink, NOW_S + day * DAY_S)
    assert stage.windows()[MINUTE] == [1, 1, 1]
    purge_all(stage.open(SHIPPED, NOW_S + NOTICE_S), NOW_S + NOTICE_S)
    assert stage.windows()[MINUTE] == [1, 1]


def test_forever_set_in_time_loses_nothing(stage: Stage) -> None:
    stage.open(FOREVER).apply(batch(0, *STARTS_S))
    stage.open(SHIPPED)
    sink = stage.open(FOREVER, NOW_S + DAY_S)
    assert sink.notices == ()
    purge_all(sink, NOW_S + 365 * DAY_S)
    assert stage.windows()[MINUTE] == [1, 1, 1]
    # If the user sets the shorter time again, the week of the notice begins again.
    (again,) = stage.open(SHIPPED, NOW_S + 8 * DAY_S).notices
    assert again.from_s == NOW_S + 8 * DAY_S + NOTICE_S


def test_a_shorter_keep_has_its_own_notice_and_nothing_goes_by_it_before(stage: Stage) -> None:
    sink = stage.open(SHIPPED)
    sink.apply(batch(0, *STARTS_S[1:]))
    sink = stage.open(MONTH)
    (notice,) = sink.notices
    assert (notice.keep_s, notice.cells) == (MONTH_S, 1)
    purge_all(sink, NOW_S)
    assert stage.windows()[MINUTE] == [1, 1]
    purge_all(sink, NOW_S + NOTICE_S)
    assert stage.windows()[MINUTE] == [1]


def test_an_administrator_who_needs_space_can_end_the_notice(stage: Stage) -> None:
    stage.open(FOREVER).apply(batch(0, *STARTS_S))
    sink = stage.open(SHIPPED)
    told = list(sink.notices)
    assert stage.run(lambda cursor: begin_now(cursor, told, NOW_S)) == told
    assert stage.run(lambda cursor: begin_now(cursor, told, NOW_S)) == []
    purge_all(sink, NOW_S)
    assert stage.windows()[MINUTE] == [1, 1]


def as_configured(home: Path, settings: MySqlSettings, keep: str) -> Mill:
    """Return a mill with this database and the metric `m`. `keep` is the time for its minutes."""
    text = (
        "stream:\n"
        "  from: {a: {topic: logs.access, format: raw}}\n"
        f"  defaults: {{keep: {{mysql: {{1m: {keep}}}}}}}\n"
        "  metrics: [{name: m, from: a, measure: count, windows: [1m, 1h, all]}]\n"
        "collector: {inputs: [{paths: ['a/*'], topic: logs.access}]}\n"
        f"sinks: {{redis: null, mysql: {{host: 127.0.0.1, port: {settings.port}, user: mill,"
        f" password: {json.dumps(settings.password)}, database: {settings.database}}}}}\n"
    )
    return mill(home, text)


def test_what_a_keep_would_delete_is_told_before_it_is_taken_over(
    stage: Stage, database: MySqlSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.checks.keeps.time.time", lambda: float(NOW_S))
    stage.open(SHIPPED).apply(batch(0, *STARTS_S[1:]))
    assert deletions(as_configured(tmp_path, database, "90d")) == []
    assert deletions(as_configured(tmp_path, database, "forever")) == []
    ours = as_configured(tmp_path, database, "30d")
    [said] = deletions(ours)
    assert said.startswith(
        "m: 1 cells of MySQL's 1m windows are older than `keep` (30d) and would be deleted a week"
        " after it is applied, from "
    )
    assert stage.run(read_terms)["m", MINUTE].keep_s == 90 * DAY_S, "asking changes nothing"
    # After the stream has applied the change, later checks name the same day of deletion.
    (notice,) = stage.open(MONTH, NOW_S - DAY_S).notices
    [said] = deletions(ours)
    assert said == f"{words(notice)}; `./millrace stream purge` deletes them at once"


def test_a_notice_that_was_not_told_is_not_ended(stage: Stage) -> None:
    """An administrator can end only the notices that the command has shown. A notice that came in
    the meantime, by another configuration, must stay."""
    stage.open(FOREVER).apply(batch(0, *STARTS_S))
    stage.open(SHIPPED)
    [told] = stage.run(read_terms).values()
    stage.open(MONTH, NOW_S + 60)
    assert stage.run(lambda cursor: begin_now(cursor, [told], NOW_S + 60)) == []
    (notice,) = stage.open(MONTH, NOW_S + 120).notices
    assert stage.run(lambda cursor: begin_now(cursor, [notice], NOW_S + 120)) == [notice]


def test_a_metric_that_is_forgotten_leaves_no_term(stage: Stage) -> None:
    stage.open(SHIPPED).apply(batch(0, NOW_S))
    stage.open(dataclasses.replace(SHIPPED, name="n"))
    assert sorted(stage.run(read_terms)) == [("m", MINUTE), ("n", MINUTE)]

    def forget(cursor: Any) -> None:
        begin_to_forget(cursor, "m")
        forget_rows(cursor, "m", told=lambda _: None)

    stage.run(forget)
    assert sorted(stage.run(read_terms)) == [("n", MINUTE)]


def test_a_driver_tells_of_notices_and_of_what_it_leaves_out(database: MySqlSettings) -> None:
    settings = SinksSettings(mysql=database, redis=None)
    sinks = Sinks(settings, [FOREVER], clock_ms=lambda: NOW_S * 1000, tend_every_s=60)
    sinks.open(worked.QUERY)
    sinks.apply(batch(0, *STARTS_S))
    sinks.close()
    sinks = Sinks(settings, [SHIPPED], clock_ms=lambda: NOW_S * 1000, tend_every_s=60)
    try:
        sinks.open(worked.QUERY)
        assert [term.place for term in sinks.facts.notices] == [("m", MINUTE)]
        assert sinks.facts.left_out_total == 0
        sinks._clock_ms = lambda: (NOW_S + NOTICE_S) * 1000
        sinks._purge_at_s = 0.0
        sinks.tend()
        assert list(sinks.facts.notices) == []
        sinks.apply(batch(1, OLD_S, now_s=NOW_S + NOTICE_S))
        assert sinks.facts.left_out_total == 1
    finally:
        sinks.close()
