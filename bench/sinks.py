"""One merge into MySQL and Redis, by the number of rows a batch folds to.

Each batch of rows touches the same keys in the present minute and the totals, as a live mill's
batches do; each batch of blocks fills minutes of a past day that nobody wrote yet, as a backlog's
do. `apply` is what the stream waits for before it may read on.
"""

import time
from collections.abc import Iterator, Sequence
from decimal import Decimal

import pytest

from bench.figures import percentile
from bench.machine import cpu_s
from bench.measurement import Figures, Measurement
from bench.session import Bench, Unavailable
from sinks.blocks import encode
from sinks.config import SinksSettings
from sinks.keys import Key
from sinks.rows import Batch, CellBlock, FoldRow, MetricDefinition, OffsetRange
from sinks.store import Outcome, Sinks, clock_ms
from sinks.values import Aggregate
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
    keep_mysql_s=None,
    top=10,
    max_keys=None,
    definition_hash=bytes(16),
)


def measure(bench: Bench) -> Iterator[Measurement]:
    """Small live batches, and the large ones of a backlog."""
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


class _Merges:
    """Runs of merges, each run into a database of its own."""

    def __init__(self, mysql: MySqlServer, redis: RedisServer, rows: int, batches: int) -> None:
        self._mysql = mysql
        self._redis = redis
        self._rows = rows
        self._batches = batches

    def run(self) -> Figures:
        """One driver's life."""
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
        # The first one makes what the others only change.
        sinks.apply(self._batch(0, rows))
        batches = [self._batch(n, rows) for n in range(1, self._batches + 1)]
        before, own_s = [cpu_s(pid) for pid in servers], time.process_time()
        for batch in batches:
            began_s = time.perf_counter()
            assert sinks.apply(batch) is Outcome.MERGED
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
    """Blocks of minutes that are new to the database and too old to be shown."""

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


def _row(start_s: int, number: int) -> FoldRow:
    value = Decimal(number)
    return FoldRow(METRIC.name, start_s, (f"key-{number}",), 1, value, value, value)
