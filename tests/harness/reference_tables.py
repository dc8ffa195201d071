"""Texts of the reference pages about columns, measures and keys, which the code does not describe.

`reference_facts` collects the names from the code. A test fails if a name here is not in the code,
or if a name of the code is missing here.
"""

from typing import NamedTuple

_ACCESS = {
    "remote_addr": "address of the client",
    "ident": "identity of the client by RFC 1413, nearly always NULL",
    "user": "user of HTTP authentication",
    "method": "method of the request",
    "path": "path of the request, without the query",
    "query": "query of the request, without `?`",
    "protocol": "protocol of the request, such as `HTTP/1.1`",
    "status": "status of the answer",
    "bytes": "size of the answer's body",
}
READER_COLUMNS = {
    "combined": {
        **_ACCESS,
        "referer": "page that the request came from",
        "user_agent": "program of the client",
    },
    "common": _ACCESS,
    "syslog": {
        "host": "machine that wrote the line",
        "program": "program that wrote the line",
        "pid": "number of its process",
        "message": "the message",
        "facility": "facility, 0 to 23",
        "severity": "severity, 0 (emergency) to 7 (debug)",
        "message_id": "kind of the message, of RFC 5424",
        "structured_data": "structured data of RFC 5424, as text",
    },
    "cef": {
        "version": "version of CEF",
        "vendor": "vendor of the device",
        "product": "name of the device",
        "product_version": "version of the device",
        "event_class": "kind of the event",
        "name": "description of the event",
        "severity": "severity, a number or a word",
    },
}
"""The columns of readers that have their own columns."""

LINE_COLUMNS = {
    "file": "key of the record: the name under which the collector first saw the file",
    "line": "the whole line",
    "time": "time of the line, else of its arrival",
    "host": "the same as `collector_host`, unless the input has its own column `host`",
    "collector_host": "name of the collector that sent the line, if it has a `collector.group`",
}
"""The columns of every line, whatever its format."""


class MeasureText(NamedTuple):
    """The result of a measure in words, and an example of a metric that uses the measure."""

    gives: str
    example: str


MEASURES = {
    "count": MeasureText("the number of lines", "{key: status, measure: count}"),
    "sum": MeasureText("the sum of the values", "{key: path, measure: sum, value: bytes}"),
    "min": MeasureText("the smallest value", "{measure: min, value: bytes}"),
    "max": MeasureText("the largest value", "{measure: max, value: bytes}"),
    "mean": MeasureText("the sum divided by the number of values", "{measure: mean, value: bytes}"),
    "share": MeasureText(
        "the part of the lines for which `value` is true, 0 to 1",
        "{measure: share, value: status >= 500}",
    ),
    "unique": MeasureText(
        "the number of different values", "{measure: unique, value: remote_addr}"
    ),
    "percentile": MeasureText(
        "the median (p50), p95 and p99 of the values", "{measure: percentile, value: bytes}"
    ),
}

VIEW_COLUMNS = {
    "size": "size of the window, such as `1m`, or `all`",
    "start_at": "when the window begins, in UTC; 1970-01-01 for `all`",
    "count": "number of the lines that are counted here",
    "sum": "sum of the values",
    "min": "smallest value",
    "max": "largest value",
    "value": "what the measure gives",
    "quantiles": "JSON with `p50`, `p95` and `p99`; only with measure `percentile`",
    "estimate": "1 if `value` is an estimate; only with measures `unique` and `percentile`",
}
"""The columns of a metric's view, besides those of its key."""

TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "windows": (
        "A view over all metrics. Each row is one key in one window.",
        {
            "metric": "name of the metric",
            "size_s": "size of the window in seconds, 0 for `all`",
            "start_at": "when the window begins, in UTC",
            "k_hash": "hash of the key",
            "k1": "first column of the key as text; `*` without a key, `(other)` beyond `max_keys`",
            "k2": "second column of the key",
            "k3": "third column of the key",
            "count": "number of lines",
            "sum": "sum of the values",
            "min": "smallest value",
            "max": "largest value",
            "value": "what the measure gives",
            "quantiles": "JSON with `p50`, `p95` and `p99`",
            "hll": "sketch of the different values",
            "kll": "sketch of a percentile's values",
            "seq": "number of the merge that wrote the row last, modulo 2³²",
            "estimate": "1 if `value` is an estimate",
        },
    ),
    "unparsed": (
        "How many lines were not counted, by file and reason.",
        {
            "topic": "topic of the lines",
            "file_hash": "hash of the file's name",
            "reason": "why, such as `format:combined` or `expression_null:METRIC`",
            "file": "name of the file",
            "count": "number of lines",
        },
    ),
    "unparsed_lines": (
        "Samples of these lines, by file and day.",
        {
            "topic": "topic of the line",
            "part": "partition of the line",
            "offset": "offset of the line",
            "day": "day of its arrival, UTC",
            "file_hash": "as in `unparsed`",
            "reason": "as in `unparsed`",
            "line": "the line, at most 4,096 bytes",
        },
    ),
    "ledger": (
        "Up to which offset each partition is counted.",
        {
            "topic": "topic",
            "part": "partition",
            "end_offset": "everything below this offset is counted",
        },
    ),
    "metrics": (
        "The metrics that are counted, or were.",
        {
            "name": "name of the metric",
            "definition_hash": "hash of what gives the metric its meaning",
            "since": "when it was counted first, UTC",
            "measure": "its measure",
        },
    ),
    "metric_topics": (
        "The topics that each metric reads.",
        {"metric": "name of the metric", "topic": "topic"},
    ),
    "metric_ranges": (
        "The offsets that a metric has counted. A partition without a row is counted from its first"
        " line on.",
        {
            "metric": "name of the metric",
            "topic": "topic",
            "part": "partition",
            "start_offset": "first offset that is counted",
            "end_offset": "offset behind the last; NULL while the metric is counted",
        },
    ),
    "recounts": (
        "Recounts that are under way.",
        {
            "metric": "name of the metric",
            "topic": "topic",
            "part": "partition",
            "from_offset": "the first offset to count",
            "tries": "how many attempts began since lines were last counted",
            "problem": "why the recount was given up; NULL if it was not",
        },
    ),
    "keep_terms": (
        "From when on old windows are deleted, see [keep](metrics.md#how-long-windows-are-kept).",
        {
            "metric": "name of the metric",
            "size_s": "size of the windows in seconds",
            "keep_s": "how many seconds a window is kept after its end",
            "from_at": "when the first windows are deleted, UTC",
            "cells": "how many cells were older than that at the last start",
        },
    ),
    "archived": (
        "What the archive of raw lines holds.",
        {
            "topic": "topic",
            "part": "partition",
            "start_offset": "first offset of a piece",
            "end_offset": "offset behind its last",
            "until_ms": "the latest arrival in the piece, Unix milliseconds",
        },
    ),
    "window_sizes": (
        "The names of the window sizes.",
        {"size": "name, such as `1m`", "size_s": "seconds, 0 for `all`"},
    ),
    "window_keys": (
        "The windows that have cells.",
        {
            "metric": "name of the metric",
            "size_s": "size in seconds",
            "start_at": "when the window begins, UTC",
            "n_keys": "number of its keys",
            "seq": "number of the merge that changed it last",
            "window_number": "its number in `window_cells`, never used again",
        },
    ),
    "window_cells": (
        "The stored cells. Read the views instead: they compute what is not stored.",
        {
            "window_number": "number of the window in `window_keys`",
            "k_id": "identity of the key: `=` and its text, or `#` and its hash",
            "k1": "first column of the key, unless `k_id` has it",
            "k2": "second column of the key",
            "k3": "third column of the key",
            "count": "number of lines",
            "sum": "sum of the values",
            "min": "smallest value",
            "max": "largest value",
            "value": "value of `unique` and `percentile`; others are computed",
            "quantiles": "as in `windows`",
            "hll": "as in `windows`",
            "kll": "as in `windows`",
            "seq": "as in `windows`",
        },
    ),
    "sink_guard": (
        "The one writer that may write, and its last batch.",
        {
            "id": "always 1",
            "query_id": "id of the stream's query",
            "epoch": "number of the stream's start; a writer of an older one is refused",
            "batch_id": "number of the last batch",
            "seq": "number of the last merge",
        },
    ),
    "schema_version": (
        "The version of these tables.",
        {"id": "always 1", "version": "the version"},
    ),
}


