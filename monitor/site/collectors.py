"""The values of the page `/collectors`. This module is pure."""

from typing import Any

from monitor.state.collectors import Health
from monitor.state.snapshot import Snapshot
from monitor.views import render
from monitor.views.collectors import counts

PAGE_ROWS = 50

LEVELS = {
    Health.SILENT: "bad",
    Health.PROBLEM: "bad",
    Health.SKEWED: "warn",
    Health.BEHIND: "warn",
    Health.STOPPED: "idle",
    Health.WORKING: "good",
}

SKEW_SHOWN_MS = 100
"""A smaller difference of two clocks is shown as none, because it is only the time on the way."""


def skew_text(skew_ms: int | None) -> str:
    """Return how far a collector's clock is ahead of (+) or behind (−) the brokers'."""
    if skew_ms is None:
        return render.UNKNOWN
    if abs(skew_ms) < SKEW_SHOWN_MS:
        return render.duration(0)
    return f"{'−' if skew_ms > 0 else '+'}{render.duration(abs(skew_ms))}"


def collectors_page(snapshot: Snapshot, page: int) -> dict[str, Any]:
    """Return the values for one page of the list, or for the nearest page that exists."""
    views = snapshot.collectors or ()
    total = max(1, -(-len(views) // PAGE_ROWS))
    page = min(max(1, page), total)
    return {
        "shown": views[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
        "numbers": counts(views),
        "levels": LEVELS,
        "skew_text": skew_text,
        "page": page,
        "pages_total": total,
    }
