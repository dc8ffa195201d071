"""The values of a snapshot as text for people.

This module is pure. An unknown value is always shown as "unknown" with its reason, never as 0 or
-1. A sum with unknown summands begins with "≥" and says how many of them are known.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from monitor.lag.reader_status import BAD, WARN, ReaderStatus
from monitor.lag.rules import Bound, CellState, LagSum, TimeLag
from monitor.state.snapshot import GroupView, LagCell, MemberView, PartView
from sinks.read import METRIC_FAULT

UNKNOWN = "unknown"
KEEPS_UP_MS = 10_000
ETA_SHOWN_S_MAX = 86_400
DAY_MS = 86_400_000
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_STATE_TEXTS = {
    CellState.OK: "ok",
    CellState.LOST: "records lost to retention",
    CellState.PAST_END: "commit past the end",
    CellState.NO_COMMIT: "nothing committed",
    CellState.END_UNKNOWN: "end unknown",
    CellState.DELETED: "topic deleted",
}


def number(value: float | None) -> str:
    """Return a count with thousands separators; `unknown` for None."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return UNKNOWN
    return f"{value:,.0f}"


def rate(value: object) -> str:
    """Return a number a second, with one decimal below ten."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "measuring"
    return f"{value:,.1f}/s" if abs(value) < 10 else f"{value:,.0f}/s"


def size(value: object) -> str:
    """Return bytes in binary units."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return UNKNOWN
    amount = float(value)
    for unit in _SIZES:
        if abs(amount) < 1024 or unit == _SIZES[-1]:
            return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable, because the last unit has no upper limit")


def duration(milliseconds: float | None) -> str:
    """Return a length of time in its two greatest units: `3.2 s`, `4 min 10 s`, `2 d 3 h`."""
    if milliseconds is None:
        return UNKNOWN
    seconds = milliseconds / 1000
    # 59.96 seconds are shown as a minute, and 9.96 seconds as ten.
    if round(seconds) < 60:
        is_whole = round(seconds, 1) >= 10 or seconds == int(seconds)
        return f"{seconds:.0f} s" if is_whole else f"{seconds:.1f} s"
    whole = max(60, int(seconds))
    for unit, length, sub, sub_length in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= length:
            rest = whole % length // sub_length
            return f"{whole // length} {unit}" + (f" {rest} {sub}" if rest else "")
    raise AssertionError("unreachable, because 60 seconds are shown as a minute")


def percent(share: float) -> str:
    """Return a share in per cent."""
    return f"{share * 100:.0f} %"


def micros(value: object) -> str:
    """Return microseconds as `85 µs` or `1.2 ms`, from a second on as `duration` does."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return UNKNOWN
    if value < 1_000:
        return f"{value:,.0f} µs"
    if value < 1_000_000:
        return f"{value / 1_000:,.1f} ms"
    return duration(value / 1_000)


def clock(at_ms: object) -> str:
    """Return a time as RFC 3339 in UTC, to the second."""
    if not isinstance(at_ms, int | float) or isinstance(at_ms, bool):
        return UNKNOWN
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock_time(at_ms: object) -> str:
    """Return the time of day in UTC. It has no zone, because each page says once that times are
    UTC.
    """
    if not isinstance(at_ms, int | float) or isinstance(at_ms, bool):
        return UNKNOWN
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S")


def moment(at_ms: int) -> str:
    """Return a record's time in UTC, to the millisecond; the number itself if it is outside the
    calendar.
    """
    if at_ms < 0:
        return "none"
    try:
        when = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
    return f"{when:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03d}"


def counted(count: int, name: str) -> str:
    """Return a count with its noun, whose plural ends in s: "1 file", "1,200 files"."""
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


_TITLES = {"mysql": "MySQL", "redis": "Redis", "collector": "The collector", "stream": "The stream"}


def part_title(name: str) -> str:
    """Return a part's name with a capital, for the beginning of a sentence."""
    return _TITLES.get(name, name[:1].upper() + name[1:].replace("-", " "))


def cell_state(state: CellState) -> str:
    """Return a cell's state in words."""
    return _STATE_TEXTS[state]


_STATUS_WORDS = {
    ReaderStatus.NO_COMMIT: "no commit",
    ReaderStatus.EMPTY_LAGGING: "empty, lagging",
    ReaderStatus.LOST: "lost records",
}


