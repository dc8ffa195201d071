"""The values of the page `/collectors`. This module is pure."""

from typing import Any

from monitor.state.collectors import Health
from monitor.state.snapshot import Snapshot
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


def collectors_page(snapshot: Snapshot, page: int) -> dict[str, Any]:
    """Return the values for one page of the list, or for the nearest page that exists."""
    views = snapshot.collectors or ()
    total = max(1, -(-len(views) // PAGE_ROWS))
    page = min(max(1, page), total)
    return {
        "shown": views[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
        "numbers": counts(views),
        "levels": LEVELS,
        "page": page,
        "pages_total": total,
    }
