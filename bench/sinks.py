"""The cost of one merge into MySQL and Redis, by the number of rows in a batch.

A batch of rows changes the same keys in the current minute and in the totals, as each batch of a
live mill does. A batch of blocks fills new minutes of a past day, as a backlog does. The duration
of `apply` is measured, because the stream waits for it before it reads more lines. A last case
counts made-up traffic with the shipped metrics, except sketches: once as a backlog, and once second
by second.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pymysql
import pytest

from bench.figures import percentile
from bench.machine import cpu_s
from bench.measurement import Figures, Measurement
from bench.session import Bench, Unavailable
from bench.traffic import LINES_PER_SECOND, STATUSES, Drawn, Traffic, path_of
from sinks.cells.merge import WindowId, fold_to_windows
from sinks.config import SinksSettings
from sinks.keys import Key, key_id
from sinks.mysql.growth import rows_of
from sinks.rows import Batch, CellBlock, FoldRow, MetricDefinition, OffsetRange
from sinks.store import BatchOutcome, Sinks, clock_ms
from sinks.values import Aggregate, combined
from tests.harness.cell_blocks import encode
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer

PART = "sinks"
QUERY = "5f0c1a3e-0000-4000-8000-000000000001"
Skipped = pytest.skip.Exception
SLICE_S = 60
PAST_S = 1_600_000_020
BLOCKS_A_BATCH = 20
KEYS_A_BLOCK = 1_000
METRIC = MetricDefinition(
    name="bytes_by_key",
    key_columns=("key",),
    measure="sum",
    windows_s=(SLICE_S, 0),
    slice_s=SLICE_S,
    keep_redis_s={SLICE_S: 86_400, 0: None},
    keep_mysql_s={},
    top=10,
    max_keys=None,
    definition_hash=bytes(16),
)
BACKLOG_LINES = 250_000
BY_STATUS = replace(METRIC, name="requests_by_status", measure="count", windows_s=(60, 3_600, 0))
BYTES = replace(BY_STATUS, name="bytes_by_status", measure="sum")
BY_PATH = replace(BY_STATUS, name="top_paths")
TRAFFIC = (BY_STATUS, BYTES, BY_PATH)


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure small live batches, and the large batches of a backlog."""
    folder = bench.new_folder("sinks")
    try:
        mysql, redis = MySqlServer(folder / "mysql"), RedisServer(folder / "redis")
    except Skipped as reason:
        raise Unavailable(str(reason)) from None
    with mysql, redis:
        for rows, batches in ((10, 100), (100, 100), (250, 60), (640, 40), (10_000, 5)):
            case = f"merge of {rows:,} rows"
            merges = _Merges(mysql, redis, rows, bench.options.sized(batches, max(2, batches // 5)))
            yield Measurement(PART, case, bench.repeat(case, merges.run))
        case = f"merge of {BLOCKS_A_BATCH} blocks of {KEYS_A_BLOCK:,} cells"
        merges = _BlockMerges(mysql, redis, 0, bench.options.sized(10, 2))
        yield Measurement(PART, case, bench.repeat(case, merges.run))
        for case, lines, at_once in (
            ("traffic of a backlog", bench.options.sized(1_000_000, 200_000), BACKLOG_LINES),
            ("traffic as it comes", bench.options.sized(100_000, 20_000), LINES_PER_SECOND),
        ):
            counted = _Counted(mysql, lines, at_once)
            yield Measurement(PART, case, bench.repeat(case, counted.run, runs=1))


class _Merges:
    """Measures merges of rows. Each run has its own database."""

    def __init__(self, mysql: MySqlServer, redis: RedisServer, rows: int, batches: int) -> None:
        self._mysql = mysql
        self._redis = redis
        self._rows = rows
        self._batches = batches

    def run(self) -> Figures:
        """Open the sinks, merge the batches, and return the figures."""
        self._redis.client().flushall()
        settings = SinksSettings(mysql=self._mysql.new_database(), redis=self._redis.settings)
        sinks = Sinks(settings, [METRIC])
        sinks.open(QUERY)
        try:
            return self._merged(sinks)
        finally:
            sinks.close()

    def _merged(self, sinks: Sinks) -> Figures:
        assert self._mysql.process is not None and self._redis.process is not None
        servers = (self._mysql.process.pid, self._redis.process.pid)
        start_s = clock_ms() // 1000 // SLICE_S * SLICE_S
        rows = [_row(start_s, number) for number in range(self._rows)]
        times: list[float] = []
        # The first merge is not timed, because it inserts the rows that later merges only update.
        sinks.apply(self._batch(0, rows))
        batches = [self._batch(n, rows) for n in range(1, self._batches + 1)]
        before, own_s = [cpu_s(pid) for pid in servers], time.process_time()
        for batch in batches:
            began_s = time.perf_counter()
            assert sinks.apply(batch) is BatchOutcome.MERGED
            times.append(time.perf_counter() - began_s)
        own_s = time.process_time() - own_s
        mysql_s, redis_s = (cpu_s(pid) - s for pid, s in zip(servers, before, strict=True))
        times.sort()
        return {
            "apply_p50_ms": percentile(times, 0.5) * 1e3,
            "apply_p99_ms": percentile(times, 0.99) * 1e3,
            "driver_cpu_ms_per_batch": own_s / self._batches * 1e3,
            "mysql_cpu_ms_per_batch": mysql_s / self._batches * 1e3,
            "redis_cpu_ms_per_batch": redis_s / self._batches * 1e3,
        }

    def _batch(self, batch_id: int, rows: Sequence[FoldRow]) -> Batch:
        ranges = [OffsetRange("logs.access", 0, batch_id, batch_id + 1)]
        blocks = self._blocks(batch_id)
        return Batch(QUERY, batch_id, rows, [], ranges, 1, clock_ms(), blocks=blocks)

    def _blocks(self, batch_id: int) -> Sequence[CellBlock]:
        return ()


class _BlockMerges(_Merges):
    """Measures merges of blocks, whose minutes are new to MySQL and too old for the live view in
    Redis."""

    def _blocks(self, batch_id: int) -> Sequence[CellBlock]:
        value = Decimal(batch_id)
        cells: list[tuple[Key, Aggregate]] = [
            ((f"key-{number}",), Aggregate(1, value, value, value))
            for number in range(KEYS_A_BLOCK)
        ]
        first_s = PAST_S + batch_id * BLOCKS_A_BATCH * SLICE_S
        return [
            encode(METRIC, SLICE_S, first_s + number * SLICE_S, cells)
            for number in range(BLOCKS_A_BATCH)
        ]


class _Counted:
    """Measures made-up lines in MySQL alone. Each run has its own database."""

    def __init__(self, mysql: MySqlServer, lines: int, at_once: int) -> None:
        self._mysql = mysql
        self._at_once = at_once
        self._drawn, _ = Traffic(4711).draw(PAST_S, max(1, lines // LINES_PER_SECOND))

    def run(self) -> Figures:
        """Apply all lines. Return MySQL's CPU seconds for them, and the size of their cells."""
        assert self._mysql.process is not None
        database = self._mysql.new_database()
        sinks = Sinks(SinksSettings(mysql=database), TRAFFIC)
        sinks.open(QUERY)
        lines = len(self._drawn)
        mysql_s = cpu_s(self._mysql.process.pid)
        for batch_id, first in enumerate(range(0, lines, self._at_once)):
            rows = _cells_of(self._drawn, first, min(first + self._at_once, lines))
            sinks.apply(self._batch(batch_id, rows))
        mysql_s = cpu_s(self._mysql.process.pid) - mysql_s
        sinks.close()
        with self._mysql.connect(database) as connection:
            cells, octets = _stored(connection.cursor(pymysql.cursors.Cursor))
        return {
            "cells_per_line": cells / lines,
            "bytes_per_cell": octets / cells,
            "mysql_cpu_s_per_million_lines": mysql_s / lines * 1e6,
        }

    def _batch(self, batch_id: int, rows: Sequence[FoldRow]) -> Batch:
        blocks: list[CellBlock] = []
        if self._at_once == BACKLOG_LINES:
            blocks, rows = list(_as_blocks(rows)), ()
        ranges = [OffsetRange("logs.access", 0, batch_id, batch_id + 1)]
        return Batch(QUERY, batch_id, rows, [], ranges, 1, clock_ms(), blocks=blocks)


def _cells_of(drawn: Drawn, first: int, end: int) -> list[FoldRow]:
    """Return the lines `first` to `end`, folded by minute and key as the stream passes them on."""
    sums: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for at in range(first, end):
        start_s = int(drawn.second[at]) // SLICE_S * SLICE_S
        status, size = STATUSES[drawn.status[at]], int(drawn.size[at])
        sums[BY_STATUS.name, start_s, status].append(1)
        sums[BY_PATH.name, start_s, path_of(int(drawn.path[at]))].append(1)
        if size >= 0:
            sums[BYTES.name, start_s, status].append(size)
    return [
        FoldRow(name, start_s, (key,), len(some), *_sums(some) if name == BYTES.name else ())
        for (name, start_s, key), some in sums.items()
    ]


def _sums(sizes: Sequence[int]) -> tuple[Decimal, Decimal, Decimal]:
    return Decimal(sum(sizes)), Decimal(min(sizes)), Decimal(max(sizes))


def _as_blocks(rows: Sequence[FoldRow]) -> Iterator[CellBlock]:
    """Return the cells of each window in the order of the table, as Spark's tasks write them."""
    definitions = {metric.name: metric for metric in TRAFFIC}
    windows: dict[WindowId, list[tuple[Key, Aggregate]]] = defaultdict(list)
    for cell_id, cell in sorted(fold_to_windows(rows, definitions, 0, left_out=set()).items()):
        windows[cell_id.window].append((cell.key, combined(cell.parts)))
    for window, cells in windows.items():
        metric, size_s, start_s = window
        yield encode(definitions[metric], size_s, start_s, sorted(cells, key=_place))


def _place(cell: tuple[Key, Aggregate]) -> bytes:
    return key_id(cell[0])


def _stored(cursor: Any) -> tuple[int, int]:
    """Return the number of cells, and the bytes that they and their windows use."""
    cursor.execute("ANALYZE TABLE window_cells, window_keys")
    cursor.fetchall()
    cursor.execute("SELECT COUNT(*) FROM window_cells")
    (cells,) = cursor.fetchone()
    return int(cells), rows_of(cursor, clock_ms() // 1000).table_bytes


def _row(start_s: int, number: int) -> FoldRow:
    value = Decimal(number)
    return FoldRow(METRIC.name, start_s, (f"key-{number}",), 1, value, value, value)
