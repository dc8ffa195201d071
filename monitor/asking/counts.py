"""The counts page: each metric's counts from MySQL, as text for people and rows for programs.

`Counts` queries MySQL at most once in a few seconds, even if many pages are open. All other code of
this module is pure. Only counts and sums of several windows can be added up. For unique keys,
extremes, means and shares the page shows each window and no total.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal

from monitor.config.settings import MetricSettings
from monitor.views import render
from monitor.views.charts import compact
from sinks.errors import SinkUnavailable
from sinks.estimates import error_of, note_of
from sinks.number_text import grouped, plain
from sinks.read_counts import CountsReader, KeyCount, MetricCounts, WindowSum

ASK_EVERY_S = 5.0
WINDOWS = 60
KEYS_ASKED = 40
KEYS_SHOWN = 8
STRIP_KEYS = 3
METRICS_MAX = 100
# The time that is added to the UTC start of a local day, so that the sum has that day's date.
DATE_MARGIN_S = 13 * 3_600
SIZES = {"1m": 60, "1h": 3_600, "1d": 86_400}
ADDITIVE = ("count", "sum")
QUANTILES = ("p50", "p95", "p99")
LEAST_PERCENT = Decimal("0.01")
# The precision of decimals. No number in the database has as many digits, so results are exact.
EXACT = Context(prec=80)
BAR_STEP, BAR_WIDTH, BAR_HEIGHT = 4, 3, 24


@dataclass(frozen=True, slots=True)
class Asked:
    """One answer of the database: its metrics in order, or the `error` that it returned instead."""

    at_ms: int
    metrics: tuple[MetricCounts, ...] = ()
    since: Mapping[str, datetime] | None = None
    error: str | None = None


class Counts:
    """Keeps the last answer of the database for each window size.

    The first request that finds an answer stale fetches a new one.
    """

    def __init__(self, connect: Callable[[], CountsReader], clock_ms: Callable[[], int]) -> None:
        self._connect = connect
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._asked: dict[int, tuple[float, Asked]] = {}
        self._asking: set[int] = set()

    def latest(self, size_s: int) -> Asked:
        """Return the last answer at once. If it is stale, fetch a new answer in the background.

        Only the first call for a window size waits.
        """
        known = self._asked.get(size_s)
        if known is None:
            return self.read(size_s)
        if time.monotonic() - known[0] >= ASK_EVERY_S and size_s not in self._asking:
            self._asking.add(size_s)
            threading.Thread(target=self._refresh, args=(size_s,), daemon=True).start()
        return known[1]

    def _refresh(self, size_s: int) -> None:
        try:
            self.read(size_s)
        finally:
            self._asking.discard(size_s)

    def read(self, size_s: int) -> Asked:
        """Query the totals and last windows of every metric for one window size."""
        with self._lock:
            known = self._asked.get(size_s)
            if known is not None and time.monotonic() - known[0] < ASK_EVERY_S:
                return known[1]
            answer = self._ask(size_s)
            self._asked[size_s] = (time.monotonic(), answer)
            return answer

    def _ask(self, size_s: int) -> Asked:
        now_ms = self._clock_ms()
        try:
            reader = self._connect()
        except SinkUnavailable as error:
            return Asked(now_ms, error=str(error))
        try:
            found = tuple(
                reader.read(name, size_s, now_ms // 1000, windows=WINDOWS, keys=KEYS_ASKED)
                for name in reader.names()[:METRICS_MAX]
            )
            return Asked(now_ms, found, reader.since())
        except SinkUnavailable as error:
            return Asked(now_ms, error=str(error))
        finally:
            reader.close()


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key of a metric: its text, its value, its share of the total, and the length of its
    bar."""

    key: str
    value: str
    share: str
    bar: float
    quantiles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricView:
    """One metric as a card shows it."""

    name: str
    what: str
    measure: str
    facts: tuple[tuple[str, str], ...]
    columns: str
    filling: str
    highest: str
    ends: tuple[str, str]
    keys: tuple[KeyRow, ...]
    note: str
    total: str
    window: str
    strip: tuple[tuple[float, float], ...]
    most: tuple[tuple[str, str], ...]


def described(
    name: str, known: Mapping[str, MetricSettings], counts: MetricCounts
) -> MetricSettings:
    """Return a metric's configuration. If the metric is no longer configured, derive its
    description from its counts in the database.
    """
    if name in known:
        return known[name]
    first = counts.totals[0] if counts.totals else None
    if counts.is_unique:
        measure = "unique"
    elif first is not None and first.quantiles:
        measure = "percentile"
    else:
        measure = "count" if first is None or first.value is None else "value"
    key = ("key",) if first is not None and first.key else ()
    return MetricSettings(name=name, inputs=(), key=key, measure=measure)


