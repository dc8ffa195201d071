"""How a snapshot's values read: texts for people, rows for the API. Pure.

One rule throughout: what is not known is "unknown" with its reason, never 0, never -1; a sum with
missing parts begins with "≥" and says how many of how many are known.
"""

import math
from datetime import UTC, datetime

from monitor.lag import Bound, CellState, LagSum, TimeLag
from monitor.reader_status import BAD, WARN, ReaderStatus
from monitor.snapshot import GroupView, LagCell, PartView, Snapshot, TopicView

UNKNOWN = "unknown"
KEEPS_UP_MS = 10_000
ETA_SHOWN_S_MAX = 86_400
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
    """A count with thousands separators; `unknown` for None."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return UNKNOWN
    return f"{value:,.0f}"


def rate(value: object) -> str:
    """A number a second: one decimal below ten."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "measuring"
    return f"{value:,.1f}/s" if abs(value) < 10 else f"{value:,.0f}/s"


def size(value: object) -> str:
    """Bytes in binary units."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return UNKNOWN
    amount = float(value)
    for unit in _SIZES:
        if abs(amount) < 1024 or unit == _SIZES[-1]:
            return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1024
    raise AssertionError("the last unit takes every amount")


def duration(milliseconds: float | None) -> str:
    """A length of time in its two greatest units: `0 s`, `3.2 s`, `4 min 10 s`, `2 d 3 h`."""
    if milliseconds is None:
        return UNKNOWN
    seconds = milliseconds / 1000
    if seconds < 60:
        return "0 s" if seconds == 0 else f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = int(seconds)
    for unit, length, sub, sub_length in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= length:
            rest = whole % length // sub_length
            return f"{whole // length} {unit}" + (f" {rest} {sub}" if rest else "")
    raise AssertionError("60 seconds are a minute")


def micros(value: object) -> str:
    """A short time given in microseconds: `85 µs`, `1.2 ms`, from a second on as `duration`."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return UNKNOWN
    if value < 1_000:
        return f"{value:,.0f} µs"
    if value < 1_000_000:
        return f"{value / 1_000:,.1f} ms"
    return duration(value / 1_000)


def clock(at_ms: object) -> str:
    """A moment as RFC 3339 in UTC, to the second."""
    if not isinstance(at_ms, int | float) or isinstance(at_ms, bool):
        return UNKNOWN
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cell_state(state: CellState) -> str:
    """A cell's state in words."""
    return _STATE_TEXTS[state]


_STATUS_WORDS = {
    ReaderStatus.NO_COMMIT: "no commit",
    ReaderStatus.EMPTY_LAGGING: "empty, lagging",
    ReaderStatus.LOST: "lost records",
}


def status_word(status: ReaderStatus) -> str:
    """A reader's status in words."""
    return _STATUS_WORDS.get(status, str(status))


def status_level(status: ReaderStatus) -> str:
    """How bad a reader's status is: good, idle, unknown, warn, bad."""
    if status in BAD:
        return "bad"
    if status in WARN:
        return "warn"
    if status is ReaderStatus.OK:
        return "good"
    return "idle" if status is ReaderStatus.EMPTY else "unknown"


def lag_sum(total: LagSum) -> str:
    """A sum with its coverage: `1,204`, or `≥ 1,204 (8 of 10 known)`."""
    if total.known == 0:
        return UNKNOWN if total.total else "0"
    if total.complete:
        return number(total.lag)
    return f"≥ {number(total.lag)} ({total.known} of {total.total} known)"


def age(value: TimeLag) -> str:
    """A time lag with its bound: `3.2 s`, `> 30 min`, `measuring`."""
    if value.bound is Bound.AT_LEAST:
        return f"> {duration(value.age_ms)}"
    if value.bound is Bound.MEASURING:
        return "measuring"
    text = duration(value.age_ms)
    return f"about {text}" if value.bound is Bound.ABOUT else text


def cell_lag(cell: LagCell, now_ms: int) -> str:
    """A cell's lag, or what there is to say instead."""
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
    """When the group will have caught up, or why that is not said.

    A live reader always has a little before it: as long as that is young, it keeps up.
    """
    if group.total.known and group.total.lag == 0:
        return "caught up" if group.total.complete else "caught up where known"
    if group.eta_s is not None:
        return "> 24 h" if group.eta_s >= ETA_SHOWN_S_MAX else duration(group.eta_s * 1000)
    status = group.judged.status
    if status is ReaderStatus.GROWING:
        return "growing"
    age = group.time_lag
    if age.age_ms is not None and age.age_ms <= KEEPS_UP_MS and status not in BAD:
        return "keeps up"
    if status is ReaderStatus.MEASURING or not group.total.known:
        return "measuring" if group.total.known else UNKNOWN
    return "not draining"


def health(part: PartView) -> str:
    """One word for a part; a part that finishes nothing though it has work is not up."""
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
    """How bad that word is: good, warn, bad."""
    word = health(part)
    return {"up": "good", "down": "bad", "failed": "bad", "stuck": "bad"}.get(word, "warn")


def part_says(part: PartView, now_ms: int) -> str:
    """What there is to say of a part, in its own words where it has some."""
    said = []
    if part.stuck is not None:
        said.append(part.stuck.text(now_ms))
    if part.words is not None and health(part) != "up":
        said.append(f"it said: {part.words}")
    if part.error is not None:
        said.append(part.error)
    said += part.problems
    if part.restarts:
        said.append(f"started again {part.restarts} times")
    return "; ".join(said)


