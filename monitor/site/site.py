"""The values of each page, from the snapshot, the history and the counts, for its template.

These methods run in worker threads, because they read the history from the disk (`history/view`).
They never ask a broker.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psutil

from monitor.alerts.notifier import Notifier
from monitor.alerts.view import alert_views, rule_views
from monitor.asking.counts import SIZES, Asked, Counts, MetricView, described, metric_view
from monitor.config.following import Configured
from monitor.config.settings import MonitorSettings
from monitor.history.recorder import Recorder
from monitor.history.series import cell_series
from monitor.history.stage_view import stage_view
from monitor.history.view import HistoryView
from monitor.lag.reader_status import SEVERITY
from monitor.lag.rules import add_up
from monitor.site import plots
from monitor.site.brokers import brokers_view, change_facts
from monitor.site.flow import flow_of
from monitor.site.moves import moves_view, replicas_text
from monitor.state.resting_cells import topics_of
from monitor.state.snapshot import GroupView, LagCell, MemberView, PartView, Snapshot
from monitor.views import render
from monitor.views.changes import operations_of
from monitor.views.charts import Spark
from monitor.views.findings import findings_of
from monitor.views.not_counted import not_counted
from monitor.views.stages import stages_of

MINIS_MAX = 48
CELLS_SHOWN_MAX = 500
GROUPS_SHOWN_MAX = 200
FILES_SHOWN_MAX = 500
DEAD_LETTERS = "millrace.dead-letters"
"""The collector's topic for lines that it could not send."""

