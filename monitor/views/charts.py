"""Draws charts as SVG paths.

This module is pure. It computes the geometry itself, because the security policy of the site allows
no foreign library. The inside of a plot has 1,000 by 1,000 units, which the browser stretches to
any width. Texts are outside of it, at positions in per cent, so that they are not distorted. A slot
is one place on the time axis. A gap in the slots breaks the line.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from monitor.state.levels import Event, Point
from monitor.views.ranges import DAY_MS, HOUR_MS, MINUTE_MS, Axis, Slots, gaps_of, slots_of

PLOT_TOP = 9
PLOT_HEIGHT = 91
GRID_LINES = 3
TABLE_ROWS = 10
LETTERS = "ABCDEF"
STYLES = ("l1", "l2 dash", "l3 dot", "l4 dash", "l5 dot")
TICK_STEPS_MS = (
    2 * MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, 30 * MINUTE_MS, HOUR_MS, 3 * HOUR_MS,
    6 * HOUR_MS, DAY_MS, 2 * DAY_MS, 7 * DAY_MS, 14 * DAY_MS,
)  # fmt: skip
TICKS_MAX = 6

Text = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class LineView:
    """One line of a chart: its name, its style, its newest value as text, and its path."""

    label: str
    style: str
    value: str
    path: str
    band: str = ""
    area: str = ""
    """In a stacked chart, the area between this line and the line below.

    Then `style` is the style of an area.
    """


@dataclass(frozen=True, slots=True)
class Mark:
    """A letter that marks an event on the time axis."""

    letter: str
    event: Event


@dataclass(frozen=True, slots=True)
class ChartView:
    """The values that a template needs to draw a chart. Positions of `grid` are in pixels, all
    others in per cent.
    """

    name: str
    title: str
    unit: str
    series: tuple[str, ...]
    lines: tuple[LineView, ...]
    fill: str
    grid: tuple[tuple[float, str], ...]
    ticks: tuple[tuple[float, str, str], ...]
    gaps: tuple[tuple[float, float, str], ...]
    marks: tuple[tuple[float, str], ...]
    peak: tuple[float, float, str, str] | None
    summary: str
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    empty: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """The content of a chart: its series by name, each with a label, in the order of the line
    styles.
    """

    title: str
    unit: str
    labels: Mapping[str, str]
    text: Text
    scale: float = 1.0
    filled: bool = False
    banded: bool = False
    stacked: bool = False
    ceiling: float | None = None
    styles: Sequence[str] = STYLES


def compact(value: float) -> str:
    """Return a number in at most four characters: `672k`, `1.5M`, `0.25`."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            scaled = value / limit
            return f"{scaled:.0f}{suffix}" if scaled >= 100 else f"{scaled:.3g}{suffix}"
    return f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.2g}"


def draw(
    plot: Plot,
    points: Mapping[str, Sequence[Point]],
    axis: Axis,
    marks: Sequence[Mark] = (),
    current: Mapping[str, float] | None = None,
) -> ChartView:
    """Draw a chart of the buckets in `points` over the axis.

    `current` holds the latest value of each series, which is newer than the last complete bucket.
    """
    series = {
        name: _scaled(slots_of(points.get(name, ()), axis), plot.scale) for name in plot.labels
    }
    gaps = gaps_of(series, axis)
    drawn = stacked(series) if plot.stacked else series
    top = _top(drawn, plot)
    known = sum(1 for slots in series.values() for slot in slots if slot is not None)
    lines = tuple(
        LineView(
            label,
            plot.styles[index % len(plot.styles)],
            plot.text(current[name] * plot.scale)
            if current is not None and name in current
            else _newest(series[name], plot.text, axis),
            "" if plot.stacked else path_of(series[name], top, axis.gap_slots, gaps),
            band_of(series[name], top, axis.gap_slots, gaps) if plot.banded else "",
            band_of(drawn[name], top, axis.gap_slots, gaps) if plot.stacked else "",
        )
        for index, (name, label) in enumerate(plot.labels.items())
    )
    first = next(iter(series.values()))
    return ChartView(
        name=plot.title.lower().replace(" ", "-"),
        title=plot.title,
        unit=plot.unit,
        series=tuple(plot.labels),
        lines=lines,
        fill=fill_of(first, top, axis.gap_slots, gaps) if plot.filled else "",
        grid=_grid(top),
        ticks=_ticks(axis),
        gaps=tuple(_gap(begin, end, axis) for begin, end in gaps),
        marks=tuple(
            (_percent(mark.event.at_ms, axis), mark.letter)
            for mark in marks
            if axis.begin_ms <= mark.event.at_ms < axis.end_ms
        ),
        peak=None if plot.stacked else _peak(first, top, axis, plot.text),
        summary=_summary(plot, series, axis),
        rows=_rows(series, axis, plot.text),
        empty="" if known >= 2 else "measuring: two samples are needed",
    )


