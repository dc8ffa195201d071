"""The ranges of time that charts show, and the slots that stored buckets are gathered into.

This module is pure. A chart has at most 180 slots. A slot without data stays empty. Several empty
slots in a row are a gap if they last longer than the sampler's interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from monitor.state.levels import LEVELS, Level, Point

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
SLOTS_MAX = 180
GAP_SLOTS = 3


@dataclass(frozen=True, slots=True)
class Span:
    """A range: its key in links, its label, its length, and the level of the history that it is
    read from.
    """

    key: str
    words: str
    length_ms: int
    level: Level
    step_ms: int


SPANS = (
    Span("10m", "10 min", 10 * MINUTE_MS, LEVELS[0], 5_000),
    Span("3h", "3 h", 3 * HOUR_MS, LEVELS[1], MINUTE_MS),
    Span("1d", "1 day", DAY_MS, LEVELS[2], 10 * MINUTE_MS),
    Span("1w", "1 week", 7 * DAY_MS, LEVELS[2], HOUR_MS),
)


@dataclass(frozen=True, slots=True)
class Axis:
    """The slots of a chart: slot i begins at `begin_ms + i * step_ms`."""

    begin_ms: int
    step_ms: int
    count: int
    gap_slots: int

    @property
    def end_ms(self) -> int:
        """The end of the last slot."""
        return self.begin_ms + self.count * self.step_ms

    def slot_of(self, at_ms: int) -> int:
        """Return the index of the time slot that contains a moment.

        The index is outside of 0..count-1 if the moment is not on the axis.
        """
        return (at_ms - self.begin_ms) // self.step_ms

    def at(self, slot: int) -> int:
        """Return the moment at which a slot begins."""
        return self.begin_ms + slot * self.step_ms


def span_of(key: str, retain_ms: int) -> Span:
    """Return the range with this key: the whole history for `all`, ten minutes for an unknown
    key.
    """
    if key == "all":
        step_ms = LEVELS[2].step_ms
        buckets = -(-retain_ms // (SLOTS_MAX * step_ms))
        return Span("all", "all", retain_ms, LEVELS[2], buckets * step_ms)
    return next((span for span in SPANS if span.key == key), SPANS[0])


def span_keys() -> list[tuple[str, str]]:
    """Return the key and label of every range, shortest first."""
    return [*((span.key, span.words) for span in SPANS), ("all", "all")]


def axis_of(span: Span, now_ms: int, refresh_ms: int, oldest_ms: int | None) -> Axis:
    """Return the axis that ends now. The axis of the range `all` begins at the oldest moment of the
    history.
    """
    end_ms = (now_ms // span.step_ms + 1) * span.step_ms
    length_ms = span.length_ms
    if span.key == "all" and oldest_ms is not None:
        length_ms = min(length_ms, max(HOUR_MS, end_ms - oldest_ms))
        step_ms = max(
            span.level.step_ms,
            -(-length_ms // SLOTS_MAX // span.level.step_ms) * span.level.step_ms,
        )
        end_ms = (now_ms // step_ms + 1) * step_ms
        count = -(-length_ms // step_ms)
        return Axis(end_ms - count * step_ms, step_ms, count, GAP_SLOTS)
    pace = -(-refresh_ms // span.step_ms)
    count = length_ms // span.step_ms
    return Axis(end_ms - count * span.step_ms, span.step_ms, count, GAP_SLOTS * max(1, pace))


Slots = list[tuple[float, float, float] | None]


def slots_of(points: Sequence[Point], axis: Axis) -> Slots:
    """Gather buckets into slots. A slot has the mean of the means, the minimum of the minima and
    the maximum of the maxima.
    """
    gathered: list[list[Point]] = [[] for _ in range(axis.count)]
    for point in points:
        slot = axis.slot_of(point[0])
        if 0 <= slot < axis.count:
            gathered[slot].append(point)
    return [
        (
            sum(point[1] for point in some) / len(some),
            min(point[2] for point in some),
            max(point[3] for point in some),
        )
        if some
        else None
        for some in gathered
    ]


def gaps_of(series: Mapping[str, Slots], axis: Axis) -> list[tuple[int, int]]:
    """Return the gaps, runs of slots in which no series has a value, as (first slot, slot after the
    last).

    The time before the first slot with a value is not a gap. The time after the last one is none
    either, because values can still come.
    """
    known = [
        any(slots[slot] is not None for slots in series.values()) for slot in range(axis.count)
    ]
    if not any(known):
        return []
    first = known.index(True)
    last = axis.count - 1 - known[::-1].index(True)
    found, begin = [], None
    for slot in range(first, last + 1):
        if not known[slot] and begin is None:
            begin = slot
        elif known[slot] and begin is not None:
            if slot - begin >= axis.gap_slots:
                found.append((begin, slot))
            begin = None
    if axis.count - 1 - last >= 2 * axis.gap_slots:
        found.append((last + 1, axis.count))
    return found