def metric_view(counts: MetricCounts, metric: MetricSettings, now_s: int) -> MetricView:
    """Return the card of one metric from the database's answer."""
    size_s = counts.size_s
    whole = [one for one in counts.windows if one.start_s + size_s <= now_s]
    filling = [one for one in counts.windows if one.start_s + size_s > now_s]
    values = {one.start_s: _window_value(one, metric.measure) for one in counts.windows}
    total = _total(counts.totals, counts.keys_total, metric.measure)
    rows = _key_rows(counts, metric, total)
    top = float(max(values.values(), default=Decimal(0)))
    begin_s = _begin_s(counts, now_s)

    def drawn(some: Sequence[WindowSum]) -> str:
        return _columns([(one, float(values[one.start_s])) for one in some], begin_s, size_s, top)

    return MetricView(
        name=counts.name,
        what=_what(metric),
        measure=metric.measure,
        facts=_facts(
            counts, metric, total, [(one, values[one.start_s]) for one in counts.windows], now_s
        ),
        columns=drawn(whole),
        filling=drawn(filling),
        highest=compact(top) if top else "",
        ends=(_clock(begin_s, size_s), _clock(begin_s + (WINDOWS - 1) * size_s, size_s)),
        keys=rows,
        note=_note(counts, metric, rows),
        total="–" if total is None else _total_text(counts, total, metric),
        window=_window_text(whole[-1], values[whole[-1].start_s], metric) if whole else "–",
        strip=_strip(counts, total, metric),
        most=tuple((row.key, row.share) for row in rows[:STRIP_KEYS]) if metric.key else (),
    )


def _facts(
    counts: MetricCounts,
    metric: MetricSettings,
    total: Decimal | None,
    windows: Sequence[tuple[WindowSum, Decimal]],
    now_s: int,
) -> tuple[tuple[str, str], ...]:
    """Return the large numbers of a card: total, last full window, current window, number of
    keys."""
    size_s = counts.size_s
    word = "total"
    if total is not None and counts.totals[0].is_estimate:
        word = f"total, an estimate within {error_of(metric.measure) or 0:.1%}"
    found = [(word, "not added up" if total is None else _total_text(counts, total, metric))]
    whole = [pair for pair in windows if pair[0].start_s + size_s <= now_s]
    if whole:
        window, value = whole[-1]
        moment = _clock(window.start_s, size_s)
        text = _window_text(window, value, metric)
        found.append((f"in the {_size_word(size_s)} {moment}", text))
    if len(whole) < len(windows):
        window, value = windows[-1]
        moment = _clock(window.start_s, size_s)
        found.append((f"in {moment}, still filling", _window_text(window, value, metric)))
    if metric.key:
        found.append(("keys", render.number(counts.keys_total)))
    return tuple(found)


def _what(metric: MetricSettings) -> str:
    said = metric.measure
    if metric.value:
        said += f" of {metric.value}"
    if metric.key:
        said += f" by {', '.join(metric.key)}"
    if metric.top:
        said += f", top {metric.top}"
    return f"{said}, from {', '.join(metric.inputs)}" if metric.inputs else said


def _window_value(window: WindowSum, measure: str) -> Decimal:
    """Return the single number of a window: the sum of its keys, or their mean.

    The mean is used if the measure cannot be added up.
    """
    if window.value is None or measure == "count":
        return Decimal(window.count)
    if measure in ADDITIVE or measure == "unique":
        return window.value
    return EXACT.divide(window.value, Decimal(max(1, window.keys)))


def _total(totals: Sequence[KeyCount], keys_total: int, measure: str) -> Decimal | None:
    """Return the total over all keys. None if the database's answer does not have all keys, or if
    the measure cannot be added up.
    """
    if not totals:
        return None
    if keys_total > len(totals):
        return None
    if measure == "count":
        return Decimal(sum(one.count for one in totals))
    if measure == "sum" or len(totals) == 1:
        total = Decimal(0)
        for one in totals:
            total = EXACT.add(total, _shown(one))
        return total
    return None


def _shown(one: KeyCount) -> Decimal:
    return Decimal(one.count) if one.value is None else one.value


def _total_text(counts: MetricCounts, total: Decimal, metric: MetricSettings) -> str:
    return _about(_text(total, metric), counts.totals[0].is_estimate)


def _window_text(window: WindowSum, value: Decimal, metric: MetricSettings) -> str:
    return _about(_text(value, metric), window.is_estimate)


def _about(text: str, is_estimate: bool) -> str:
    return f"≈ {text}" if is_estimate else text


def _text(value: Decimal, metric: MetricSettings) -> str:
    if metric.measure == "share":
        # Show two decimals. A smaller share would appear as 0.00, so show its first digits.
        percent = EXACT.multiply(100, value)
        return (
            f"{percent:.2f} %"
            if percent >= LEAST_PERCENT or not value
            else (f"{grouped(percent, digits=3)} %")
        )
    if metric.measure == "sum" and metric.value and "bytes" in metric.value:
        return render.size(float(value))
    return grouped(value)


def key_text(key: Sequence[str | None], metric: MetricSettings) -> str:
    """Return a key as text for people."""
    if not metric.key:
        return "all"
    return " | ".join("(null)" if part is None else part for part in key) or "(null)"


