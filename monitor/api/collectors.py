"""The collectors of other hosts as rows and as Prometheus metrics.

This module is pure.
"""

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from monitor.state.collectors import CollectorView, Health
from monitor.state.snapshot import Snapshot
from monitor.views.collectors import counts


def collector_rows(snapshot: Snapshot) -> list[dict[str, object]]:
    """Return a row for each collector of another host, those with trouble first."""
    return [_row(one) for one in snapshot.collectors or ()]


def _row(view: CollectorView) -> dict[str, object]:
    report = view.report
    return {
        "collector": report.instance,
        "group": report.group,
        "host": report.host,
        "version": report.version,
        "health": str(view.health),
        "text": view.text,
        "state": report.state,
        "heard_at_ms": view.heard_at_ms,
        "silent_ms": view.silent_ms,
        "started_at_ms": report.started_at_ms,
        "last_commit_ms": report.last_commit_ms,
        "commit_interval_ms": report.commit_interval_ms,
        "skew_ms": report.skew_ms,
        "files": report.files,
        "lag_bytes": report.lag_bytes,
        "held_deleted_bytes": report.held_deleted_bytes,
        "lines_total": report.lines_total,
        "problems": [{"code": one.code, "text": one.text} for one in report.problems],
        "problems_total": report.problems_total,
    }


def collector_metrics(snapshot: Snapshot) -> Iterable[Metric]:
    """Yield the families of the collectors of other hosts; none if none has ever reported."""
    views = snapshot.collectors
    if views is None:
        return
    number = GaugeMetricFamily(
        "millrace_remote_collectors", "Collectors of other hosts, by state", labels=["state"]
    )
    for health, count in counts(views).items():
        number.add_metric([str(health)], count)
    labels = ["collector", "group"]
    silent = GaugeMetricFamily(
        "millrace_remote_collector_silent", "1 if a collector no longer reports", labels=labels
    )
    skew = GaugeMetricFamily(
        "millrace_remote_collector_skew_seconds",
        "Brokers' time minus a collector's time",
        labels=labels,
    )
    lag = GaugeMetricFamily(
        "millrace_remote_collector_lag_bytes",
        "Bytes of a collector's files that are not committed",
        labels=labels,
    )
    for view in views:
        key = [view.report.instance, view.report.group]
        silent.add_metric(key, view.health is Health.SILENT)
        lag.add_metric(key, view.report.lag_bytes)
        if view.report.skew_ms is not None:
            skew.add_metric(key, view.report.skew_ms / 1000)
    yield from (number, silent, skew, lag)
