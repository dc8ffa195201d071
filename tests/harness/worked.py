"""The worked example: eight metrics over ten lines in two batches, and all resulting cells.

Tests expect the same cells from rows folded by hand and from rows folded by Spark. The example's
day is a century ahead, because Redis expires keys by the real clock.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal

import datasketches

from sinks.rows import Batch, FoldRow, MetricDefinition, OffsetRange
from tests.harness.hashing import sketch_of, word_of

QUERY = "11111111-2222-3333-4444-555555555555"
NOW_MS = int(datetime(2126, 8, 1, 10, 0, 20, tzinfo=UTC).timestamp() * 1000)
KEEP = {10: 3_600, 60: 3_600}
DAY = datetime(2126, 8, 1, tzinfo=UTC)

_KEYS = {
    "requests_by_status": (("status",), "count", None),
    "hits_by_path": (("path",), "count", 10),
    "bytes_by_host": (("host",), "sum", None),
    "unique_visitors": ((), "unique", None),
    "latency": ((), "percentile", None),
    "error_rate": ((), "share", None),
    "upstream_5xx": (("upstream",), "count", None),
    "lines_by_file": (("file",), "count", None),
}

DEFINITIONS = [
    MetricDefinition(
        name=name,
        key_columns=columns,
        measure=measure,
        windows_s=(10, 60),
        slice_s=10,
        keep_redis_s=KEEP,
        keep_mysql_s={},
        top=top,
        max_keys=None,
        definition_hash=name.encode().ljust(16, b"\0")[:16],
    )
    for name, (columns, measure, top) in _KEYS.items()
]


def at(clock: str) -> int:
    """Return the epoch seconds of a time of day on the example's day."""
    hour, minute, second = (int(part) for part in clock.split(":"))
    return int(DAY.replace(hour=hour, minute=minute, second=second).timestamp())


def hll(*values: str) -> bytes:
    """Return a sketch of distinct values, encoded as by the stream."""
    return sketch_of(word_of(value) for value in values)


def older_hll(*values: str) -> bytes:
    """Return a sketch of distinct values, encoded as older versions stored it."""
    sketch = datasketches.hll_sketch(12, datasketches.tgt_hll_type.HLL_8)
    for value in values:
        sketch.update(value)
    return bytes(sketch.serialize_compact())


def kll(*values: float) -> bytes:
    """Return a quantile sketch of some values."""
    sketch = datasketches.kll_doubles_sketch(200)
    for value in values:
        sketch.update(value)
    return bytes(sketch.serialize())


def _measured(
    metric: str, clock: str, key: tuple[str, ...], values: Iterable[str], **more: bytes
) -> FoldRow:
    numbers = [Decimal(value) for value in values]
    return FoldRow(
        metric,
        at(clock),
        key,
        len(numbers),
        sum(numbers, Decimal(0)),
        min(numbers),
        max(numbers),
        **more,
    )


def counts(metric: str, clock: str, keys: Mapping[str, int]) -> list[FoldRow]:
    """Return the rows of a metric with the measure `count` in one slice."""
    return [FoldRow(metric, at(clock), (key,), count) for key, count in keys.items()]


def _visitors(clock: str, *addresses: str) -> FoldRow:
    return FoldRow(
        "unique_visitors", at(clock), (), len(addresses), hll=hll(*dict.fromkeys(addresses))
    )


ACCESS, API = "access/access.log", "api/api.json"
V1, V2, V3 = "203.0.113.7", "198.51.100.9", "192.0.2.44"

