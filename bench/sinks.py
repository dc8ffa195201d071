"""One merge into MySQL and Redis, by the number of rows a batch folds to.

Each batch touches the same keys in the present minute and the totals, as a live mill's batches do;
`apply` is what the stream waits for before it may read on.
"""

import time
from collections.abc import Iterator, Sequence
from decimal import Decimal

import pytest

from bench.figures import percentile
from bench.machine import cpu_s
from bench.measurement import Figures, Measurement
from bench.session import Bench, Unavailable
from sinks.config import SinksSettings
from sinks.rows import Batch, FoldRow, MetricDefinition, OffsetRange
from sinks.store import Outcome, Sinks, clock_ms
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer

PART = "sinks"
QUERY = "5f0c1a3e-0000-4000-8000-000000000001"
Skipped = pytest.skip.Exception
SLICE_S = 60
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
        for rows, batches in ((10, 100), (100, 100), (1_000, 30), (10_000, 5)):
            case = f"merge of {rows:,} rows"
            merges = _Merges(mysql, redis, rows, bench.options.sized(batches, max(2, batches // 5)))
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
        self._apply(sinks, 0, rows)  # The first one makes what the others only change.
        before, own_s = [cpu_s(pid) for pid in servers], time.process_time()
        for batch_id in range(1, self._batches + 1):
            began_s = time.perf_counter()
            self._apply(sinks, batch_id, rows)
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

    def _apply(self, sinks: Sinks, batch_id: int, rows: Sequence[FoldRow]) -> None:
        lines = len(rows)
        ranges = [OffsetRange("logs.access", 0, batch_id * lines, (batch_id + 1) * lines)]
        batch = Batch(QUERY, batch_id, rows, [], ranges, lines, clock_ms())
        assert sinks.apply(batch) is Outcome.MERGED


def _row(start_s: int, number: int) -> FoldRow:
    value = Decimal(number)
    return FoldRow(METRIC.name, start_s, (f"key-{number}",), 1, value, value, value)
