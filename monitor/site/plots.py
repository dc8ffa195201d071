"""The charts of each page, and the names of their series.

This module is pure.
"""

from collections.abc import Sequence

from monitor.views.charts import Plot, compact
from monitor.views.stages import STAGES, TITLES, stage_series

MIB = 1 / (1 << 20)
LINES = Plot(
    "Lines", "a second", {"collected": "collected", "counted": "counted"}, lambda n: f"{n:,.0f}"
)
LAG = Plot("Stream lag", "lines", {"lag": "waiting"}, lambda n: f"{n:,.0f}", filled=True)
AGE = Plot("Oldest uncounted line", "seconds", {"age_s": "age"}, lambda n: f"{n:,.1f} s")
BATCH = Plot(
    "Batch",
    "milliseconds",
    {"batch_ms": "mean, with least and most"},
    lambda n: f"{n:,.0f} ms",
    banded=True,
)
TRAFFIC = Plot(
    "Brokers",
    "MiB a second",
    {"bytes_in": "in", "bytes_out": "out"},
    lambda n: f"{n:,.2f}",
    scale=MIB,
)
UNREAD = Plot(
    "Unread of files", "bytes", {"unread_bytes": "unread"}, lambda n: f"{n:,.0f}", filled=True,
)  # fmt: skip
LINE_AGE = Plot(
    "Line sent → number in the sinks", "seconds", {"line_p50_s": "p50", "line_p99_s": "p99"},
    lambda n: f"{n:,.2f} s",
)  # fmt: skip
NOT_PARSED = Plot(
    "Not parsed", "lines, and faults of single metrics",
    {"not_parsed": "lines", "metric_faults": "metric faults"}, lambda n: f"{n:,.0f}",
)  # fmt: skip
SYNC_SCALE = 1 / 1000


def stage_plot(stages: Sequence[str]) -> Plot:
    """Return the chart that stacks each stage's share of a batch."""
    return Plot(
        "Batch, by stage",
        "milliseconds, mean of a minute",
        {stage_series(stage, "ms"): TITLES[stage] for stage in stages},
        lambda n: f"{n:,.1f}" if n < 10 else f"{n:,.0f}",
        styles=tuple(f"f{STAGES.index(stage) + 1}" for stage in stages),
        stacked=True,
    )


def sync_plot(brokers: list[str]) -> Plot:
    """Return the chart of the brokers' 99th percentile of fsync times."""
    labels = {f"{name}.sync_p99_us": name.replace("-", " ") for name in brokers[:5]}
    return Plot(
        "Sync to disk, 99 %",
        "milliseconds",
        labels or {"broker-1.sync_p99_us": "broker 1"},
        lambda n: f"{n:,.1f}",
        scale=SYNC_SCALE,
    )


def group_plots(group_id: str) -> list[Plot]:
    """Return a group's charts: lag, age, rates."""
    base = f"group.{group_id}"
    return [
        Plot("Lag", "offsets", {f"{base}.lag": "waiting"}, lambda n: f"{n:,.0f}", filled=True),
        Plot("Oldest unread", "seconds", {f"{base}.age_s": "age"}, lambda n: f"{n:,.1f} s"),
        Plot(
            "Offsets",
            "a second",
            {f"{base}.read": "read", f"{base}.written": "written"},
            lambda n: f"{n:,.1f}" if n < 10 else compact(n),
        ),
    ]


def topic_plots(name: str) -> list[Plot]:
    """Return a topic's chart: its write rate."""
    return [Plot("Written", "offsets a second", {f"topic.{name}.written": "written"}, compact)]
