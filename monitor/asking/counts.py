"""The counts that MySQL has of each metric, as views for the page and rows for the API.

`Counts` asks at most once in some seconds, however many pages are open; all below it is pure.
Windows add up for counts and sums only. Of unique keys, extremes, means and shares the page shows
the windows and no sum of them.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from monitor.config.settings import MetricSettings
from monitor.views import render
from monitor.views.charts import compact
from sinks.errors import SinkUnavailable
from sinks.read_counts import CountsReader, KeyCount, MetricCounts, WindowSum

ASK_EVERY_S = 5.0
WINDOWS = 60
KEYS_ASKED = 40
KEYS_SHOWN = 8
STRIP_KEYS = 3
METRICS_MAX = 100
SIZES = {"1m": 60, "1h": 3_600, "1d": 86_400}
ADDITIVE = ("count", "sum")
QUANTILES = ("p50", "p95", "p99")
BAR_STEP, BAR_WIDTH, BAR_HEIGHT = 4, 3, 24


@dataclass(frozen=True, slots=True)
class Asked:
    """One answer of the database: the metrics in order, or why there are none."""

    at_ms: int
    metrics: tuple[MetricCounts, ...] = ()
    since: Mapping[str, datetime] | None = None
    error: str | None = None


class Counts:
    """The last answer for each size; the first request after its time fetches a new one."""

    def __init__(self, connect: Callable[[], CountsReader], clock_ms: Callable[[], int]) -> None:
        self._connect = connect
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._asked: dict[int, tuple[float, Asked]] = {}
        self._asking: set[int] = set()

    def latest(self, size_s: int) -> Asked:
        """Return the last answer at once and fetch a new one in the background; only the first
        waits.
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
        """Return every metric's totals and its last windows of a size; wait for the database."""
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
    """One key: its text, its value, its share of the total, and the length of its bar."""

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
    """Return a metric as configured; describe an unconfigured one by its cells."""
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
    """Return the card of a metric."""
    size_s = counts.size_s
    whole = [one for one in counts.windows if one.start_s + size_s <= now_s]
    filling = [one for one in counts.windows if one.start_s + size_s > now_s]
    values = {one.start_s: _window_value(one, metric.measure) for one in counts.windows}
    total = _total(counts.totals, counts.keys_total, metric.measure)
    rows = _key_rows(counts, metric, total)
    top = max(values.values(), default=0.0)
    begin_s = now_s // size_s * size_s - (WINDOWS - 1) * size_s if size_s else 0

    def drawn(some: Sequence[WindowSum]) -> str:
        return _columns([(one, values[one.start_s]) for one in some], begin_s, size_s, top)

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
        total="–" if total is None else _text(total, metric),
        window=_text(values[whole[-1].start_s], metric) if whole else "–",
        strip=_strip(counts, total, metric),
        most=tuple((row.key, row.share) for row in rows[:STRIP_KEYS]) if metric.key else (),
    )


def _facts(
    counts: MetricCounts,
    metric: MetricSettings,
    total: float | None,
    windows: Sequence[tuple[WindowSum, float]],
    now_s: int,
) -> tuple[tuple[str, str], ...]:
    """Return a card's large numbers: total, last whole window, the one in progress, keys."""
    size_s = counts.size_s
    word = "total, within 1.6 %" if metric.measure == "unique" else "total"
    found = [(word, "not added up" if total is None else _text(total, metric))]
    whole = [pair for pair in windows if pair[0].start_s + size_s <= now_s]
    if whole:
        window, value = whole[-1]
        moment = _clock(window.start_s, size_s)
        found.append((f"in the {_size_word(size_s)} {moment}", _text(value, metric)))
    if len(whole) < len(windows):
        window, value = windows[-1]
        moment = _clock(window.start_s, size_s)
        found.append((f"in {moment}, still filling", _text(value, metric)))
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


def _window_value(window: WindowSum, measure: str) -> float:
    """Return a window as one number: a sum if keys add up, else their mean."""
    if window.value is None or measure == "count":
        return float(window.count)
    if measure in ADDITIVE or measure == "unique":
        return float(window.value)
    return float(window.value) / max(1, window.keys)


def _total(totals: Sequence[KeyCount], keys_total: int, measure: str) -> float | None:
    """Return the total over all keys that were fetched, if they add up."""
    if not totals:
        return None
    if keys_total > len(totals):
        return None
    if measure == "count":
        return float(sum(one.count for one in totals))
    if measure == "sum" or len(totals) == 1:
        return float(sum((_shown(one) for one in totals), Decimal(0)))
    return None


