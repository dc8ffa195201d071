"""Judges the collectors of other hosts by their reports.

This module is pure: the time is an argument.
"""

from collections.abc import Iterable

from monitor.state.collectors import CollectorView, Health, Heard
from monitor.views import render
from protocol.collector_report import STOPPED

SILENT_MS = 60_000
SKEW_MS_MAX = 60_000
BEHIND_BYTES = 4 << 20
"""A collector whose files have more uncommitted bytes than this is behind."""
FORGET_MS = 7 * 86_400_000
"""A collector that has not reported for this time is no longer listed."""

ORDER = {health: number for number, health in enumerate(Health)}


def judge(heard: Iterable[Heard], now_ms: int) -> tuple[CollectorView, ...]:
    """Return the collectors at `now_ms`, those with trouble first, then by name."""
    views = [_view(one, now_ms) for one in heard if now_ms - one.at_ms < FORGET_MS]
    return tuple(sorted(views, key=lambda one: (ORDER[one.health], one.report.instance)))


def _view(heard: Heard, now_ms: int) -> CollectorView:
    report = heard.report
    silent_ms = max(0, now_ms - heard.at_ms)
    health, text = _health(heard, silent_ms)
    return CollectorView(report, heard.at_ms, health, silent_ms, text)


def _health(heard: Heard, silent_ms: int) -> tuple[Health, str]:
    report = heard.report
    if report.state == STOPPED:
        return Health.STOPPED, ""
    if silent_ms > SILENT_MS:
        return Health.SILENT, f"no report for {render.duration(silent_ms)}"
    if report.problems:
        more = report.problems_total - 1
        first = f"{report.problems[0].code}: {report.problems[0].text}"
        return Health.PROBLEM, f"{first}; and {more} more" if more > 0 else first
    if heard.fenced_host is not None:
        host = heard.fenced_host
        return Health.PROBLEM, f"a collector of the same name on {host} has ended because of it"
    if heard.twin is not None and heard.at_ms - heard.twin[1] < SILENT_MS:
        return Health.PROBLEM, f"another collector of the same name reports from {heard.twin[0]}"
    if report.skew_ms is not None and abs(report.skew_ms) > SKEW_MS_MAX:
        side = "behind" if report.skew_ms > 0 else "ahead of"
        return (
            Health.SKEWED,
            f"its clock is {render.duration(abs(report.skew_ms))} {side} the brokers'",
        )
    if report.lag_bytes > BEHIND_BYTES:
        return Health.BEHIND, "its files have bytes that are not committed"
    return Health.WORKING, ""


def counts(views: Iterable[CollectorView]) -> dict[Health, int]:
    """Return the number of collectors in each state, also the zeros."""
    found = dict.fromkeys(Health, 0)
    for one in views:
        found[one.health] += 1
    return found
