"""Measures the alert rules about collectors of other hosts.

This module is pure. While the brokers do not answer, nothing is known of these collectors, so open
alerts stay open.
"""

from monitor.state.alert import Observed, Rule
from monitor.state.collectors import CollectorView, Health
from monitor.state.snapshot import Snapshot
from monitor.views import render

PAGE = "/collectors"


def _known(snapshot: Snapshot) -> tuple[CollectorView, ...] | None:
    is_known = snapshot.kafka_at_ms is not None and snapshot.kafka_at_ms == snapshot.taken_at_ms
    return snapshot.collectors or () if is_known else None


def collector_silent(_: Rule, snapshot: Snapshot) -> list[Observed] | None:
    """Return 1 for each collector that no longer reports although it has not stopped, and 0 for the
    other collectors."""
    views = _known(snapshot)
    if views is None:
        return None
    found = []
    for view in views:
        name = view.report.instance
        text = f"the collector {name} on {view.report.host} is silent: {view.text}"
        found.append(Observed(name, float(view.health is Health.SILENT), text, PAGE))
    return found


def collector_skew(_: Rule, snapshot: Snapshot) -> list[Observed] | None:
    """Return for each collector how far its clock is from the brokers', in milliseconds. It is None
    for a collector that is silent or has stopped."""
    views = _known(snapshot)
    if views is None:
        return None
    found = []
    for view in views:
        skew_ms, name = view.report.skew_ms, view.report.instance
        is_current = view.health not in (Health.SILENT, Health.STOPPED)
        value = float(abs(skew_ms)) if skew_ms is not None and is_current else None
        text = f"the clock of the collector {name} differs from the brokers' by"
        found.append(Observed(name, value, f"{text} {render.duration(value)}", PAGE))
    return found