def letters_of(events: Sequence[Event], axis: Axis) -> list[Mark]:
    """Return the last events that charts mark, each with a letter; the oldest one has the first
    letter.
    """
    shown = [one for one in events if one.mark and axis.begin_ms <= one.at_ms < axis.end_ms]
    recent = sorted(shown, key=lambda one: one.at_ms)[-len(LETTERS) :]
    return [Mark(letter, event) for letter, event in zip(LETTERS, recent, strict=False)]


def _scaled(slots: Slots, scale: float) -> Slots:
    if scale == 1.0:
        return slots
    return [
        None if one is None else (one[0] * scale, one[1] * scale, one[2] * scale) for one in slots
    ]


def stacked(series: Mapping[str, Slots]) -> dict[str, Slots]:
    """Stack the series; return the (upper, lower, upper) edges of each slot.

    A series without a value in a slot adds nothing there.
    """
    found: dict[str, Slots] = {}
    sums: dict[int, float] = {}
    for name, slots in series.items():
        bands: Slots = []
        for index, slot in enumerate(slots):
            if slot is None:
                bands.append(None)
                continue
            below = sums.get(index, 0.0)
            sums[index] = below + slot[0]
            bands.append((sums[index], below, sums[index]))
        found[name] = bands
    return found


def _top(series: Mapping[str, Slots], plot: Plot) -> float:
    """Return the value of the highest grid line: a round number above all drawn values."""
    if plot.ceiling is not None:
        return plot.ceiling
    which = 2 if plot.banded else 0
    most = max(
        (slot[which] for slots in series.values() for slot in slots if slot is not None), default=0
    )
    if most <= 0:
        return float(GRID_LINES)
    step = most / GRID_LINES
    size = 10.0 ** math.floor(math.log10(step))
    for factor in (1, 2, 2.5, 5, 10):
        if factor * size >= step * 0.999:
            return factor * size * GRID_LINES
    return size * 10 * GRID_LINES


def _stretches(
    slots: Slots, gap_slots: int, gaps: Sequence[tuple[int, int]]
) -> list[list[tuple[int, tuple[float, float, float]]]]:
    """Split the slots with values into runs. A line joins the values of one run."""
    found: list[list[tuple[int, tuple[float, float, float]]]] = []
    last: int | None = None
    for index, slot in enumerate(slots):
        if slot is None:
            continue
        broken = last is None or index - last > gap_slots
        if broken or any(last < begin <= index for begin, _ in gaps if last is not None):
            found.append([])
        found[-1].append((index, slot))
        last = index
    return found


def _xy(index: int, value: float, count: int, top: float) -> str:
    x = 1000 * index / max(1, count - 1)
    return f"{x:.0f} {1000 - 1000 * min(1.0, max(0.0, value / top)):.0f}"


def path_of(slots: Slots, top: float, gap_slots: int, gaps: Sequence[tuple[int, int]] = ()) -> str:
    """Return the path of the means."""
    return "".join(
        "M"
        + "L".join(_xy(index, slot[0], len(slots), top) for index, slot in run)
        + ("h1" if len(run) == 1 else "")
        for run in _stretches(slots, gap_slots, gaps)
    )


def fill_of(slots: Slots, top: float, gap_slots: int, gaps: Sequence[tuple[int, int]] = ()) -> str:
    """Return the path of the area below the line."""
    found = []
    for run in _stretches(slots, gap_slots, gaps):
        xs = [1000 * index / max(1, len(slots) - 1) for index in (run[0][0], run[-1][0])]
        line = "L".join(_xy(index, slot[0], len(slots), top) for index, slot in run)
        found.append(f"M{xs[0]:.0f} 1000L{line}L{xs[1]:.0f} 1000Z")
    return "".join(found)


def band_of(slots: Slots, top: float, gap_slots: int, gaps: Sequence[tuple[int, int]] = ()) -> str:
    """Return the path of the area from the minimum to the maximum."""
    found = []
    for run in _stretches(slots, gap_slots, gaps):
        upper = "L".join(_xy(index, slot[2], len(slots), top) for index, slot in run)
        lower = "L".join(_xy(index, slot[1], len(slots), top) for index, slot in reversed(run))
        found.append(f"M{upper}L{lower}Z")
    return "".join(found)


def _newest(slots: Slots, text: Text, axis: Axis) -> str:
    """Return the newest value as text; "unknown" if it is older than a gap, "measuring" without
    any.
    """
    for slot in reversed(slots[-axis.gap_slots - 1 :]):
        if slot is not None:
            return text(slot[0])
    return "unknown" if any(slot is not None for slot in slots) else "measuring"


