"""The chain of stages for a range, from the stream's own windows or from the history.

This module reads the history from the disk, so its callers run it in worker threads.
"""

from typing import Any

from monitor.history.series import samples_of
from monitor.history.view import HistoryView
from monitor.state.snapshot import Snapshot
from monitor.views import render, stages
from monitor.views.way_end import in_step

COLLECTED = ("collected", "unread_bytes", stages.COLLECT_BUSY)
"""The names of the collector's series at the beginning of the chain."""


def stage_view(snapshot: Snapshot, past: HistoryView, asked: str) -> dict[str, Any]:
    """Return the stages for the stream's page. `asked` is the key of a range; an unknown key means
    the present.
    """
    key = next((one for one, _ in stages.RANGES if one == asked), stages.RANGES[0][0])
    values, beside = _values(snapshot, past, key)
    part = snapshot.part("stream")
    return {
        "stage_range": key,
        "stage_ranges": stages.RANGES,
        "stages": stages.stage_cards(values, beside, stages.stages_of(snapshot)),
        "busy_says": stages.says(values) if key == "now" else "",
        "bars": stages.batch_bars(part),
        "window_columns": stages.WINDOW_COLUMNS,
        "windows": stages.window_rows(part),
    }


def _values(
    snapshot: Snapshot, past: HistoryView, key: str
) -> tuple[dict[str, float], stages.Beside]:
    """Return the series of a range, and the figures that exist only for the present."""
    part = snapshot.part("stream")
    if key == "now":
        share = snapshot.unparsed_share
        beside = stages.Beside(
            render.UNKNOWN if share is None else render.percent(share),
            render.number(stages.replays(part)),
            in_step(snapshot) or render.UNKNOWN,
        )
        return samples_of(snapshot, past.settings.stream_group), beside
    values = past.means(snapshot, (*stages.SERIES, *COLLECTED), key)
    if key == stages.TEN_MINUTES:
        values |= stages.window_values(part, stages.TEN_MINUTES)
    return values, stages.Beside()
