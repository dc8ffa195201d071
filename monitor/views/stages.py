"""The figures of the stream's stages (the steps of a batch), as values of series and as rows of the
stream's page.

This module is pure. The stream itself measures two windows of time (`stream/stages.py`). Longer
ranges are means from the history. If the stream does not answer or its version is older, the
figures are unknown, never 0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from monitor.state.snapshot import PartView, Snapshot
from monitor.views import render

STAGES = ("source", "parse", "fold", "mysql", "redis", "commit")
SINKS = ("mysql", "redis")
TITLES = {
    "source": "Source", "parse": "Parse", "fold": "Fold", "mysql": "MySQL", "redis": "Redis",
    "commit": "Commit",
}  # fmt: skip

NOW, TEN_MINUTES = "1m", "10m"
"""The windows that the stream keeps itself."""

RANGES = (("now", "now"), ("10m", "10 min"), ("3h", "3 h"), ("1d", "1 day"), ("all", "all"))
"""The ranges of the chain of stages: key and words."""

HARD_PRESSED = 0.8
"""With at least this share of busy time, the stream is limited by its busiest stage."""

LABEL_WIDTH_MIN, LABEL_WIDTH_SMALL = 3.0, 12.0
"""The least width in per cent from which a segment shows its number: on any screen, and on a
phone.
"""

TOTAL_ROOM = 0.88
"""The width of the longest bar in per cent; its duration is written after it."""

Values = Mapping[str, float]


def stage_series(stage: str, what: str) -> str:
    """Return the name of a stage's series. `what` is `ms` (mean duration in a batch) or `busy`
    (share of the time).
    """
    return f"stage.{stage}.{what}"


COLLECT_BUSY = stage_series("collect", "busy")
"""The collector's figure, which is not in the stream's windows."""

SERIES = (
    "busy", "counted", "cells", "batches", "line_p50_s", "line_p99_s",
    *(stage_series(stage, what) for stage in STAGES for what in ("ms", "busy")),
)  # fmt: skip
"""The names of the series that the stream's windows provide."""


def window_values(part: PartView | None, window: str) -> dict[str, float]:
    """Return the values of one window by series; empty if the stream does not report or answer."""
    told = _mapping(_mapping(_told(part).get("windows")).get(window))
    seconds = _number(told.get("seconds"))
    if seconds is None or seconds <= 0:
        return {}
    line, stages = _mapping(told.get("line_ms")), _mapping(told.get("stages"))
    found: dict[str, float | None] = {"busy": _number(told.get("busy"))}
    for series, key in (("counted", "lines"), ("cells", "cells"), ("batches", "batches")):
        count = _number(told.get(key))
        found[series] = None if count is None else count / seconds
    for series, key in (("line_p50_s", "p50"), ("line_p99_s", "p99")):
        age_ms = _number(line.get(key))
        found[series] = None if age_ms is None else age_ms / 1000
    for stage in STAGES:
        one = _mapping(stages.get(stage))
        for what in ("ms", "busy"):
            found[stage_series(stage, what)] = _number(one.get(what))
    return {name: value for name, value in found.items() if value is not None}


def replays(part: PartView | None) -> int | None:
    """Return how many batches of the last minute the sinks had already stored; None if it is
    unknown.
    """
    told = _mapping(_mapping(_told(part).get("windows")).get(NOW)).get("replays")
    return told if isinstance(told, int) else None


@dataclass(frozen=True, slots=True)
class StageCard:
    """One stage of the chain. `busy` is the share of time in which it works, None if it is unknown.
    `style` names its colour.
    """

    title: str
    style: int
    time: str
    time_unit: str
    busy: float | None
    facts: tuple[tuple[str, str], ...]
    mark: str = ""
    level: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """Figures of the chain that have no series, so they exist only for the present."""

    not_parsed: str | None = None
    replayed: str | None = None
    in_step: str | None = None


def stages_of(snapshot: Snapshot) -> list[str]:
    """Return the stages of this mill; a sink that the mill does not have is left out."""
    return [one for one in STAGES if one not in SINKS or snapshot.part(one) is not None]