def status_word(status: ReaderStatus) -> str:
    """Return a reader's status in words."""
    return _STATUS_WORDS.get(status, str(status))


def status_level(status: ReaderStatus) -> str:
    """Return the level of a reader's status: good, idle, unknown, warn, bad."""
    if status in BAD:
        return "bad"
    if status in WARN:
        return "warn"
    if status is ReaderStatus.OK:
        return "good"
    return "idle" if status is ReaderStatus.EMPTY else "unknown"


def lag_sum(total: LagSum) -> str:
    """Return a sum with its coverage: `1,204`, or `≥ 1,204 (8 of 10 known)`."""
    if total.known == 0:
        return UNKNOWN if total.total else "0"
    if total.complete:
        return number(total.lag)
    return f"≥ {number(total.lag)} ({total.known} of {total.total} known)"


def age(value: TimeLag) -> str:
    """Return a time lag as text, with a sign if it is a bound: `3.2 s`, `> 30 min`, `measuring`."""
    if value.bound is Bound.AT_LEAST:
        return f"> {duration(value.age_ms)}"
    if value.bound is Bound.MEASURING:
        return "measuring"
    text = duration(value.age_ms)
    return f"about {text}" if value.bound is Bound.ABOUT else text


def cell_lag(cell: LagCell, now_ms: int) -> str:
    """Return a cell's lag, or why it has none."""
    if cell.lag.lag is not None:
        return number(cell.lag.lag)
    if cell.state is CellState.PAST_END:
        return f"commit {number(cell.lag.past_end)} past the end"
    if cell.state is CellState.NO_COMMIT:
        return f"no commit, {number(cell.lag.backlog)} held"
    if cell.state is CellState.END_UNKNOWN and cell.last_lag is not None:
        ago = duration(now_ms - (cell.last_lag_at_ms or now_ms))
        return f"unknown (was {number(cell.last_lag)}, {ago} ago)"
    return UNKNOWN


def eta(group: GroupView) -> str:
    """Return when the group will have caught up, or why that is not known.

    A reader of a busy topic always has some unread records. It keeps up as long as these are young.
    """
    if group.total.known and group.total.lag == 0:
        return "caught up" if group.total.complete else "caught up where known"
    age = group.time_lag
    is_young = age.age_ms is not None and age.age_ms <= KEEPS_UP_MS
    if is_young and group.judged.status not in BAD and (group.eta_s or 0) <= KEEPS_UP_MS / 1000:
        return "keeps up"
    if group.eta_s is not None:
        return "> 24 h" if group.eta_s >= ETA_SHOWN_S_MAX else duration(group.eta_s * 1000)
    status = group.judged.status
    if status is ReaderStatus.GROWING:
        return "growing"
    if status is ReaderStatus.MEASURING or not group.total.known:
        return "measuring" if group.total.known else UNKNOWN
    if not group.total.complete and status not in BAD:
        return UNKNOWN
    return "not draining"


def health(part: PartView) -> str:
    """Return one word for the state of a part. A part that has work but finishes none of it is not
    "up".
    """
    if part.supervised == "failed":
        return "failed"
    if not part.reachable:
        return part.supervised if part.supervised in ("starting", "waiting") else "down"
    if part.stuck is not None:
        return "stuck"
    if part.ready and part.state == "running":
        return "up"
    return part.state if part.state != "running" else "not ready"


def health_level(part: PartView) -> str:
    """Return the level of a part's state: good, warn, bad."""
    word = health(part)
    return {"up": "good", "down": "bad", "failed": "bad", "stuck": "bad"}.get(word, "warn")


def part_says(part: PartView, now_ms: int) -> str:
    """Return the text about a part; the part's own text if its status has one."""
    said = []
    if part.stuck is not None:
        said.append(part.stuck.text(now_ms))
    if part.words is not None and health(part) != "up":
        said.append(f"it said: {part.words}")
    if part.error is not None:
        said.append(part.error)
    said += part.problems
    if part.turn is not None:
        said.append(part.turn)
    if part.restarts:
        said.append(f"started again {counted(part.restarts, 'time')}")
    return "; ".join(said)


