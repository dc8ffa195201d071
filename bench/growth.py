"""Measures merges, reads and purges while the table of windows grows to the size of a year's data.

The table has the sinks' own schema. It has one metric by path and minute, with 2,000 paths in each
minute. MySQL itself generates the rows. MySQL runs with the tests' settings, so all tables except
the smallest are far larger than the buffer pool of 64 MiB.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pymysql
import pytest

from bench.figures import percentile
from bench.measurement import Figures, Measurement
from bench.report import note
from bench.session import Bench, Unavailable
from sinks.config import MySqlSettings
from sinks.keys import key_id
from sinks.mysql.growth import rows_of
from sinks.mysql.sink import MySqlSink
from sinks.rows import Batch, CellBlock, FoldRow, MetricDefinition, OffsetRange
from sinks.store import clock_ms
from sinks.values import Aggregate
from tests.harness.cell_blocks import encode
from tests.harness.mysql import MySqlServer

PART = "growth"
QUERY = "5f0c1a3e-0000-4000-8000-000000000002"
Skipped = pytest.skip.Exception

MINUTE_S = 60
HOUR_S = 3_600
DAY_S = 86_400
PATHS = 2_000
# The first minute of the table.
START_S = 1_700_000_040
MINUTES_AT_ONCE = 1_000
LIVE_ROWS = 250
LIVE_BATCHES = 40
PAST_MINUTES = 20
PAST_BATCHES = 5
READS = 5
PATIENCE_S = 60.0
KEEP_S = 10 * 365 * DAY_S
PURGES = 10
PURGE_ROWS = 10_000

METRIC = MetricDefinition(
    name="paths_by_minute",
    key_columns=("path",),
    measure="count",
    windows_s=(MINUTE_S,),
    slice_s=MINUTE_S,
    keep_redis_s={MINUTE_S: 3_600},
    keep_mysql_s={MINUTE_S: KEEP_S},
    top=10,
    max_keys=None,
    definition_hash=bytes(16),
)


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure the same work at each size of one growing table."""
    folder = bench.new_folder("growth")
    try:
        mysql = MySqlServer(folder / "mysql")
    except Skipped as reason:
        raise Unavailable(str(reason)) from None
    sizes = (10_000_000, 50_000_000, 100_000_000)
    if bench.options.quick:
        sizes = (200_000, 1_000_000, 2_000_000)
    with mysql:
        database = mysql.new_database()
        with closing(MySqlSink(database, patience_s=PATIENCE_S)) as sink:
            sink.open(QUERY, [METRIC], clock_ms() // 1000)
            table = _Table(database, sink)
            table.add_paths()
            for rows in sizes:
                note(f"filling up to {rows:,} rows")
                table.fill(rows // PATHS)
                yield from _at_size(bench, table, rows)


def _at_size(bench: Bench, table: "_Table", rows: int) -> Iterator[Measurement]:
    work: dict[str, Callable[[], Figures]] = {
        f"merges of {LIVE_ROWS} live rows": table.live,
        f"merges of {PAST_MINUTES * PATHS:,} new cells": table.past,
        "reads": table.reads,
        "purge": table.purge,
    }
    for name, measured in work.items():
        case = f"{name}, {rows:,} rows stored"
        yield Measurement(PART, case, bench.repeat(case, measured, runs=1))


class _Table:
    """The table of one mill. Its minutes start at `START_S` and have no gap."""

    def __init__(self, database: MySqlSettings, sink: MySqlSink) -> None:
        self._database = database
        self._sink = sink
        self._paths: list[str] = []
        self._minutes = 0
        self._batch_id = -1
        # `past` fills minutes before `START_S`. Each of its batches takes older minutes than the
        # batch before.
        self._past_s = START_S - MINUTE_S

    def add_paths(self) -> None:
        """Create the paths, which are the keys of every minute."""
        paths = [f"/shop/department/item/{number:06}" for number in range(PATHS)]
        with self._connection() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE paths (k_id VARBINARY(255) PRIMARY KEY)")
            cursor.executemany(
                "INSERT INTO paths VALUES (%s)", [(key_id((one,)),) for one in paths]
            )
        self._paths = paths

    def fill(self, minutes: int) -> None:
        """Make MySQL generate rows until the table has this many minutes."""
        with self._connection() as connection, connection.cursor() as cursor:
            for first in range(self._minutes, minutes, MINUTES_AT_ONCE):
                last = min(first + MINUTES_AT_ONCE, minutes) - 1
                start = f"TIMESTAMPADD(MINUTE, seq, '{_moment(START_S)}')"
                cursor.execute(
                    "INSERT INTO window_keys (metric, size_s, start_at, n_keys, seq)"
                    f" SELECT '{METRIC.name}', {MINUTE_S}, {start}, {PATHS}, 0"
                    f" FROM seq_{first}_to_{last}"
                )
                cursor.execute(
                    "INSERT INTO window_cells (window_number, k_id, `count`, seq)"
                    " SELECT STRAIGHT_JOIN window_number, k_id, 1 + window_number MOD 37, 0"
                    " FROM window_keys, paths WHERE metric = %s AND start_at BETWEEN %s AND %s",
                    (
                        METRIC.name,
                        _moment(START_S + first * MINUTE_S),
                        _moment(START_S + last * MINUTE_S),
                    ),
                )
        self._minutes = max(self._minutes, minutes)

    def live(self) -> Figures:
        """Merge small batches into the current minute."""
        rows = self._live_rows()
        times = sorted(self._merge(rows=rows) for _ in range(LIVE_BATCHES))
        return {"p50_ms": percentile(times, 0.5) * 1e3, "p99_ms": percentile(times, 0.99) * 1e3}

    def past(self) -> Figures:
        """Merge large batches of minutes that do not exist yet, then merge the same minutes
        again."""
        begin_s = self._past_s
        new_s = [self._merge_past() for _ in range(PAST_BATCHES)]
        self._past_s = begin_s
        again_s = [self._merge_past() for _ in range(PAST_BATCHES)]
        cells = PAST_BATCHES * PAST_MINUTES * PATHS
        return {
            "us_per_new_cell": sum(new_s) / cells * 1e6,
            "us_per_added_cell": sum(again_s) / cells * 1e6,
        }

    def reads(self) -> Figures:
        """Run the queries that a person, the page and `doctor` send. No two queries are for the
        same windows."""
        step = self._minutes // (READS + 1)
        starts = [START_S + n * step * MINUTE_S for n in range(READS)]
        top = (
            f"SELECT path, value FROM {METRIC.name} WHERE size = '1m' AND start_at = %s"
            " ORDER BY value DESC LIMIT 10"
        )
        hour = (
            f"SELECT SUM(count) FROM {METRIC.name} WHERE size = '1m' AND path = %s"
            " AND start_at >= %s AND start_at < %s"
        )
        path = self._paths[7]
        with self._connection() as connection, connection.cursor() as cursor:
            top_s = [_timed(cursor, top, (_moment(one),)) for one in starts]
            hour_s = [
                _timed(cursor, hour, (path, _moment(one), _moment(one + HOUR_S))) for one in starts
            ]
            began_s = time.perf_counter()
            stored = rows_of(cursor, clock_ms() // 1000)
            doctor_s = time.perf_counter() - began_s
        return {
            "top_ten_ms": max(top_s) * 1e3,
            "hour_of_a_path_ms": max(hour_s) * 1e3,
            "doctor_ms": doctor_s * 1e3,
            "bytes_per_row": stored.bytes_per_row,
        }

    def purge(self) -> Figures:
        """Purge the oldest windows, with live merges in between."""
        oldest = (
            f"SELECT MIN(start_at) FROM window_keys WHERE metric = '{METRIC.name}' AND size_s = 60"
        )
        with self._connection() as connection, connection.cursor() as cursor:
            cursor.execute(oldest)
            (found,) = cursor.fetchone()
        last_s = (
            int(found.replace(tzinfo=UTC).timestamp()) + PURGES * PURGE_ROWS // PATHS * MINUTE_S
        )
        rows = self._live_rows()
        pieces, merges = [], []
        for _ in range(PURGES):
            began_s = time.perf_counter()
            self._sink.purge(last_s + KEEP_S, rows_max=PURGE_ROWS)
            pieces.append(time.perf_counter() - began_s)
            merges.append(self._merge(rows=rows))
        return {
            "rows_per_s": PURGES * PURGE_ROWS / sum(pieces),
            "piece_max_ms": max(pieces) * 1e3,
            "merge_between_max_ms": max(merges) * 1e3,
        }

    def _live_rows(self) -> list[FoldRow]:
        now_s = clock_ms() // 1000 // MINUTE_S * MINUTE_S
        return [FoldRow(METRIC.name, now_s, (path,), 1) for path in self._paths[:LIVE_ROWS]]

    def _merge_past(self) -> float:
        cells = [((path,), Aggregate(1, Decimal(1), None, None)) for path in self._paths]
        blocks = []
        for _ in range(PAST_MINUTES):
            blocks.append(encode(METRIC, MINUTE_S, self._past_s, cells))
            self._past_s -= MINUTE_S
        return self._merge(blocks=blocks)

    def _merge(self, rows: Sequence[FoldRow] = (), blocks: Sequence[CellBlock] = ()) -> float:
        self._batch_id += 1
        offset = self._batch_id
        ranges = [OffsetRange("logs.access", 0, offset, offset + 1)]
        batch = Batch(QUERY, offset, rows, [], ranges, 1, clock_ms(), blocks=blocks)
        began_s = time.perf_counter()
        assert not self._sink.apply(batch).replayed
        return time.perf_counter() - began_s

    def _connection(self) -> "pymysql.Connection[Any]":
        return pymysql.connect(
            host=self._database.host,
            port=self._database.port,
            user=self._database.user,
            password=self._database.password,
            database=self._database.database,
            autocommit=True,
        )


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _timed(cursor: Any, query: str, values: Sequence[object]) -> float:
    began_s = time.perf_counter()
    cursor.execute(query, values)
    cursor.fetchall()
    return time.perf_counter() - began_s