def stage_cards(values: Values, beside: Beside, stages: Sequence[str] = STAGES) -> list[StageCard]:
    """Return the cards of the collector and then of the stream's stages. The busiest one is
    marked.
    """
    busiest = max(STAGES, key=lambda stage: values.get(stage_series(stage, "busy"), 0.0))
    is_pressed = values.get("busy", 0.0) >= HARD_PRESSED
    cards = [
        StageCard(
            "Collect", 0, "–", "its own process", values.get(COLLECT_BUSY),
            (
                ("unread", render.size(values.get("unread_bytes"))),
                ("out", _rate(values, "collected", "")),
            ),
        )
    ]  # fmt: skip
    facts = _facts(values, beside)
    for number, stage in enumerate(STAGES, 1):
        if stage not in stages:
            continue
        milliseconds = values.get(stage_series(stage, "ms"))
        busy = values.get(stage_series(stage, "busy"))
        is_busiest = stage == busiest and bool(busy)
        cards.append(
            StageCard(
                TITLES[stage],
                number,
                render.UNKNOWN if milliseconds is None else _milliseconds(milliseconds),
                "" if milliseconds is None else "ms a batch",
                busy,
                facts[stage],
                "busiest" if is_busiest else "",
                ("warn" if is_pressed else "idle") if is_busiest else "",
            )
        )
    return cards


def _facts(values: Values, beside: Beside) -> dict[str, tuple[tuple[str, str], ...]]:
    lines = ("in", _rate(values, "counted", ""))
    cells = ("in", _rate(values, "cells", " cells"))
    rate, busy = values.get("cells"), values.get(stage_series("mysql", "busy"))
    cell_us = busy / rate * 1_000_000 if rate and busy is not None else None

    def shown(*facts: tuple[str, str | None]) -> tuple[tuple[str, str], ...]:
        return tuple((name, text) for name, text in facts if text is not None)

    return {
        "source": (("in", _rate(values, "collected", "")), ("out", lines[1])),
        "parse": shown(lines, ("not parsed", beside.not_parsed)),
        "fold": (lines, ("out", cells[1])),
        "mysql": (cells, ("a cell", render.micros(cell_us))),
        "redis": shown(cells, ("shows", beside.in_step)),
        "commit": shown(
            ("batches", _rate(values, "batches", "")), ("replayed", beside.replayed)
        ),
    }  # fmt: skip


def says(values: Values) -> str:
    """Return a sentence on how busy the stream is and with which stage; empty if that is
    unknown.
    """
    busy = values.get("busy")
    if busy is None:
        return ""
    shares = {stage: values.get(stage_series(stage, "busy"), 0.0) for stage in STAGES}
    most = sorted((one for one in STAGES if shares[one] > 0), key=lambda one: -shares[one])[:2]
    whole = f"Busy {render.percent(busy)} of the time"
    if busy <= 0 or not most:
        return f"{whole}."
    parts = [f"{TITLES[one]} takes {render.percent(shares[one])}" for one in most]
    return f"{whole}: {', '.join(parts)}."


@dataclass(frozen=True, slots=True)
class Segment:
    """One stage's part of a bar, in per cent of the picture's width."""

    style: int
    x: float
    width: float
    title: str
    text: str
    is_narrow: bool = False
    """True if a small screen has no room for the text."""


@dataclass(frozen=True, slots=True)
class BatchBar:
    """One batch as a bar with a segment for each stage."""

    label: str
    segments: tuple[Segment, ...]
    end: float
    whole: str
    summary: str


def batch_bars(part: PartView | None) -> list[BatchBar]:
    """Return bars of the same scale for the last batch, and for the median and the slowest batch of
    ten minutes.
    """
    found: list[tuple[str, float, Mapping[str, float]]] = []
    told = _told(part)
    for key in ("last", "median", "slowest"):
        one = _mapping(told.get(key))
        whole = _number(one.get("ms"))
        if whole is None:
            continue
        label = f"{key}, {_which(key, one)}"
        times = _mapping(one.get("stage_ms"))
        numbers = {stage: _number(times.get(stage)) for stage in STAGES}
        found.append((label, whole, {s: ms for s, ms in numbers.items() if ms is not None}))
    longest = max((max(whole, sum(times.values())) for _, whole, times in found), default=0)
    return [_bar(*one, longest or 1.0) for one in found]