BATCH_7 = Batch(
    query_id=QUERY,
    batch_id=7,
    rows=[
        *counts("requests_by_status", "10:00:00", {"200": 2, "304": 1}),
        *counts("hits_by_path", "10:00:00", {"/": 2, "/cart": 1}),
        _measured("bytes_by_host", "10:00:00", ("eu.example",), ["2000", "3000"]),
        _measured("bytes_by_host", "10:00:00", ("us.example",), ["150"]),
        _visitors("10:00:00", V1, V1, V2),
        _measured("latency", "10:00:00", (), ["0.020", "0.040", "1.500"], kll=kll(0.02, 0.04, 1.5)),
        _measured("error_rate", "10:00:00", (), ["0", "0", "1"]),
        *counts("upstream_5xx", "10:00:00", {"10.0.0.21:8080": 1}),
        *counts("lines_by_file", "10:00:00", {ACCESS: 3, API: 3}),
    ],
    unparsed=[],
    ranges=[OffsetRange("logs.access", 0, 0, 4), OffsetRange("logs.api", 0, 0, 4)],
    lines=6,
    now_ms=NOW_MS,
)
BATCH_8 = Batch(
    query_id=QUERY,
    batch_id=8,
    rows=[
        *counts("requests_by_status", "10:00:10", {"404": 1}),
        *counts("requests_by_status", "09:59:50", {"200": 1}),
        *counts("hits_by_path", "10:00:10", {"/old": 1}),
        *counts("hits_by_path", "09:59:50", {"/": 1}),
        _measured("bytes_by_host", "10:00:10", ("us.example",), ["1000"]),
        _measured("bytes_by_host", "10:00:10", ("eu.example",), ["90"]),
        _visitors("10:00:10", V1),
        _visitors("09:59:50", V3),
        _measured("latency", "10:00:10", (), ["0.030", "0.010"], kll=kll(0.03, 0.01)),
        _measured("error_rate", "10:00:10", (), ["0", "1"]),
        *counts("upstream_5xx", "10:00:10", {"10.0.0.11:8080": 1}),
        *counts("lines_by_file", "10:00:10", {ACCESS: 1, API: 2}),
        *counts("lines_by_file", "09:59:50", {ACCESS: 1}),
    ],
    unparsed=[],
    ranges=[OffsetRange("logs.access", 0, 4, 7), OffsetRange("logs.api", 0, 4, 7)],
    lines=4,
    now_ms=NOW_MS,
)

# (metric, size, start, key): (count, sum, min, max, value, quantiles)
Expected = dict[tuple[str, int, str, str], tuple[object, ...]]


def _plain(metric: str, size_s: int, clock: str, **keys: int) -> Expected:
    return {
        (metric, size_s, clock, key): (count, None, None, None, Decimal(count), None)
        for key, count in keys.items()
    }


def _full(
    metric: str, size_s: int, clock: str, key: str, texts: str, quantiles: object = None
) -> Expected:
    count, *numbers = texts.split()
    values = [Decimal(number) for number in numbers]
    return {(metric, size_s, clock, key): (int(count), *values, quantiles)}


def _uniques(size_s: int, clock: str, count: int, value: int) -> Expected:
    cell = (count, None, None, None, Decimal(value), None)
    return {("unique_visitors", size_s, clock, "*"): cell}


def _ranks(p50: float, p95: float, p99: float) -> dict[str, float]:
    return {"p50": p50, "p95": p95, "p99": p99}