class RedisKey(NamedTuple):
    """A key of Redis: its type, its content, and a command that reads it."""

    type: str
    holds: str
    example: str


REDIS_KEYS = {
    "mill:<metric>:<size>": RedisKey(
        "hash",
        "the latest window that is not more than an hour ahead: key → value. `@start` says which"
        " window it is",
        "HGETALL mill:requests_by_status:1m",
    ),
    "mill:<metric>:<size>:<start>": RedisKey(
        "hash",
        "one window, named by its start in UTC; it expires after `keep.redis`",
        "HGETALL mill:requests_by_status:1m:20260801T100000Z",
    ),
    "mill:<metric>:all": RedisKey(
        "hash",
        "the totals since the beginning, for metrics with `all` among their windows",
        "HGETALL mill:requests_by_status:all",
    ),
    "…:top": RedisKey(
        "sorted set",
        "the ranking beside each of these hashes, for metrics with `top`",
        "ZREVRANGE mill:top_paths:all:top 0 9 WITHSCORES",
    ),
    "mill:meta": RedisKey("hash", "facts about the last merge", "HGETALL mill:meta"),
    "mill:updates": RedisKey(
        "channel",
        'one JSON message for each merge: `{"batch", "seq", "changed": [{"metric", "size",'
        ' "start"}]}`; `changed_count` if more windows changed than are named',
        "SUBSCRIBE mill:updates",
    ),
    "mill:guard": RedisKey("hash", "the one writer that may write", "HGETALL mill:guard"),
    "mill:ledger": RedisKey(
        "hash",
        "without MySQL: `topic-partition` → everything below this offset is counted",
        "HGETALL mill:ledger",
    ),
    "mill:definitions": RedisKey(
        "hash",
        "without MySQL: metric → JSON with the hash of its definition and its beginning",
        "HGETALL mill:definitions",
    ),
    "mill:state:<metric>:<size>:<start>": RedisKey(
        "hash",
        "without MySQL: the cells of a window with everything that later lines need",
        "HLEN mill:state:visitors:all",
    ),
    "mill:state_version": RedisKey(
        "string", "without MySQL: the version of these cells", "GET mill:state_version"
    ),
    "mill:unparsed": RedisKey(
        "hash", "without MySQL: how many lines were not counted", "HGETALL mill:unparsed"
    ),
    "mill:unparsed_lines:<day>": RedisKey(
        "hash", "without MySQL: samples of these lines", "HLEN mill:unparsed_lines:2026-08-01"
    ),
}

MORE_OF_KEY = {
    "mill:state:": "mill:state:<metric>:<size>:<start>",
    "mill:unparsed_lines:": "mill:unparsed_lines:<day>",
}
"""The rest of each key, after the prefix that the source has."""

META_FIELDS = {
    "updated_at": "when the last merge was written, UTC",
    "batch": "number of the last batch",
    "lines": "lines in this batch",
    "lag": "offsets that were not counted yet, or `unknown`",
    "rebuilding": "`1` while Redis is filled again from MySQL",
}

VALUE_FIELDS = {
    "<key>": "the value; the columns of a longer key are joined by `|`",
    "<key>.p50": "measure `percentile`: the median",
    "<key>.p95": "measure `percentile`: the 95th percentile",
    "<key>.p99": "measure `percentile`: the 99th percentile",
    "<key>.count": "measure `percentile`: the number of values",
    "@start": "only in `mill:<metric>:<size>`: the start of the window",
}
