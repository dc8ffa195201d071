"""Writes the same traffic in every format, and defines the metrics that compare formats and
measures.

Each format has the columns path, status, bytes and client, under its own names. Syslog has no such
columns, so it carries the path as its program, the client as its host, and size or status as the
process id.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from bench.straight import Measure, Metric
from bench.traffic import ADDRESSES, PATHS, STATUSES, Drawn, address_of, path_of

WINDOWS = ("1m", "1h", "all")
NAME = "measured"
TIME = "%Y-%m-%dT%H:%M:%SZ"
ERRORS_FROM = 500

Line = Callable[[str, str, str, str, str], str]


@dataclass(frozen=True, slots=True)
class Format:
    """One format: the keys of its configuration section, a function that makes a line, and column
    names.

    The function takes time, client, path, status and size. It is None for the combined format,
    because the traffic already has that format. `size` is the column of the size or of its
    substitute.
    """

    section: Mapping[str, Any]
    line: Line | None
    path: str = "path"
    status: str = "status"
    size: str = "bytes"
    client: str = "client"


def _pair(type_: str, *names: str) -> dict[str, str]:
    return {name: f"{name} {type_}" for name in names}


COLUMNS = {
    **_pair("string", "client", "path"),
    **_pair("int", "status"),
    **_pair("bigint", "bytes"),
}
FORMATS: Mapping[str, Format] = {
    "json": Format(
        {"format": "json", "time": "ts", "columns": COLUMNS},
        lambda time, client, path, status, size: (
            f'{{"ts":"{time}","client":"{client}","path":"{path}","status":{status},'
            f'"bytes":{size if size != "-" else "null"}}}'
        ),
    ),
    "logfmt": Format(
        {"format": "logfmt", "time": "ts", "columns": COLUMNS},
        lambda time, client, path, status, size: (
            f'ts={time} level=info msg="request done" client={client} path={path} '
            f"status={status} bytes={size}"
        ),
    ),
    "csv": Format(
        {
            "format": "csv",
            "time": "1",
            "columns": {
                name: f"{place} {type_}"
                for place, (name, type_) in enumerate(
                    {
                        "client": "string",
                        "path": "string",
                        "status": "int",
                        "bytes": "bigint",
                    }.items(),
                    2,
                )
            },
        },
        lambda time, client, path, status, size: f'{time},{client},"{path}",{status},{size}',
    ),
    "syslog": Format(
        {"format": "syslog"},
        lambda time, client, path, status, size: (
            f"<134>1 {time} {client} {path} {size} - - answered with {status}"
        ),
        path="program",
        status="int(right(message, 3))",
        size="pid",
        client="host",
    ),
    "regex": Format(
        {
            "format": "regex",
            "pattern": r"^(?<when>\S+) (?<client>\S+) (?<path>\S+) (?<status>\d+) (?<bytes>\S+)$",
            "time": "when",
            "columns": {"status": "status int", "bytes": "bytes bigint"},
        },
        lambda time, client, path, status, size: f"{time} {client} {path} {status} {size}",
    ),
    "combined": Format({"format": "combined"}, None, client="remote_addr"),
}

MEASURES: tuple[Measure, ...] = ("count", "sum", "mean", "share", "unique", "percentile")


def section(name: str, measure: Measure, topic: str) -> dict[str, Any]:
    """Return the stream's section for one metric over one input."""
    given = FORMATS[name]
    value = {
        "count": None,
        "share": f"{given.status} >= {ERRORS_FROM}",
        "unique": given.client,
    }.get(measure, given.size)
    metric = {"name": NAME, "from": "lines", "key": given.path, "measure": measure}
    return {
        "from": {"lines": {"topic": topic, **given.section}},
        # The lines are old, so MySQL must keep windows of every age.
        "defaults": {"windows": list(WINDOWS), "keep": {"mysql": "forever"}},
        "metrics": [metric if value is None else {**metric, "value": value}],
    }


def metric(measure: Measure) -> Metric:
    """Return the expected metric over drawn lines."""
    values: Mapping[Measure, Callable[[Drawn], Any] | None] = {
        "count": None,
        "share": lambda drawn: (_STATUS_NUMBERS[drawn.status] >= ERRORS_FROM).astype(np.int64),
        "unique": lambda drawn: drawn.address,
    }
    value = values.get(measure, lambda drawn: drawn.size)
    return Metric(NAME, measure, _PATHS, lambda drawn: drawn.path, value)


def lines(name: str, drawn: Drawn, combined: bytes) -> Iterator[bytes]:
    """Return the drawn lines in a format, without line ends."""
    line = FORMATS[name].line
    if line is None:
        yield from combined.splitlines()
        return
    clocks: dict[int, str] = {}
    columns = (drawn.second, drawn.address, drawn.path, drawn.status, drawn.size)
    for second, address, path, status, size in zip(*(c.tolist() for c in columns), strict=True):
        clock = clocks.get(second)
        if clock is None:
            clock = clocks[second] = datetime.fromtimestamp(second, UTC).strftime(TIME)
        told = str(size) if size >= 0 else "-"
        yield line(clock, _ADDRESSES[address], _PATHS[path], STATUSES[status], told).encode()


_PATHS = [path_of(place) for place in range(PATHS)]
_ADDRESSES = [address_of(place) for place in range(ADDRESSES)]
_STATUS_NUMBERS = np.array([int(status) for status in STATUSES])