AFTER_8: Expected = {
    **_plain("requests_by_status", 10, "09:59:50", **{"200": 1}),
    **_plain("requests_by_status", 10, "10:00:00", **{"200": 2, "304": 1}),
    **_plain("requests_by_status", 10, "10:00:10", **{"404": 1}),
    **_plain("requests_by_status", 60, "09:59:00", **{"200": 1}),
    **_plain("requests_by_status", 60, "10:00:00", **{"200": 2, "304": 1, "404": 1}),
    **_plain("hits_by_path", 10, "09:59:50", **{"/": 1}),
    **_plain("hits_by_path", 10, "10:00:00", **{"/": 2, "/cart": 1}),
    **_plain("hits_by_path", 10, "10:00:10", **{"/old": 1}),
    **_plain("hits_by_path", 60, "09:59:00", **{"/": 1}),
    **_plain("hits_by_path", 60, "10:00:00", **{"/": 2, "/cart": 1, "/old": 1}),
    **_full("bytes_by_host", 10, "10:00:00", "eu.example", "2 5000 2000 3000 5000"),
    **_full("bytes_by_host", 10, "10:00:00", "us.example", "1 150 150 150 150"),
    **_full("bytes_by_host", 10, "10:00:10", "eu.example", "1 90 90 90 90"),
    **_full("bytes_by_host", 10, "10:00:10", "us.example", "1 1000 1000 1000 1000"),
    **_full("bytes_by_host", 60, "10:00:00", "eu.example", "3 5090 90 3000 5090"),
    **_full("bytes_by_host", 60, "10:00:00", "us.example", "2 1150 150 1000 1150"),
    **_uniques(10, "09:59:50", 1, 1),
    **_uniques(10, "10:00:00", 3, 2),
    **_uniques(10, "10:00:10", 1, 1),
    **_uniques(60, "09:59:00", 1, 1),
    **_uniques(60, "10:00:00", 4, 2),
    **_full("latency", 10, "10:00:00", "*", "3 1.56 .02 1.5 .04", _ranks(0.04, 1.5, 1.5)),
    **_full("latency", 10, "10:00:10", "*", "2 .04 .01 .03 .01", _ranks(0.01, 0.03, 0.03)),
    **_full("latency", 60, "10:00:00", "*", "5 1.6 .01 1.5 .03", _ranks(0.03, 1.5, 1.5)),
    **_full("error_rate", 10, "10:00:00", "*", "3 1 0 1 .333333333333333333"),
    **_full("error_rate", 10, "10:00:10", "*", "2 1 0 1 .5"),
    **_full("error_rate", 60, "10:00:00", "*", "5 2 0 1 .4"),
    **_plain("upstream_5xx", 10, "10:00:00", **{"10.0.0.21:8080": 1}),
    **_plain("upstream_5xx", 10, "10:00:10", **{"10.0.0.11:8080": 1}),
    **_plain("upstream_5xx", 60, "10:00:00", **{"10.0.0.21:8080": 1, "10.0.0.11:8080": 1}),
    **_plain("lines_by_file", 10, "09:59:50", **{ACCESS: 1}),
    **_plain("lines_by_file", 10, "10:00:00", **{ACCESS: 3, API: 3}),
    **_plain("lines_by_file", 10, "10:00:10", **{ACCESS: 1, API: 2}),
    **_plain("lines_by_file", 60, "09:59:00", **{ACCESS: 1}),
    **_plain("lines_by_file", 60, "10:00:00", **{ACCESS: 4, API: 5}),
}

# After batch 7 each one-minute window at 10:00 has only one slice, so its values are the slice's.
AFTER_7: Expected = {
    (metric, size_s, clock, key): AFTER_8[metric, 10, "10:00:00", key]
    for (metric, size_s, clock, key) in AFTER_8
    if clock == "10:00:00" and (metric, 10, "10:00:00", key) in AFTER_8
}

REDIS_AFTER_8: dict[str, dict[str, str]] = {
    "mill:requests_by_status:1m:21260801T100000Z": {"200": "2", "304": "1", "404": "1"},
    "mill:requests_by_status:1m:21260801T095900Z": {"200": "1"},
    "mill:bytes_by_host:1m:21260801T100000Z": {"eu.example": "5090", "us.example": "1150"},
    "mill:unique_visitors:1m:21260801T100000Z": {"*": "2"},
    "mill:unique_visitors:1m:21260801T095900Z": {"*": "1"},
    "mill:latency:1m:21260801T100000Z": {
        "*.p50": "0.03",
        "*.p95": "1.5",
        "*.p99": "1.5",
        "*.count": "5",
    },
    "mill:error_rate:1m:21260801T100000Z": {"*": "0.4"},
    "mill:upstream_5xx:1m:21260801T100000Z": {"10.0.0.21:8080": "1", "10.0.0.11:8080": "1"},
    "mill:lines_by_file:1m:21260801T100000Z": {ACCESS: "4", API: "5"},
    "mill:lines_by_file:1m:21260801T095900Z": {ACCESS: "1"},
    "mill:requests_by_status:1m": {
        "200": "2",
        "304": "1",
        "404": "1",
        "@start": "21260801T100000Z",
    },
    "mill:requests_by_status:10s": {"404": "1", "@start": "21260801T100010Z"},
}
REDIS_TOPS_AFTER_8 = {
    "mill:hits_by_path:1m:21260801T100000Z:top": {"/": 2.0, "/cart": 1.0, "/old": 1.0},
    "mill:hits_by_path:1m:21260801T095900Z:top": {"/": 1.0},
    "mill:hits_by_path:1m:top": {"/": 2.0, "/cart": 1.0, "/old": 1.0},
}
REDIS_EXPIRY_AFTER_8 = {
    "mill:requests_by_status:1m:21260801T100000Z": at("11:01:00"),
    "mill:requests_by_status:1m:21260801T095900Z": at("11:00:00"),
    "mill:requests_by_status:10s:21260801T100010Z": at("11:00:20"),
}