def file_rows(part: PartView | None) -> list[dict[str, object]]:
    """Return the collector's files, largest lag first."""
    files = part.details.get("files") if part else None
    return [dict(row) for row in files if isinstance(row, dict)] if isinstance(files, list) else []


def read_by(group: GroupView) -> str:
    """Return the readers of a group in words."""
    if group.kind == "stream":
        return "Spark's progress"
    if group.members is None:
        return UNKNOWN
    if not group.members:
        return "no members"
    return counted(len(group.members), "member")


def group_facts(group: GroupView) -> list[tuple[str, str]]:
    """Return the names and values of the facts on a group's page."""
    state = "read by Spark" if group.kind == "stream" else group.state
    return [
        ("State", state),
        ("Lag, offsets", lag_sum(group.total)),
        ("Oldest unread", age(group.time_lag)),
        ("Reads", rate(group.read_rate)),
        ("Written", rate(group.write_rate)),
        ("Caught up in", eta(group)),
        ("Members", read_by(group)),
        ("Coordinator", UNKNOWN if group.coordinator is None else f"broker {group.coordinator}"),
        ("Assignor", group.assignor or "–"),
    ]


def looked(group: GroupView, now_ms: int) -> str:
    """Return how old a group's values are; empty if the group was polled in the last cycle."""
    ago_ms = now_ms - (group.looked_at_ms or now_ms)
    return f"as of {duration(ago_ms)} ago" if ago_ms > 0 else ""


def assignment(member: MemberView) -> str:
    """Return the partitions that a member reads, as `logs.access 0, 1; orders 2`."""
    topics: dict[str, list[str]] = {}
    for topic, partition in member.assignment:
        topics.setdefault(topic, []).append(str(partition))
    return "; ".join(f"{topic} {', '.join(some)}" for topic, some in topics.items()) or "nothing"


def last_commit(cell: LagCell, now_ms: int) -> str:
    """Return when a commit last moved while the monitor was running."""
    if cell.committed_offset is None:
        return "never"
    if cell.moved_at_ms is None:
        return UNKNOWN
    return f"moved {duration(now_ms - cell.moved_at_ms)} ago"


def event_time(at_ms: int, now_ms: int) -> str:
    """Return the time of day for events of the last day, with the date for older ones."""
    if now_ms - at_ms < DAY_MS:
        return clock_time(at_ms)
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def broker_facts(part: PartView) -> list[tuple[str, str]]:
    """Return the facts from a broker's own status that are shown next to its charts."""
    told = part.details
    durable = {"ack": "before ack", "interval": "at intervals"}
    return [
        ("On disk", size(told.get("log_bytes"))),
        ("Durable", durable.get(str(told.get("flush")), UNKNOWN)),
        ("Sync, mean", micros(told.get("flush_us"))),
        ("Loop late, most", micros(told.get("loop_late_us_max"))),
        ("Connections", count(told.get("connections"))),
        ("Waiting writes", count(told.get("parked_produces"))),
        ("Waiting fetches", count(told.get("parked_fetches"))),
        ("Waiting to join", count(told.get("parked_joins"))),
        ("Requests served", count(told.get("requests_total"))),
    ]


def count(value: object) -> str:
    """Return a whole number that a part reports, or `unknown`."""
    return number(value) if isinstance(value, int) and not isinstance(value, bool) else UNKNOWN


def counted_up(value: object) -> str:
    """Return a batch number or an epoch as text. The value -1 means that there was none yet."""
    return f"{value:,}" if isinstance(value, int) and value >= 0 else "none yet"


FORMAT_FAULT = "format:"
"""The beginnings of the reasons for lines that do not have their input's format."""


def to_detect(rows: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the path of the file with the most lines that do not match their input's format; None
    if there is no such file.
    """
    wrong = [row for row in rows if str(row.get("reason")).startswith(FORMAT_FAULT)]
    if not wrong:
        return None
    key = str(max(wrong, key=lambda row: row.get("count") or 0).get("file"))
    return key if key.startswith("/") else f"watched/{key}"


def reason(text: object) -> str:
    """Return the reason why lines were not counted, as text for people."""
    said = str(text)
    if said.startswith(METRIC_FAULT):
        return f"{said.removeprefix(METRIC_FAULT)} could not be measured (a fault of this metric)"
    return said.replace("_", " ")
