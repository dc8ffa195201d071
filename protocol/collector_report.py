"""The report of a collector about itself: the records of the topic `millrace.collectors`.

This module is pure. A collector of a trust group sends its report every REPORT_EVERY_MS. The record
key is the instance's name, and the topic is compacted, so a reader finds the last report of each
collector. A report comes from another host, which can be older, newer or captured. So a reader
checks every value, and keeps the keys that it does not know.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from protocol.status import Problem

COLLECTORS_TOPIC = "millrace.collectors"
HOST_HEADER = "millrace.host"
"""The header with the name of a collector that has a trust group, on each record of its lines."""
REPORT_EVERY_MS = 10_000
STOPPED = "stopped"
"""The state of a collector that has ended cleanly."""
FENCED = "fenced"
"""The code of the problem of a collector that ended because another has its instance name."""

FORMAT = 1
PROBLEMS_MAX = 5
"""The most problems in a report; `problems_total` counts all of them."""
TEXT_CHARS_MAX = 200
REPORT_BYTES_MAX = 16 << 10
"""A reader ignores longer values. A report of this program has about 2 KiB."""


class UnreadableReport(ValueError):
    """The error for a value that is not a report. Its text says why."""


@dataclass(frozen=True, slots=True)
class CollectorReport:
    """The report of one collector at `at_ms`, by its own clock. Times are Unix milliseconds.

    `state` is a PartState or STOPPED. `skew_ms` is the brokers' time minus the collector's own, and
    None before the first answer. `last_commit_ms` is by the collector's clock. `more` has the keys
    that this version does not know.
    """

    instance: str
    group: str
    host: str
    version: str
    state: str
    at_ms: int
    started_at_ms: int
    problems: tuple[Problem, ...] = ()
    problems_total: int = 0
    files: int = 0
    lag_bytes: int = 0
    held_deleted_bytes: int = 0
    lines_total: int = 0
    last_commit_ms: int | None = None
    commit_interval_ms: int = 0
    skew_ms: int | None = None
    more: Mapping[str, object] = field(default_factory=dict)


def encode(report: CollectorReport) -> bytes:
    """Return the record value of a report. Long texts are cut, and further problems left out."""
    value = dict(report.more) | {
        name: getattr(report, name) for name in (*_NUMBERS, *_OPTIONAL_NUMBERS)
    }
    value |= {name: getattr(report, name)[:TEXT_CHARS_MAX] for name in _TEXTS}
    value["v"] = FORMAT
    value["problems"] = [
        {"code": one.code[:TEXT_CHARS_MAX], "text": one.text[:TEXT_CHARS_MAX]}
        for one in report.problems[:PROBLEMS_MAX]
    ]
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="replace")


def decode(value: bytes) -> CollectorReport:
    """Return the report in a record value. A missing key has its default. Raises
    UnreadableReport."""
    if len(value) > REPORT_BYTES_MAX:
        raise UnreadableReport(f"found {len(value)} bytes, expected at most {REPORT_BYTES_MAX}")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise UnreadableReport(f"found no JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("v"), int):
        raise UnreadableReport("found no object with the key v")
    texts = {name: _text(found.pop(name, "")) for name in _TEXTS}
    if not texts["instance"]:
        raise UnreadableReport("found no instance")
    numbers = {name: _number(found.pop(name, None)) or 0 for name in _NUMBERS}
    optional = {name: _number(found.pop(name, None)) for name in _OPTIONAL_NUMBERS}
    problems = _problems(found.pop("problems", None))
    del found["v"]
    more: dict[str, Any] = {**texts, **numbers, **optional}
    return CollectorReport(**more, problems=problems, more=found)


_TEXTS = ("instance", "group", "host", "version", "state")
_NUMBERS = (
    "at_ms",
    "started_at_ms",
    "problems_total",
    "files",
    "lag_bytes",
    "held_deleted_bytes",
    "lines_total",
    "commit_interval_ms",
)
_OPTIONAL_NUMBERS = ("last_commit_ms", "skew_ms")
_NUMBER_MAX = 1 << 62


def _text(value: object) -> str:
    if not isinstance(value, str):
        return ""
    # JSON can have half of a surrogate pair. No page, answer or metric can be encoded with it.
    return value[:TEXT_CHARS_MAX].encode(errors="replace").decode()


def _number(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _NUMBER_MAX:
        return None
    return value


def _problems(value: object) -> tuple[Problem, ...]:
    listed = value if isinstance(value, list) else []
    return tuple(
        Problem(_text(one.get("code")), _text(one.get("text")))
        for one in listed[:PROBLEMS_MAX]
        if isinstance(one, dict)
    )