def sparkline(values: tuple[int, ...], width: int = 120, height: int = 24) -> str:
    """`points` of an SVG polyline over the values, from 0 at the bottom to their maximum."""
    if len(values) < 2:
        return ""
    top = max(max(values), 1)
    step = width / (len(values) - 1)
    return " ".join(
        f"{index * step:.1f},{height - 1 - value / top * (height - 2):.1f}"
        for index, value in enumerate(values)
    )


def lag_rows(snapshot: Snapshot, per: str = "partition") -> list[dict[str, object]]:
    """Lag as plain rows, `per` partition, topic or group; sorted; unknown is null."""
    rows: list[dict[str, object]] = []
    for group in snapshot.groups:
        if per == "group":
            rows.append({"group": group.group_id, "state": group.state, **_sum_row(group)})
        elif per == "topic":
            rows.extend(_topic_rows(group))
        else:
            rows.extend(_cell_row(group, cell) for cell in group.cells)
    return rows


def _sum_row(group: GroupView) -> dict[str, object]:
    return {
        "lag": group.total.lag if group.total.known else None,
        "known": group.total.known,
        "partitions": group.total.total,
        "time_lag_ms": group.time_lag.age_ms,
        "time_lag_bound": str(group.time_lag.bound),
        "eta_s": group.eta_s,
    }


def _topic_rows(group: GroupView) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for topic in sorted({cell.topic for cell in group.cells}):
        cells = [cell for cell in group.cells if cell.topic == topic]
        known = [cell.lag.lag for cell in cells if cell.lag.lag is not None]
        ages = [cell.time_lag.age_ms for cell in cells if cell.time_lag.age_ms is not None]
        rows.append(
            {
                "group": group.group_id,
                "topic": topic,
                "lag": sum(known) if known else None,
                "known": len(known),
                "partitions": len(cells),
                "time_lag_ms": max(ages) if ages else None,
            }
        )
    return rows


def _cell_row(group: GroupView, cell: LagCell) -> dict[str, object]:
    return {
        "group": group.group_id,
        "topic": cell.topic,
        "partition": cell.partition,
        "state": str(cell.state),
        "committed_offset": cell.committed_offset,
        "log_start_offset": cell.log_start_offset,
        "log_end_offset": cell.log_end_offset,
        "lag": cell.lag.lag,
        "lost": cell.lag.lost,
        "status": str(cell.judged.status),
        "reason": cell.judged.reason,
        "last_commit_moved_ms": cell.moved_at_ms,
        "member": cell.member,
        "metadata": cell.metadata,
        "time_lag_ms": cell.time_lag.age_ms,
        "time_lag_bound": str(cell.time_lag.bound),
        "read_rate": cell.read_rate,
        "last_lag": cell.last_lag,
        "last_lag_at_ms": cell.last_lag_at_ms,
    }


def group_row(group: GroupView) -> dict[str, object]:
    """One group for `/api/v1/groups`, without its cells."""
    return {
        "group": group.group_id,
        "state": group.state,
        "kind": group.kind,
        "status": str(group.judged.status),
        "reason": group.judged.reason,
        "status_since_ms": group.judged.since_ms,
        "members": None if group.members is None else len(group.members),
        "coordinator": group.coordinator,
        "assignor": group.assignor,
        "write_rate": group.write_rate,
        "read_rate": group.read_rate,
        "error": group.error,
        **_sum_row(group),
    }


def topic_row(topic: TopicView) -> dict[str, object]:
    """One topic with its partitions for `/api/v1/topics`."""
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "size_bytes": topic.size_bytes,
        "offsets_held": topic.offsets_held,
        "write_rate": topic.write_rate,
        "partitions": [
            {
                "partition": part.partition,
                "leader": part.leader,
                "replicas": list(part.replicas),
                "in_sync_replicas": list(part.in_sync_replicas),
                "log_start_offset": part.log_start_offset,
                "log_end_offset": part.log_end_offset,
                "size_bytes": part.size_bytes,
                "write_rate": part.write_rate,
                "error": part.error,
            }
            for part in topic.partitions
        ],
    }


def part_row(part: PartView) -> dict[str, object]:
    """One part for the API; `details` are the last ones it gave."""
    return {
        "part": part.name,
        "address": part.address,
        "health": health(part),
        "stuck_since_ms": part.stuck.since_ms if part.stuck else None,
        "stuck_over": part.stuck.over if part.stuck else None,
        "supervised": part.supervised,
        "words": part.words,
        "restarts": part.restarts,
        "memory_bytes": part.memory_bytes,
        "reachable": part.reachable,
        "ready": part.ready,
        "error": part.error,
        "answered_at_ms": part.answered_at_ms,
        "started_at_ms": part.started_at_ms,
        "pid": part.pid,
        "problems": list(part.problems),
        "details": dict(part.details),
    }


def file_rows(part: PartView | None) -> list[dict[str, object]]:
    """The collector's files as it lists them: largest lag first."""
    files = part.details.get("files") if part else None
    return [dict(row) for row in files if isinstance(row, dict)] if isinstance(files, list) else []