def _which(key: str, batch: Mapping[str, object]) -> str:
    if key == "last":
        return render.number(_number(batch.get("batch_id")))
    return "10 min" if key == "median" else render.clock_time(batch.get("at_ms"))


def _bar(label: str, whole: float, times: Mapping[str, float], longest: float) -> BatchBar:
    scale = 100 * TOTAL_ROOM / longest
    segments, x, said = [], 0.0, []
    for number, stage in enumerate(STAGES, 1):
        if stage not in times:
            continue
        width, text = times[stage] * scale, _milliseconds(times[stage])
        shown = text if width >= LABEL_WIDTH_MIN else ""
        is_narrow, title = width < LABEL_WIDTH_SMALL, f"{TITLES[stage]} {text} ms"
        segments.append(Segment(number, round(x, 2), round(width, 2), title, shown, is_narrow))
        said.append(f"{TITLES[stage]} {text}")
        x += width
    left = whole - sum(times.values())
    if left > 0:
        width, text = left * scale, _milliseconds(left)
        segments.append(Segment(0, round(x, 2), round(width, 2), f"between them {text} ms", ""))
        said.append(f"between them {text}")
        x += width
    length = f"{render.number(whole)} ms"
    return BatchBar(
        label, tuple(segments), round(x, 2), length, f"{label}: {length}, of it {', '.join(said)}"
    )


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A window of the stream as a row of texts."""

    name: str
    cells: tuple[str, ...]


WINDOW_COLUMNS = (
    "Batches", "Lines", "Lines/s", "Cells/s", "Batch p50, ms", "p99, ms", "Busy",
    "Line → sinks p50", "p99",
)  # fmt: skip


def window_rows(part: PartView | None) -> list[WindowRow]:
    """Return the stream's own windows; empty if it does not report any."""
    found: list[WindowRow] = []
    for window, name in ((NOW, "1 min"), (TEN_MINUTES, "10 min")):
        values = window_values(part, window)
        if not values:
            continue
        told = _mapping(_mapping(_told(part).get("windows")).get(window))
        batch = _mapping(told.get("batch_ms"))
        line = [values.get(f"line_{quantile}_s") for quantile in ("p50", "p99")]
        found.append(
            WindowRow(
                name,
                (
                    render.number(_number(told.get("batches"))),
                    render.number(_number(told.get("lines"))),
                    _rate(values, "counted", ""),
                    _rate(values, "cells", ""),
                    *(_or_none(_number(batch.get(key)), render.number) for key in ("p50", "p99")),
                    render.percent(values["busy"]) if "busy" in values else render.UNKNOWN,
                    *(_or_none(age_s, seconds) for age_s in line),
                ),
            )
        )
    return found


def seconds(age_s: float) -> str:
    """Return an age in seconds as text, with two decimals below ten seconds."""
    return f"{age_s:.2f} s" if age_s < 10 else render.duration(age_s * 1000)


def _or_none(value: float | None, text: Callable[[float], str]) -> str:
    return "none" if value is None else text(value)


def _rate(values: Values, series: str, unit: str) -> str:
    value = values.get(series)
    if value is None:
        return render.UNKNOWN
    return f"{value:,.1f}{unit}/s" if 0 < value < 10 else f"{value:,.0f}{unit}/s"


def sink_time(part: PartView | None, stage: str) -> str:
    """Return the time that a sink takes of each batch as text, or `unknown`."""
    found = window_values(part, NOW).get(stage_series(stage, "ms"))
    return render.UNKNOWN if found is None else f"{_milliseconds(found)} ms"


def _milliseconds(value: float) -> str:
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def _told(part: PartView | None) -> Mapping[str, object]:
    return {} if part is None or not part.reachable else _mapping(part.details.get("stages"))


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return None
