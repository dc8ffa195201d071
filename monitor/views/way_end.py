"""Texts of the page about the sinks: how old a line is when it reaches them, and whether MySQL and
Redis agree.

This module is pure.
"""

from dataclasses import dataclass

from monitor.state.snapshot import Snapshot
from monitor.views import render
from monitor.views.stages import NOW, seconds, window_values


def in_step(snapshot: Snapshot) -> str:
    """Return whether Redis has the same last batch as MySQL, as text."""
    mysql, redis = snapshot.part("mysql"), snapshot.part("redis")
    if mysql is None or redis is None or not (mysql.reachable and redis.reachable):
        return ""
    if redis.details.get("rebuilding"):
        return "rebuilding"
    truth, shown = mysql.details.get("batch_id"), redis.details.get("batch")
    if truth is None or shown is None:
        return ""
    try:
        # The monitor asks MySQL first and Redis second. A batch can end in between, so a difference
        # of one is normal.
        return "in step" if abs(int(str(truth)) - int(str(shown))) <= 1 else "behind"
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True)
class LineAges:
    """Median and 99th percentile of the ages that live lines have when they reach the last sink, or
    why these are unknown.
    """

    sink: str = ""
    p50: str = ""
    p99: str = ""
    unknown: str = ""


def line_ages(snapshot: Snapshot) -> LineAges | None:
    """Return the ages of the last minute; None for a mill that counts nothing."""
    stream, sink = snapshot.part("stream"), snapshot.part("redis") or snapshot.part("mysql")
    if stream is None or sink is None:
        return None
    if not stream.reachable:
        return LineAges(unknown="unknown, the stream does not answer")
    ages = window_values(stream, NOW)
    if not ages:
        return LineAges(unknown="unknown, this stream does not tell")
    half, most = ages.get("line_p50_s"), ages.get("line_p99_s")
    if half is None or most is None:
        return LineAges(unknown="not measured, no live line came in the last minute")
    return LineAges(render.part_title(sink.name), seconds(half), seconds(most))


def end_of(snapshot: Snapshot, stream_group: str) -> str:
    """Return how far the stream has come with older lines, or why it does not process them."""
    redis = snapshot.part("redis") or snapshot.part("mysql")
    updated = redis.details.get("updated_at") if redis is not None else None
    group = snapshot.group(stream_group)
    if redis is not None and not redis.reachable:
        return f"No line reaches {render.part_title(redis.name)}: it does not answer."
    if group is not None and group.total.known and group.total.lag == 0:
        text = "Every line that the brokers hold is counted"
        return f"{text}; the last merge was at {updated}." if updated else f"{text}."
    return f"The last merge into Redis was at {updated}." if updated else ""