def _grid(top: float) -> tuple[tuple[float, str], ...]:
    return tuple(
        (PLOT_TOP + PLOT_HEIGHT * (1 - line / GRID_LINES), compact(top * line / GRID_LINES))
        for line in range(GRID_LINES + 1)
    )


def _percent(at_ms: int, axis: Axis) -> float:
    return round(100 * (at_ms - axis.begin_ms) / (axis.end_ms - axis.begin_ms), 2)


def _ticks(axis: Axis) -> tuple[tuple[float, str, str], ...]:
    length_ms = axis.end_ms - axis.begin_ms
    step_ms = next(
        (one for one in TICK_STEPS_MS if length_ms / one <= TICKS_MAX), TICK_STEPS_MS[-1]
    )
    first_ms = -(-axis.begin_ms // step_ms) * step_ms
    form = "%H:%M" if step_ms < DAY_MS else "%m-%d"
    found = []
    for at_ms in range(first_ms, axis.end_ms, step_ms):
        x = _percent(at_ms, axis)
        anchor = "start" if x < 4 else "end" if x > 94 else "middle"
        found.append((x, datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form), anchor))
    return tuple(found)


def moment(at_ms: int, axis: Axis) -> str:
    """Return a moment as precisely as the axis shows it."""
    length_ms = axis.end_ms - axis.begin_ms
    form = "%H:%M:%S" if length_ms <= HOUR_MS else "%H:%M" if length_ms <= DAY_MS else "%m-%d %H:%M"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)


def _gap(begin: int, end: int, axis: Axis) -> tuple[float, float, str]:
    x, after = _percent(axis.at(begin), axis), _percent(axis.at(end), axis)
    text = f"no data {moment(axis.at(begin), axis)} to {moment(axis.at(end), axis)}"
    return x, round(after - x, 2), text


def _peak(slots: Slots, top: float, axis: Axis, text: Text) -> tuple[float, float, str, str] | None:
    """Return the position and text of the first line's highest point; None if the line is flat."""
    known = [(slot[0], index) for index, slot in enumerate(slots) if slot is not None]
    if len(known) < 2:
        return None
    most, index = max(known)
    if most <= 0 or most < 1.5 * sorted(known)[len(known) // 2][0]:
        return None
    x = round(100 * index / max(1, axis.count - 1), 2)
    y = PLOT_TOP + PLOT_HEIGHT * (1 - min(1.0, most / top))
    anchor = "start" if x < 15 else "end" if x > 85 else "middle"
    return x, round(y, 1), f"{text(most)} at {moment(axis.at(index), axis)}", anchor


def _summary(plot: Plot, series: Mapping[str, Slots], axis: Axis) -> str:
    """Return a description of the chart for screen readers."""
    begin, end = moment(axis.begin_ms, axis), moment(axis.end_ms, axis)
    said = []
    for name, slots in series.items():
        known = [slot for slot in slots if slot is not None]
        if known:
            most = plot.text(max(slot[0] for slot in known))
            said.append(f"{plot.labels[name]}: {plot.text(known[-1][0])} last, {most} at most")
        else:
            said.append(f"{plot.labels[name]}: nothing known")
    return f"{plot.title}, {begin} to {end} UTC. {'; '.join(said)}."


def _rows(
    series: Mapping[str, Slots], axis: Axis, text: Text
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the chart's values as a table of about ten rows, newest first."""
    step = max(1, axis.count // TABLE_ROWS)
    rows = []
    for end in range(axis.count, 0, -step):
        cells = []
        for slots in series.values():
            known = [slot for slot in slots[max(0, end - step) : end] if slot is not None]
            cells.append(text(known[-1][0]) if known else "–")
        rows.append((moment(axis.at(max(0, end - 1)), axis), tuple(cells)))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class Spark:
    """A small line without axes, its area, and its maximum."""

    line: str
    under: str
    most: float | None


def spark(points: Sequence[Point], axis: Axis, *, slots_max: int = 48) -> Spark:
    """Draw a sparkline of at most 48 points over the time axis."""
    merge = max(1, -(-axis.count // slots_max))
    coarse = Axis(axis.begin_ms, axis.step_ms * merge, -(-axis.count // merge), GAP_MERGED)
    slots = slots_of(points, coarse)
    most = max((slot[0] for slot in slots if slot is not None), default=None)
    top = (most or 0) * 1.04 or 1.0
    return Spark(path_of(slots, top, GAP_MERGED), fill_of(slots, top, GAP_MERGED), most)


GAP_MERGED = 2
"""The most empty slots that a sparkline spans before it breaks."""