def _shown(one: KeyCount) -> Decimal:
    return Decimal(one.count) if one.value is None else one.value


def _text(value: float | None, metric: MetricSettings) -> str:
    if value is None:
        return render.UNKNOWN
    if metric.measure == "share":
        return f"{100 * value:.2f} %"
    if metric.measure == "sum" and metric.value and "bytes" in metric.value:
        return render.size(value)
    if metric.measure in ("count", "unique") or value == int(value):
        return render.number(value)
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def key_text(key: Sequence[str | None], metric: MetricSettings) -> str:
    """Return a key as text for people."""
    if not metric.key:
        return "all"
    return " | ".join("(null)" if part is None else part for part in key) or "(null)"


def _key_rows(
    counts: MetricCounts, metric: MetricSettings, total: float | None
) -> tuple[KeyRow, ...]:
    if not metric.key and metric.measure != "percentile":
        return ()
    rows = counts.totals or counts.latest
    most = max((float(_shown(one)) for one in rows), default=0.0)
    found = []
    for one in rows[:KEYS_SHOWN]:
        value = float(_shown(one))
        share = f"{100 * value / total:.1f} %" if total and metric.measure in ADDITIVE else ""
        quantiles = _quantiles(one.quantiles)
        text = render.number(one.count) if quantiles else _text(value, metric)
        found.append(
            KeyRow(key_text(one.key, metric), text, share, value / most if most else 0.0, quantiles)
        )
    return tuple(found)


def _quantiles(text: str | None) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        told = json.loads(text)
        return tuple(f"{float(told[rank]):,.6g}" for rank in QUANTILES)
    except (ValueError, KeyError, TypeError):
        return ()


def _note(counts: MetricCounts, metric: MetricSettings, rows: Sequence[KeyRow]) -> str:
    if metric.measure == "unique" and not metric.key:
        return "No key; within 1.6 %. Numbers of windows do not add up to the total."
    if not counts.totals and not counts.windows:
        return "Nothing is counted yet."
    if not rows:
        return "No key."
    keys_total = counts.keys_total or len(rows)
    return f"{len(rows)} of {keys_total:,} keys"


def _columns(
    windows: Sequence[tuple[WindowSum, float]], begin_s: int, size_s: int, top: float
) -> str:
    """Return windows as columns at their own places, so that an empty minute is a hole."""
    if not size_s or top <= 0:
        return ""
    found = []
    for window, value in windows:
        place = (window.start_s - begin_s) // size_s
        if 0 <= place < WINDOWS and value > 0:
            y = BAR_HEIGHT - max(1, round(value / top * (BAR_HEIGHT - 1)))
            found.append(f"M{place * BAR_STEP} {BAR_HEIGHT}V{y}h{BAR_WIDTH}V{BAR_HEIGHT}z")
    return "".join(found)


def _strip(
    counts: MetricCounts, total: float | None, metric: MetricSettings
) -> tuple[tuple[float, float], ...]:
    """Return the largest keys' shares as places and widths, in per cent."""
    if not total or not metric.key or metric.measure not in ADDITIVE:
        return ()
    found, x = [], 0.0
    for one in counts.totals[:STRIP_KEYS]:
        width = max(0.0, round(100 * float(_shown(one)) / total, 1))
        found.append((round(x, 1), width))
        x += width
    return tuple(found)


def _size_word(size_s: int) -> str:
    return {60: "minute", 3_600: "hour", 86_400: "day"}.get(size_s, "window")


def _clock(at_s: int, size_s: int) -> str:
    form = "%m-%d" if size_s >= SIZES["1d"] else "%H:%M"
    return datetime.fromtimestamp(at_s, UTC).strftime(form)


def count_rows(counts: MetricCounts, metric: MetricSettings) -> list[dict[str, object]]:
    """Return a metric's windows and totals for the API and for CSV."""
    rows: list[dict[str, object]] = [
        {
            "metric": counts.name, "size": "all", "start": None,
            "key": key_text(one.key, metric), "count": one.count,
            "value": None if one.value is None else str(one.value),
        }
        for one in counts.totals
    ]  # fmt: skip
    rows += [
        {
            "metric": counts.name, "size": f"{counts.size_s}s",
            "start": datetime.fromtimestamp(one.start_s, UTC).isoformat(),
            "key": None, "count": one.count,
            "value": None if one.value is None else str(one.value),
        }
        for one in counts.windows
    ]  # fmt: skip
    return rows