STATION_SERIES = ("collected", "busy", "unread_bytes", "bytes_in", "line_p50_s")
CELL_COLUMNS = (
    ("partition", "Partition", False),
    ("status", "Status", False),
    ("lag", "Lag, offsets", True),
    ("age", "Lag, time", True),
    ("", "Committed", True),
    ("", "End", True),
    ("", "Read", True),
    ("", "Written", True),
    ("", "Last commit", False),
    ("", "Member", False),
    ("", "Metadata", False),
)

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Site:
    """Builds the values of every page's template."""

    settings: MonitorSettings
    configured: Configured
    recorder: Recorder | None
    counts: Counts | None
    started_at_ms: int
    notifier: Notifier | None = None
    history_problem: str | None = None

    @property
    def _past(self) -> HistoryView:
        return HistoryView(self.settings, self.recorder)

    def common(self, snapshot: Snapshot) -> Values:
        """Return what every page shows: the snapshot, its findings and the changes under way."""
        inputs = [(one.paths, one.topic) for one in self.configured.now.inputs]
        return {
            "s": snapshot,
            "now_ms": snapshot.taken_at_ms,
            "findings": findings_of(snapshot, self.settings.stream_group, inputs),
            "operations": operations_of(snapshot),
        }

    def overview(self, snapshot: Snapshot, range_key: str) -> Values:
        """Return the values that the page `/` shows."""
        span, axis = self._past.axis(snapshot, range_key)
        brokers = [part.name for part in snapshot.parts if part.name.startswith("broker-")]
        wanted = [
            plots.LAG, plots.LINES, plots.LINE_AGE, plots.BATCH, plots.TRAFFIC,
            plots.sync_plot(brokers),
        ]  # fmt: skip
        letters, events = self._past.events(snapshot, axis)
        groups = snapshot.groups[:12]
        names = {name: name for name in STATION_SERIES}
        names |= {group.group_id: f"group.{group.group_id}.lag" for group in groups}
        own = psutil.Process().memory_info().rss
        return {
            "flow": flow_of(snapshot, self.settings.stream_group),
            "sparks": self._past.sparks(snapshot, names),
            "range": span.key,
            "axis": axis,
            "charts": self._past.charts(snapshot, wanted, span, axis, letters),
            "counts": self._counts_table(),
            "events": events,
            "started_at_ms": self.started_at_ms,
            "own_memory": own,
            "own_problem": self._own_problem(),
            "history_says": self._past.says(),
        }

    def counts_page(self, size: str, only: str | None) -> Values:
        """Return the values that the pages `/counts` and `/counts/<name>` show."""
        size = size if size in SIZES else "1m"
        asked = Asked(0) if self.counts is None else self.counts.latest(SIZES[size])
        views = [view for view in self._views(asked) if only in (None, view.name)]
        since = min(asked.since.values()) if asked.since else None
        return {
            "metrics": views,
            "size": size,
            "sizes": list(SIZES),
            "only": only,
            "error": asked.error,
            "summary": f"{len(views)} metrics, counted since {since:%Y-%m-%d}" if since else "",
        }

    def stream(self, snapshot: Snapshot, range_key: str, stages_key: str) -> Values:
        """Return the values that the page `/stream` shows."""
        span, axis = self._past.axis(snapshot, range_key)
        letters, _ = self._past.events(snapshot, axis)
        missed = not_counted(snapshot)
        rows = missed["rows"]
        return {
            "group": snapshot.group(self.settings.stream_group),
            **stage_view(snapshot, self._past, stages_key),
            "missed": missed,
            "unparsed": rows,
            "unparsed_most": max((row.get("count") or 0 for row in rows), default=0),
            "range": span.key,
            "axis": axis,
            "letters": letters,
            "charts": self._past.charts(
                snapshot,
                [
                    plots.stage_plot(stages_of(snapshot)), plots.LINE_AGE, plots.LINES, plots.LAG,
                    plots.AGE, plots.NOT_PARSED,
                ],
                span, axis, letters,
            ),
        }  # fmt: skip

    def groups(self, snapshot: Snapshot, sort: str, query: str) -> Values:
        """Return the values that the page `/groups` shows."""
        found = [group for group in snapshot.groups if query.lower() in group.group_id.lower()]
        found.sort(key=lambda group: _group_rank(group, sort))
        shown = found[:GROUPS_SHOWN_MAX]
        names = {group.group_id: f"group.{group.group_id}.lag" for group in shown}
        return {
            "groups": shown,
            "unlisted": len(found) - len(shown),
            "sort": sort,
            "q": query,
            "sparks": self._past.sparks(snapshot, names),
        }

    def group(
        self, snapshot: Snapshot, group: GroupView | None, range_key: str, sort: str
    ) -> Values:
        """Return the values that the page `/groups/<id>` shows."""
        assert group is not None, "the route looked"
        span, axis = self._past.axis(snapshot, range_key)
        letters, _ = self._past.events(snapshot, axis)
        worst = sorted(group.cells, key=lambda cell: -(cell.lag.lag or 0))[:MINIS_MAX]
        kept = {(cell.topic, cell.partition) for cell in worst}
        minis = [cell for cell in group.cells if (cell.topic, cell.partition) in kept]
        names = {
            f"{cell.topic}-{cell.partition}": cell_series(
                group.group_id, cell.topic, cell.partition
            )
            for cell in minis
        }
        drawn = self._past.sparks(snapshot, names, axis, span)
        cells = sorted(group.cells, key=lambda cell: _cell_rank(cell, sort))
        return {
            "group": group,
            "range": span.key,
            "axis": axis,
            "letters": letters,
            "charts": self._past.charts(
                snapshot, plots.group_plots(group.group_id), span, axis, letters
            ),
            "minis": [(cell, drawn[f"{cell.topic}-{cell.partition}"]) for cell in minis],
            "members": _member_rows(group),
            "columns": CELL_COLUMNS,
            "sort": sort,
            "cells": cells[:CELLS_SHOWN_MAX],
            "unlisted": max(0, len(cells) - CELLS_SHOWN_MAX),
        }

    def topics(self, snapshot: Snapshot, query: str) -> Values:
        """Return the values that the page `/topics` shows."""
        found = [topic for topic in snapshot.topics if query.lower() in topic.name.lower()]
        found.sort(key=lambda topic: (topic.internal, topic.name))
        readers: dict[str, list[str]] = {}
        for group in snapshot.groups:
            for name in topics_of(group.cells):
                readers.setdefault(name, []).append(group.group_id)
        names = {topic.name: f"topic.{topic.name}.written" for topic in found}
        return {
            "topics": found,
            "q": query,
            "readers": readers,
            "sparks": self._past.sparks(snapshot, names),
        }

    def topic(self, snapshot: Snapshot, name: str, range_key: str) -> Values:
        """Return the values that the page `/topics/<name>` shows."""
        topic = snapshot.topic(name)
        assert topic is not None, "the route looked"
        span, axis = self._past.axis(snapshot, range_key)
        letters, _ = self._past.events(snapshot, axis)
        readers = [group for group in snapshot.groups if name in topics_of(group.cells)]
        names = {group.group_id: f"group.{group.group_id}.lag" for group in readers}
        config = sorted(
            ((key, value, source) for key, (value, source) in topic.config.items()),
            key=lambda row: (row[2] == "DEFAULT_CONFIG", row[0]),
        )
        return {
            "topic": topic,
            "readers": readers,
            "config": config,
            "moves": moves_view([one for one in snapshot.moves if one.topic == name]),
            "replicas_text": replicas_text,
            "sparks": self._past.sparks(snapshot, names),
            "range": span.key,
            "axis": axis,
            "letters": letters,
            "charts": self._past.charts(snapshot, plots.topic_plots(name), span, axis, letters),
        }

    def brokers(self, snapshot: Snapshot) -> Values:
        """Return the values that the page `/brokers` shows."""
        own = {part.name: part for part in snapshot.parts if part.name.startswith("broker-")}
        return {
            "map": brokers_view(snapshot),
            "brokers": [
                (
                    broker,
                    part,
                    self._broker_lines(snapshot, broker.node_id, part),
                    change_facts(broker),
                )
                for broker in snapshot.brokers
                for part in (own.get(f"broker-{broker.node_id}"),)
            ],
            "requests": [
                (name, row) for name, part in own.items() for row in _listed(part, "apis")
            ],
            "traffic": [
                (name, row) for name, part in own.items() for row in _listed(part, "topic_list")
            ],
        }

    def collector(self, snapshot: Snapshot, range_key: str) -> Values:
        """Return the values that the page `/collector` shows."""
        span, axis = self._past.axis(snapshot, range_key)
        letters, _ = self._past.events(snapshot, axis)
        return {
            "files": render.file_rows(snapshot.part("collector"))[:FILES_SHOWN_MAX],
            "inputs": self.configured.now.inputs,
            "still": snapshot.still_files or (),
            "dead_letters": snapshot.topic(DEAD_LETTERS) is not None,
            "range": span.key,
            "axis": axis,
            "letters": letters,
            "charts": self._past.charts(snapshot, [plots.LINES, plots.UNREAD], span, axis, letters),
        }

    def alerts(self, snapshot: Snapshot) -> Values:
        """Return the values that the page `/alerts` shows."""
        section = self.settings.section.alerts
        notifier = self.notifier
        return {
            "open": alert_views(snapshot, has_webhook=notifier is not None),
            "unlisted": snapshot.alerts.unlisted,
            "rules": rule_views(snapshot),
            "events": self._past.alert_events(snapshot),
            "webhook": notifier.where if notifier else None,
            "told_at_ms": notifier.told_at_ms if notifier else None,
            "problem": notifier.problem if notifier else None,
            "repeat": render.duration(section.repeat_ms),
        }

    def _broker_lines(
        self, snapshot: Snapshot, node_id: int, part: PartView | None
    ) -> list[tuple[str, Spark, str]]:
        if part is None:
            return []
        told = part.details if part.reachable else {}
        texts = {
            "bytes_in": ("Bytes in", _per_second(told.get("bytes_in_per_s"))),
            "bytes_out": ("Bytes out", _per_second(told.get("bytes_out_per_s"))),
            "requests": ("Requests", render.rate(told.get("requests_per_s"))),
            "sync_p99_us": ("Sync, 99 %", render.micros(told.get("flush_us_p99"))),
            "loop_late_us": ("Loop late, 99 %", render.micros(told.get("loop_late_us_p99"))),
        }
        drawn = self._past.sparks(snapshot, {key: f"broker-{node_id}.{key}" for key in texts})
        return [(label, drawn[key], text) for key, (label, text) in texts.items()]

    def _views(self, asked: Asked) -> list[MetricView]:
        known = {metric.name: metric for metric in self.configured.now.metrics}
        order = {name: number for number, name in enumerate(known)}
        views = [
            metric_view(one, described(one.name, known, one), asked.at_ms // 1000)
            for one in asked.metrics
        ]
        return sorted(views, key=lambda view: (order.get(view.name, len(order)), view.name))

    def _counts_table(self) -> Values | None:
        if self.counts is None:
            return None
        asked = self.counts.latest(SIZES["1m"])
        views = self._views(asked)
        moment = (asked.at_ms // 60_000 - 1) * 60_000
        return {
            "metrics": views,
            "minute": render.clock_time(moment)[:5] if asked.at_ms else "",
            "summary": f"asked at {render.clock_time(asked.at_ms)}" if asked.at_ms else "",
            "empty": f"MySQL does not answer: {asked.error}" if asked.error else "Nothing yet.",
        }

    def _own_problem(self) -> str | None:
        told = (self.recorder, self.notifier)
        problems = [one.problem for one in told if one is not None and one.problem is not None]
        if self.history_problem is not None:
            problems.append(self.history_problem)
        return "; ".join(problems) or None


def _listed(part: PartView, key: str) -> Iterable[Any]:
    rows = part.details.get(key)
    return rows if isinstance(rows, list) else ()


def _per_second(value: object) -> str:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{render.size(value)}/s" if known else "measuring"


def _group_rank(group: GroupView, sort: str) -> tuple[object, ...]:
    """Return the sort key of a group: worst first, unknown last, equal groups by name."""
    if sort == "lag":
        return (not group.total.known, -group.total.lag, group.group_id)
    if sort == "age":
        age_ms = group.time_lag.age_ms
        return (age_ms is None, -(age_ms or 0), group.group_id)
    if sort == "status":
        return (-SEVERITY[group.judged.status], group.group_id)
    return (group.group_id,)


def _cell_rank(cell: LagCell, sort: str) -> tuple[object, ...]:
    if sort == "lag":
        return (cell.lag.lag is None, -(cell.lag.lag or 0), cell.topic, cell.partition)
    if sort == "age":
        age_ms = cell.time_lag.age_ms
        return (age_ms is None, -(age_ms or 0), cell.topic, cell.partition)
    if sort == "status":
        return (-SEVERITY[cell.judged.status], cell.topic, cell.partition)
    return (cell.topic, cell.partition)


def _member_rows(group: GroupView) -> list[tuple[MemberView, object, float]]:
    """Return each member with the total lag of its partitions, and that lag relative to the
    largest."""
    cells = {(cell.topic, cell.partition): cell.lag for cell in group.cells}
    sums = [
        (member, add_up(cells[row] for row in member.assignment if row in cells))
        for member in group.members or ()
    ]
    most = max((total.lag for _, total in sums), default=0)
    return [(member, total, total.lag / most if most else 0.0) for member, total in sums]
