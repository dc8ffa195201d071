"""One frame of `top`: parts with resources and rates, readers with their lag.

This module is pure. The rows come from the supervisor, the parts and the monitor. If the monitor
does not answer, the values that only it has are null, and are shown as unknown and never as 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.output import duration_text, size_text, utc_text

Row = dict[str, Any]
Table = tuple[list[str], list[list[str]], frozenset[int]]

UNKNOWN = "unknown"

RATES = {
    "collector": ("rate_lines_s", "lines/s"),
    "stream": ("rows_per_second", "lines/s"),
    "broker": ("bytes_in_per_s", "B/s in"),
}
"""For the beginning of each part's name, the detail of the part's status that is its rate, and the
unit of the rate."""

WARNING_LEVELS = ("bad", "warn")


@dataclass(frozen=True, slots=True)
class MonitorAnswer:
    """The monitor's answer: parts, groups and findings as in its API, or why it did not answer.

    `groups` is None if the brokers did not answer the monitor and it knows no group.
    """

    parts: Sequence[Mapping[str, Any]] = ()
    groups: Sequence[Mapping[str, Any]] | None = ()
    findings: Sequence[Mapping[str, Any]] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, in Unix milliseconds; `readers` is None if the monitor knows none."""

    at_ms: int
    parts: list[Row]
    readers: list[Row] | None
    warnings: list[str]

    @property
    def data(self) -> Row:
        """Return the frame as plain values for programs."""
        return {"parts": self.parts, "readers": self.readers, "warnings": self.warnings}


def frame_of(
    at_ms: int,
    rows: Sequence[Row],
    errors: Sequence[str],
    told: MonitorAnswer,
    before: Frame | None,
) -> Frame:
    """Build the frame that follows the frame `before`. The first frame has no CPU shares."""
    details = {
        str(part["part"]): part.get("details") or {} for part in told.parts if part.get("reachable")
    }
    earlier = {row["part"]: row for row in before.parts} if before is not None else {}
    elapsed_s = (at_ms - before.at_ms) / 1000 if before is not None else 0.0
    parts = [
        {
            "part": row["part"],
            "state": row["state"],
            "pid": row["pid"],
            "uptime_ms": row["uptime_ms"],
            "restarts": row["restarts"],
            "cpu_share": _cpu_share(earlier.get(row["part"]), row, elapsed_s),
            "cpu_s": row["cpu_s"],
            "memory_bytes": row["memory_bytes"],
            "rate": _rate(row["part"], details),
            "rate_unit": RATES.get(_kind(row["part"]), (None, None))[1],
            "note": row["reason"],
        }
        for row in rows
    ]
    warnings = list(errors)
    warnings += [str(one["text"]) for one in told.findings if one.get("level") in WARNING_LEVELS]
    if told.problem is not None or told.groups is None:
        problem = told.problem or "no lag is known: the brokers do not answer"
        # If the mill does not run, each part would give the same warning, so leave these out.
        warnings = [*(text for text in warnings if not problem.endswith(text)), problem]
        return Frame(at_ms, parts, None, warnings)
    return Frame(at_ms, parts, [_reader(group) for group in told.groups], warnings)


def _kind(part: str) -> str:
    return part.partition("-")[0]


def _rate(part: str, details: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return what a part processes per second, from its last status; None if it is not known."""
    key, _ = RATES.get(_kind(part), ("", ""))
    value = details.get(part, {}).get(key)
    return float(value) if isinstance(value, int | float) else None


def _cpu_share(before: Row | None, now: Row, elapsed_s: float) -> float | None:
    """Return the number of cores that a part used between two frames; None if its process has
    changed."""
    if before is None or before["pid"] != now["pid"] or elapsed_s <= 0:
        return None
    if before["cpu_s"] is None or now["cpu_s"] is None:
        return None
    used_s = float(now["cpu_s"] - before["cpu_s"])
    return round(max(0.0, used_s) / elapsed_s, 3)


def _reader(group: Mapping[str, Any]) -> Row:
    return {
        key: group.get(key)
        for key in (
            "group", "status", "lag", "known", "partitions", "time_lag_ms", "eta_s", "read_rate",
            "write_rate",
        )
    }  # fmt: skip


def head_of(frame: Frame) -> str:
    """Return the line above the tables."""
    well = sum(1 for row in frame.parts if row["state"] == "healthy")
    return f"millrace  {utc_text(frame.at_ms)}  {well} of {len(frame.parts)} parts healthy"


def parts_table(frame: Frame) -> Table:
    """Return the table of the parts: state, resources and rate."""
    heads = ["PART", "STATE", "UPTIME", "RESTARTS", "CPU", "MEMORY", "RATE", "NOTE"]
    rows = [
        [
            row["part"],
            row["state"],
            duration_text(row["uptime_ms"]),
            "-" if row["restarts"] is None else str(row["restarts"]),
            "-" if row["cpu_share"] is None else f"{row['cpu_share']:.0%}",
            size_text(row["memory_bytes"]),
            _rate_text(row["rate"], row["rate_unit"]),
            row["note"],
        ]
        for row in frame.parts
    ]
    return heads, rows, frozenset({2, 3, 4, 5, 6})


def readers_table(frame: Frame) -> Table:
    """Return the table of the groups: lag in messages and in time, and rate."""
    heads = ["READER", "STATUS", "LAG", "TIME_LAG", "ETA", "READ", "WRITTEN"]
    rows = [
        [
            str(row["group"]),
            str(row["status"] or UNKNOWN),
            lag_text(row),
            UNKNOWN if row["time_lag_ms"] is None else duration_text(row["time_lag_ms"]),
            "-" if row["eta_s"] is None else duration_text(row["eta_s"] * 1000),
            _rate_text(row["read_rate"], "/s"),
            _rate_text(row["write_rate"], "/s"),
        ]
        for row in frame.readers or ()
    ]
    return heads, rows, frozenset({2, 3, 4, 5, 6})


def lag_text(row: Row) -> str:
    """Format a group's lag; with unknown partitions, as a lower bound."""
    if row["lag"] is None:
        return UNKNOWN
    return f"{row['lag']:,}" if row["known"] == row["partitions"] else f"≥ {row['lag']:,}"


def _rate_text(rate: float | None, unit: str | None) -> str:
    if unit is None:
        return "-"
    if rate is None:
        return UNKNOWN
    number = f"{rate:,.1f}" if 0 < rate < 10 else f"{rate:,.0f}"
    return f"{number}{unit}" if unit.startswith("/") else f"{number} {unit}"