def _key_rows(
    counts: MetricCounts, metric: MetricSettings, total: Decimal | None
) -> tuple[KeyRow, ...]:
    if not metric.key and metric.measure != "percentile":
        return ()
    rows = counts.totals or counts.latest
    most = max((float(_shown(one)) for one in rows), default=0.0)
    found = []
    for one in rows[:KEYS_SHOWN]:
        value = float(_shown(one))
        is_shared = total and metric.measure in ADDITIVE
        share = f"{100 * value / float(total or 1):.1f} %" if is_shared else ""
        quantiles = tuple(_about(text, one.is_estimate) for text in _quantiles(one.quantiles))
        text = render.number(one.count)
        if not quantiles:
            text = _about(_text(_shown(one), metric), one.is_estimate)
        found.append(
            KeyRow(key_text(one.key, metric), text, share, value / most if most else 0.0, quantiles)
        )
    return tuple(found)


def _quantiles(text: str | None) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        told = json.loads(text, parse_float=Decimal)
        return tuple(grouped(told[rank]) for rank in QUANTILES)
    except (ValueError, KeyError, TypeError):
        return ()


def _note(counts: MetricCounts, metric: MetricSettings, rows: Sequence[KeyRow]) -> str:
    if not counts.totals and not counts.windows:
        return "Nothing is counted yet."
    keys = "No key."
    if metric.key and rows:
        keys = f"{len(rows)} of {counts.keys_total or len(rows):,} keys"
    if metric.measure == "unique" and not metric.key:
        keys = "No key. Numbers of windows do not add up to the total."
    note = note_of(metric.measure)
    return (
        f"{keys}{'' if keys.endswith('.') else '.'} {note[0].upper()}{note[1:]}." if note else keys
    )


def _begin_s(counts: MetricCounts, now_s: int) -> int:
    """Return the start of the first window that the chart draws.

    Windows of a metric with a `tz` do not begin at multiples of their size.
    """
    size_s = counts.size_s
    if not size_s:
        return 0
    shift_s = counts.windows[-1].start_s % size_s if counts.windows else 0
    return (now_s - shift_s) // size_s * size_s + shift_s - (WINDOWS - 1) * size_s


def _columns(
    windows: Sequence[tuple[WindowSum, float]], begin_s: int, size_s: int, top: float
) -> str:
    """Return windows as columns of an SVG path. Each window has a fixed place, so a minute without
    lines is a gap.
    """
    if not size_s or top <= 0:
        return ""
    found = []
    for window, value in windows:
        # A day after the clocks changed begins an hour earlier or later, so round to the nearest
        # place.
        place = round((window.start_s - begin_s) / size_s)
        if 0 <= place < WINDOWS and value > 0:
            y = BAR_HEIGHT - max(1, round(value / top * (BAR_HEIGHT - 1)))
            found.append(f"M{place * BAR_STEP} {BAR_HEIGHT}V{y}h{BAR_WIDTH}V{BAR_HEIGHT}z")
    return "".join(found)


def _strip(
    counts: MetricCounts, total: Decimal | None, metric: MetricSettings
) -> tuple[tuple[float, float], ...]:
    """Return the positions and widths of the shares of the largest keys, in per cent."""
    if not total or not metric.key or metric.measure not in ADDITIVE:
        return ()
    found, x = [], 0.0
    for one in counts.totals[:STRIP_KEYS]:
        width = max(0.0, round(100 * float(_shown(one)) / float(total), 1))
        found.append((round(x, 1), width))
        x += width
    return tuple(found)


def _size_word(size_s: int) -> str:
    return {60: "minute", 3_600: "hour", 86_400: "day"}.get(size_s, "window")


def _clock(at_s: int, size_s: int) -> str:
    """Return a window's label: its time of day in UTC or, for a day, its date in the metric's time
    zone.

    A day that begins at 10:00 UTC or earlier has the date of that moment, as in Hawaii; a day
    that begins later has the next date, as in New Zealand and in all zones east of Greenwich.
    """
    if size_s < SIZES["1d"]:
        return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M")
    return datetime.fromtimestamp(at_s + DATE_MARGIN_S, UTC).strftime("%m-%d")


def count_rows(counts: MetricCounts, metric: MetricSettings) -> list[dict[str, object]]:
    """Return a metric's totals and windows as rows for the API and for CSV."""
    return [
        {
            "metric": counts.name, "size": "all", "start": None,
            "key": key_text(one.key, metric), **_numbers(one, metric.measure),
        }
        for one in counts.totals
    ] + [
        {
            "metric": counts.name, "size": f"{counts.size_s}s",
            "start": datetime.fromtimestamp(one.start_s, UTC).isoformat(),
            "key": None, **_numbers(one, metric.measure),
        }
        for one in counts.windows
    ]  # fmt: skip


def _numbers(one: KeyCount | WindowSum, measure: str) -> dict[str, object]:
    """Return count and value.

    An estimate also has its relative error, a percentile the error of its rank.
    """
    return {
        "count": one.count,
        "value": None if one.value is None else plain(one.value),
        "estimate": one.is_estimate,
        "error": error_of(measure) if one.is_estimate else None,
    }
