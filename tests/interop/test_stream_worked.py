"""The eight metrics of the worked example: Spark folds the lines, and the real sinks store the
cells."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from sinks.errors import FencedWriter
from sinks.rows import Batch, FoldRow
from sinks.store import BatchOutcome, Sinks
from stream.config.settings import StreamSection
from stream.fold.compile import FoldPlan, compile_plan
from stream.fold.folding import Folding
from tests.harness import worked
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.interop.stream_spark import frame
from tests.interop.test_sinks_worked import Mill

pytestmark = pytest.mark.live

SECTION = {
    "from": {
        "access": {"topic": "logs.access", "format": "combined"},
        "api": {
            "topic": "logs.api",
            "format": "json",
            "time": "ts",
            "columns": {
                "host": "host string",
                "status": "status int",
                "bytes": "bytes bigint",
                "upstream": "upstream string",
                "request_time": "request_time double",
            },
        },
    },
    "defaults": {
        "windows": ["10s", "1m"],
        "keep": {"redis": {"10s": "1h", "1m": "1h"}, "mysql": "forever"},
    },
    "metrics": [
        {"name": "requests_by_status", "from": "access", "key": "status", "measure": "count"},
        {"name": "hits_by_path", "from": "access", "key": "path", "measure": "count", "top": 10},
        {
            "name": "bytes_by_host",
            "from": "api",
            "key": "host",
            "measure": "sum",
            "value": "bytes",
        },
        {"name": "unique_visitors", "from": "access", "measure": "unique", "value": "remote_addr"},
        {"name": "latency", "from": "api", "measure": "percentile", "value": "request_time"},
        {"name": "error_rate", "from": "api", "measure": "share", "value": "status >= 500"},
        {
            "name": "upstream_5xx",
            "from": "api",
            "where": "status >= 500",
            "key": "upstream",
            "measure": "count",
        },
        {"name": "lines_by_file", "from": ["access", "api"], "key": "file", "measure": "count"},
    ],
}


def access(address: str, clock: str, request: str, status: int, size: int, agent: str) -> str:
    return f'{address} - - [01/Aug/2126:{clock} +0000] "{request}" {status} {size} "-" "{agent}"'


def api(clock: str, host: str, status: int, size: int, upstream: str, took: str) -> str:
    return (
        f'{{"ts":"2126-08-01T{clock}Z","host":"{host}.example","status":{status},'
        f'"bytes":{size},"upstream":"{upstream}","request_time":{took}}}'
    )


A = [
    access(worked.V1, "10:00:01", "GET / HTTP/1.1", 200, 512, "Mozilla/5.0"),
    access(worked.V1, "10:00:04", "GET /cart?x=1 HTTP/1.1", 200, 1024, "Mozilla/5.0"),
    access(worked.V2, "10:00:09", "GET / HTTP/1.1", 304, 0, "curl/8.5.0"),
    access(worked.V1, "10:00:12", "GET /old HTTP/1.1", 404, 153, "Mozilla/5.0"),
    access(worked.V3, "09:59:58", "GET / HTTP/1.1", 200, 512, "Mozilla/5.0"),
]
B = [
    api("10:00:02", "eu", 200, 2000, "10.0.0.11:8080", "0.020"),
    api("10:00:03", "eu", 200, 3000, "10.0.0.12:8080", "0.040"),
    api("10:00:05", "us", 502, 150, "10.0.0.21:8080", "1.500"),
    api("10:00:11", "us", 200, 1000, "10.0.0.22:8080", "0.030"),
    api("10:00:14", "eu", 503, 90, "10.0.0.11:8080", "0.010"),
]


@pytest.fixture(scope="module")
def plan() -> FoldPlan:
    return compile_plan(StreamSection.model_validate(SECTION))


@pytest.fixture
def mill(mysql_server: MySqlServer, redis_server: RedisServer) -> Iterator[Mill]:
    yield Mill(mysql_server, redis_server, mysql_server.new_database())


def folded(plan: FoldPlan, like: Batch, a: list[str], b: list[str], start: int) -> Batch:
    """Return the batch `like` with other rows: those that Spark's fold makes from these lines."""
    lines = frame(a, "logs.access", worked.ACCESS, start).unionByName(
        frame(b, "logs.api", worked.API, start)
    )
    counts = Folding(plan, as_blocks=False).fold_in_driver(lines)
    assert counts.unparsed == []
    return dataclasses.replace(like, rows=counts.rows, lines=counts.lines)


@pytest.fixture(scope="module")
def batch_7(plan: FoldPlan) -> Batch:
    return folded(plan, worked.BATCH_7, A[:3], B[:3], 0)


@pytest.fixture(scope="module")
def batch_8(plan: FoldPlan) -> Batch:
    # The lines begin at offset 4, because a commit marker uses offset 3.
    return folded(plan, worked.BATCH_8, A[3:], B[3:], 4)


def plain(rows: Any) -> set[tuple[object, ...]]:
    """Return rows without their sketches, because the bytes of equal sketches can differ."""

    def cells(row: FoldRow) -> tuple[object, ...]:
        has = (row.hll is not None, row.kll is not None)
        return (row.metric, row.slice_start_s, row.key, row.count, row.sum, row.min, row.max, *has)

    return {cells(row) for row in rows}


def driver(mill: Mill, plan: FoldPlan) -> Sinks:
    definitions = [metric.definition for metric in plan.metrics]
    return Sinks(mill.settings, definitions, clock_ms=lambda: worked.NOW_MS, patience_s=2)


def test_spark_folds_what_was_folded_by_hand(batch_7: Batch, batch_8: Batch) -> None:
    assert plain(batch_7.rows) == plain(worked.BATCH_7.rows)
    assert plain(batch_8.rows) == plain(worked.BATCH_8.rows)
    assert (batch_7.lines, batch_8.lines) == (6, 4)


def test_every_cell_half_way_and_at_the_end(
    mill: Mill, plan: FoldPlan, batch_7: Batch, batch_8: Batch
) -> None:
    sinks = driver(mill, plan)
    sinks.open(worked.QUERY)
    assert sinks.apply(batch_7) is BatchOutcome.MERGED
    assert mill.cells() == worked.AFTER_7
    assert sinks.apply(batch_8) is BatchOutcome.MERGED
    assert mill.cells() == worked.AFTER_8
    client: Any = mill.redis.client()
    for key, values in worked.REDIS_AFTER_8.items():
        assert client.hgetall(key) == values, key
    for key, ranking in worked.REDIS_TOPS_AFTER_8.items():
        assert dict(client.zrange(key, 0, -1, withscores=True)) == ranking, key


def test_replays_and_zombies_change_nothing(
    mill: Mill, plan: FoldPlan, batch_7: Batch, batch_8: Batch
) -> None:
    old = driver(mill, plan)
    old.open(worked.QUERY)
    old.apply(batch_7)
    new = driver(mill, plan)
    new.open(worked.QUERY)
    new.apply(batch_8)
    before = mill.everything()
    assert new.apply(batch_8) is BatchOutcome.REPLAYED
    with pytest.raises(FencedWriter):
        old.apply(batch_8)
    assert mill.everything() == before
