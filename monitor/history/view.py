"""The history as a page shows it: charts, sparklines and events over the chosen range.

This module reads from the disk, so its callers run it in worker threads. If the history cannot be
read, the charts have no lines and say so.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from monitor.config.settings import MonitorSettings
from monitor.history.recorder import Recorder
from monitor.history.series import ALERT_EVENT, samples_of
from monitor.state.levels import Event, Point
from monitor.state.snapshot import Snapshot
from monitor.views import render
from monitor.views.charts import ChartView, Mark, Plot, Spark, draw, letters_of, spark
from monitor.views.ranges import Axis, Span, axis_of, span_of

EVENTS_READ = 500
EVENTS_SHOWN = 12
ALERT_EVENTS_SHOWN = 30


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Reads the history for a page. `recorder` is None if no history is kept."""

    settings: MonitorSettings
    recorder: Recorder | None

    def axis(self, snapshot: Snapshot, range_key: str) -> tuple[Span, Axis]:
        """Return the requested range and its time axis.

        `all` begins with the oldest row of the history.
        """
        span = span_of(range_key, self.settings.section.retain_ms)
        oldest_ms = None
        if span.key == "all" and self.recorder is not None:
            with suppress(sqlite3.Error):
                oldest_ms = self.recorder.store.facts().oldest_ms
        return span, axis_of(span, snapshot.taken_at_ms, snapshot.refresh_ms, oldest_ms)

    def _read(self, names: Sequence[str], span: Span, axis: Axis) -> dict[str, list[Point]]:
        if self.recorder is None:
            return {}
        try:
            return self.recorder.store.read(names, axis.begin_ms, axis.end_ms, span.level)
        except sqlite3.Error:
            return {}

    def means(self, snapshot: Snapshot, names: Sequence[str], range_key: str) -> dict[str, float]:
        """Return the mean of each series over a range, for the series with values in it."""
        span, axis = self.axis(snapshot, range_key)
        points = self._read(names, span, axis)
        return {
            name: sum(one[1] for one in some) / len(some) for name, some in points.items() if some
        }

    def charts(
        self,
        snapshot: Snapshot,
        wanted: Sequence[Plot],
        span: Span,
        axis: Axis,
        letters: Sequence[Mark],
    ) -> list[tuple[ChartView, float]]:
        """Return charts that end with the current values, and the highest value on the axis of
        each.
        """
        names = [name for plot in wanted for name in plot.labels]
        points = self._read(names, span, axis)
        current = samples_of(snapshot, self.settings.stream_group)
        return [(draw(plot, points, axis, letters, current), plot.scale) for plot in wanted]

    def sparks(
        self,
        snapshot: Snapshot,
        names: dict[str, str],
        axis: Axis | None = None,
        span: Span | None = None,
    ) -> dict[str, Spark]:
        """Return sparklines by key, over ten minutes unless an axis is given."""
        if axis is None or span is None:
            span, axis = self.axis(snapshot, "10m")
        points = self._read(list(names.values()), span, axis)
        return {key: spark(points.get(name, ()), axis) for key, name in names.items()}

    def events(
        self, snapshot: Snapshot, axis: Axis
    ) -> tuple[list[Mark], list[tuple[object, str | None]]]:
        """Return the marks of events on an axis, and the last events.

        Each event has the letter of its mark, or None if it is not on the axis.
        """
        if self.recorder is None:
            return [], []
        try:
            store = self.recorder.store
            on_axis = store.events(axis.begin_ms, axis.end_ms, EVENTS_READ)
            last = store.events(0, snapshot.taken_at_ms + 1, EVENTS_SHOWN)
        except sqlite3.Error:
            return [], []
        letters = letters_of(on_axis, axis)
        known = {(mark.event.at_ms, mark.event.text): mark.letter for mark in letters}
        return letters, [(one, known.get((one.at_ms, one.text))) for one in last]

    def alert_events(self, snapshot: Snapshot) -> list[Event]:
        """Return the last events of alerts that opened or closed."""
        if self.recorder is None:
            return []
        try:
            last = self.recorder.store.events(0, snapshot.taken_at_ms + 1, EVENTS_READ)
        except sqlite3.Error:
            return []
        return [one for one in last if one.kind == ALERT_EVENT][:ALERT_EVENTS_SHOWN]

    def says(self) -> str:
        """Return a sentence with the size of the history and the time of its oldest row."""
        if self.recorder is None:
            return "keeps no history"
        try:
            facts = self.recorder.store.facts()
        except sqlite3.Error as error:
            return f"the history cannot be read: {error}"
        text = f"history {render.size(facts.size_bytes)}"
        if facts.oldest_ms is not None:
            text += f", back to {render.clock(facts.oldest_ms)[:16].replace('T', ' ')}"
        return text + (f"; {facts.dropped} series too many" if facts.dropped else "")
