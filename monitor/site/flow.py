"""The picture of the mill: the parts as stations, and the lines that flow between them as water.

This module is pure. A reach is the water between two stations: a channel, and a pool if lines wait
for the second station. The width of the channel is the logarithm of its rate. The height of the
pool is the logarithm of the age of its oldest line. Unknown values are dashed and called unknown,
never 0 and never green.
"""

import math
from dataclasses import dataclass

from monitor.lag.reader_status import BAD, WARN
from monitor.state.partition_health import health_of
from monitor.state.snapshot import BrokerView, PartView, Snapshot
from monitor.views import render
from monitor.views.stages import NOW, sink_time, window_values
from monitor.views.way_end import LineAges, end_of, in_step, line_ages

RATE_LEAST, RATE_MOST = 10.0, 100_000.0
AGE_SHOWN_S, AGE_MOST_S = 2.0, 600.0
MIDDLE = 42.0
CHANNEL_LEAST, CHANNEL_WIDER = 2.0, 6.0
POOL_HIGHER = 34.0
POOL_MOST = 40.0

Fact = tuple[str, str]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One broker's row in the station of the brokers."""

    node_id: int
    level: str
    text: str
    leads: str


@dataclass(frozen=True, slots=True)
class Station:
    """A station: its level, the word on its badge, and its facts."""

    name: str
    href: str
    icon: str
    level: str
    badge: str
    facts: tuple[Fact, ...] = ()
    says: str = ""
    nodes: tuple[NodeRow, ...] = ()
    series: str = ""
    series_text: str = ""


@dataclass(frozen=True, slots=True)
class Reach:
    """The water between two stations: its rate, what waits at its end, and its SVG paths.

    The paths are drawn in a box of 100 by 84 units.
    """

    level: str
    rate: str
    rate_unit: str
    wait: str
    wait_unit: str
    wait_more: str = ""
    stream: str = ""
    bank: str = ""
    dry: str = ""
    pool: str = ""
    wave: str = ""
    chevrons: str = ""


@dataclass(frozen=True, slots=True)
class Flow:
    """The picture of the mill: its stations, and the reaches between them, in order."""

    files: Station
    to_collector: Reach
    collector: Station
    to_brokers: Reach
    brokers: Station
    to_stream: Reach
    stream: Station
    to_sinks: tuple[Reach, ...]
    sinks: tuple[Station, ...]
    end: str = ""
    line: LineAges | None = None


def flow_of(snapshot: Snapshot, stream_group: str) -> Flow:
    """Return the picture of the mill for a snapshot."""
    collector, stream = snapshot.part("collector"), snapshot.part("stream")
    sinks = tuple(
        _sink(part, snapshot) for name in ("mysql", "redis") if (part := snapshot.part(name))
    )
    return Flow(
        files=_files(collector, snapshot.taken_at_ms),
        to_collector=_to_collector(collector),
        collector=_collector(collector, snapshot.taken_at_ms),
        to_brokers=_to_brokers(snapshot, collector),
        brokers=_brokers(snapshot, stream_group),
        to_stream=_to_stream(snapshot, stream_group),
        stream=_stream(stream, snapshot),
        to_sinks=tuple(_to_sink(one, stream, snapshot) for one in sinks),
        sinks=sinks,
        end=end_of(snapshot, stream_group),
        line=line_ages(snapshot),
    )


def water(rate: float | None, age_s: float | None, level: str) -> dict[str, str]:
    """Return the SVG paths of a reach.

    It has a channel, and a pool if the oldest line is two seconds old. Dashes mean that nothing
    flows.
    """
    if rate is None or rate <= 0:
        half = 4.0
        dry = f"M0 {MIDDLE - half:.1f}H100M0 {MIDDLE + half:.1f}H100"
        return {"dry": dry, **_pool(age_s, half, level)}
    share = math.log(max(rate, RATE_LEAST) / RATE_LEAST) / math.log(RATE_MOST / RATE_LEAST)
    half = CHANNEL_LEAST + CHANNEL_WIDER * min(1.0, share)
    top, bottom = MIDDLE - half, MIDDLE + half
    pool = _pool(age_s, half, level)
    size = 1.1 + 0.52 * half
    chevrons = "".join(
        f"M{x} {MIDDLE - size:.1f}l{size:.1f} {size:.1f} -{size:.1f} {size:.1f}"
        for x in ((12, 28) if pool else (22, 46, 70))
    )
    return {
        "stream": f"M0 {top:.1f}H100V{bottom:.1f}H0z",
        "bank": f"M0 {top:.1f}H100M0 {bottom:.1f}H100",
        "chevrons": chevrons,
        **pool,
    }


def _pool(age_s: float | None, half: float, level: str) -> dict[str, str]:
    if age_s is None or age_s < AGE_SHOWN_S or level not in ("warn", "bad"):
        return {}
    height = min(POOL_MOST, half + POOL_HIGHER * math.log(age_s) / math.log(AGE_MOST_S))
    top, bottom = MIDDLE - half, MIDDLE + half
    high, low = MIDDLE - height, MIDDLE + height
    pool = (
        f"M38 {top:.1f}C66 {top:.1f} 66 {high:.1f} 100 {high:.1f}"
        f"V{low:.1f}C66 {low:.1f} 66 {bottom:.1f} 38 {bottom:.1f}z"
    )
    rows = [MIDDLE + step * 17 for step in (-1, 0, 1) if abs(step * 17) < height - 8]
    wave = "".join(f"M84 {y:.0f}q3 -3 6 0t6 0" for y in rows) + f"M72 {MIDDLE:.0f}q3 -3 6 0t6 0"
    return {"pool": pool, "wave": wave}


def _rate(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _rate_text(rate: float | None, *, known: bool = True) -> str:
    if rate is None:
        return "measuring" if known else render.UNKNOWN
    return f"{rate:,.1f}" if 0 < rate < 10 else f"{rate:,.0f}"


def _files(collector: PartView | None, now_ms: int) -> Station:
    name, href, icon = "Watched files", "/collector", "files"
    if collector is None:
        return Station(name, href, icon, "idle", "not read here")
    rows = render.file_rows(collector)
    told = collector.details.get("files_total")
    total = told if isinstance(told, int) else len(rows)
    if not collector.reachable:
        facts: tuple[Fact, ...] = ()
        if collector.answered_at_ms is not None:
            age = render.duration(now_ms - collector.answered_at_ms)
            facts = (("files", f"{total}, {age} ago"),)
        return Station(name, href, icon, "unknown", "unknown", facts, series="unread_bytes")
    if not total:
        return Station(name, href, icon, "idle", "no files", says="no file matches an input")
    unreadable = sum(1 for row in rows if row.get("error"))
    growing = sum(1 for row in rows if row.get("lag_bytes"))
    facts = (("being read", str(growing)), ("at their end", str(len(rows) - growing)))
    if unreadable:
        return Station(
            name, href, icon, "warn", f"{unreadable} of {total} faulty", facts,
            series="collected", series_text="lines collected, 10 min",
        )  # fmt: skip
    return Station(
        name, href, icon, "good", render.counted(total, "file"), facts,
        series="unread_bytes", series_text="bytes unread, 10 min",
    )  # fmt: skip


def _to_collector(collector: PartView | None) -> Reach:
    if collector is None or not collector.reachable:
        unread = collector.details.get("lag_bytes_total") if collector else None
        wait = render.size(unread) if unread is not None else render.UNKNOWN
        more = "when last seen" if unread is not None else ""
        return Reach(
            "unknown", render.UNKNOWN, "", wait, "unread", more, **water(None, None, "unknown")
        )
    rate = _rate(collector.details.get("rate_lines_s"))
    level = "bad" if collector.stuck else "good"
    return Reach(
        level, _rate_text(rate), "lines/s",
        render.size(collector.details.get("lag_bytes_total")), "unread",
        **water(rate, None, level),
    )  # fmt: skip


def _collector(part: PartView | None, now_ms: int) -> Station:
    if part is None:
        return Station("Collector", "/collector", "intake", "idle", "not part of this mill")
    facts: tuple[Fact, ...] = ()
    says = ""
    if part.reachable:
        facts = (
            ("lines", render.number(_rate(part.details.get("lines_total")))),
            ("bytes", render.size(part.details.get("bytes_total"))),
            ("inputs", render.number(_rate(part.details.get("inputs")))),
        )
    else:
        says = render.part_says(part, now_ms)
    return Station(
        "Collector", "/collector", "intake", render.health_level(part), render.health(part),
        facts, says, series="collected", series_text="lines/s, 10 min",
    )  # fmt: skip


def _to_brokers(snapshot: Snapshot, collector: PartView | None) -> Reach:
    topics = [topic for topic in snapshot.topics if not topic.internal and not _own(topic.name)]
    rates = [topic.write_rate for topic in topics]
    known = [rate for rate in rates if rate is not None]
    fresh = snapshot.kafka_at_ms == snapshot.taken_at_ms
    rate = sum(known) if known and fresh else None
    problem = any("acknowledgement" in text for text in (collector.problems if collector else ()))
    level = "unknown" if not fresh else "bad" if problem else "good"
    wait = "no acknowledgement" if problem else ""
    return Reach(
        level, _rate_text(rate, known=fresh), "lines/s", wait, "", **water(rate, None, level)
    )


def _own(topic: str) -> bool:
    return topic.startswith("millrace.")


def _brokers(snapshot: Snapshot, stream_group: str) -> Station:
    health = health_of(snapshot.partitions)
    alive = sum(1 for broker in snapshot.brokers if broker.alive)
    nodes = tuple(
        NodeRow(
            broker.node_id,
            {"up": "good", "fenced": "warn"}.get(broker.state, "bad"),
            _node_words(broker),
            f"leads {broker.leads}",
        )
        for broker in snapshot.brokers[:6]
    )
    others = [group for group in snapshot.groups if group.group_id != stream_group]
    ill = sum(1 for group in others if group.judged.status in BAD | WARN)
    facts: tuple[Fact, ...] = (
        ("partitions", f"{health.total}, {health.offline} offline"),
        ("other readers", f"{len(others)}" + (f", ✕ {ill} not well" if ill else "")),
    )
    if not snapshot.brokers:
        return Station("Brokers", "/brokers", "cluster", "unknown", "unknown", series="bytes_in")
    if not alive:
        level, badge = "bad", "none answers"
        facts = (("partitions", f"{health.total} when last seen"),)
    elif health.offline:
        level, badge = "bad", f"{health.offline} offline"
    elif alive < len(snapshot.brokers):
        level, badge = "warn", f"{alive} of {len(snapshot.brokers)} up"
    elif health.under_replicated:
        level, badge = "warn", f"{health.under_replicated} under-replicated"
    else:
        level, badge = "good", f"{alive} of {alive} up" if alive > 1 else "up"
    return Station(
        "Brokers", "/brokers", "cluster", level, badge, facts, nodes=nodes,
        series="bytes_in", series_text="bytes in, 10 min",
    )  # fmt: skip


def _node_words(broker: BrokerView) -> str:
    word = {"down": "✕ down", "fenced": "▲ fenced"}.get(broker.state, broker.state)
    return f"{word}, controller" if broker.is_controller and broker.alive else word


def _to_stream(snapshot: Snapshot, stream_group: str) -> Reach:
    group, stream = snapshot.group(stream_group), snapshot.part("stream")
    if group is None or not group.total.known:
        wait = "0" if group is None and snapshot.kafka_at_ms == snapshot.taken_at_ms else "unknown"
        reason = "nothing committed yet" if group is None else "its end is not known"
        return Reach(
            "unknown", render.UNKNOWN if group else "0", "lines/s" if group is None else "",
            "unknown" if group else wait, "lines wait", reason, **water(None, None, "unknown"),
        )  # fmt: skip
    age_s = (group.time_lag.age_ms or 0) / 1000
    stuck = stream is not None and (stream.stuck is not None or not stream.reachable)
    growing = group.judged.status in BAD | WARN and group.eta_s is None
    level = "good"
    if group.total.lag and age_s >= AGE_SHOWN_S * 5:
        level = "bad" if stuck or growing else "warn"
    elif group.total.lag and stuck:
        level = "bad"
    sum_text = render.number(group.total.lag)
    wait = sum_text if group.total.complete else f"≥ {sum_text}"
    oldest = render.age(group.time_lag).removeprefix("about ")
    more = f"oldest {oldest}" if group.total.lag else ""
    if not group.total.complete:
        more = f"{more}; {group.total.known} of {group.total.total} known".lstrip("; ")
    return Reach(
        level, _rate_text(group.read_rate), "lines/s", wait, "lines wait", more,
        **water(group.read_rate, age_s, level),
    )  # fmt: skip


def _stream(part: PartView | None, snapshot: Snapshot) -> Station:
    if part is None:
        return Station("Stream", "/stream", "wheel", "idle", "not part of this mill")
    mysql = snapshot.part("mysql")
    missed = mysql.details.get("lines_unparsed") if mysql is not None else None
    busy = window_values(part, NOW).get("busy")
    facts: tuple[Fact, ...] = ()
    says = ""
    if part.reachable:
        batch = part.details.get("batch_ms")
        done = part.details.get("last_batch_at_ms") is not None
        facts = (
            ("batch", f"{batch:,} ms" if done and isinstance(batch, int) else "none yet"),
            ("busy", render.UNKNOWN if busy is None else render.percent(busy)),
            ("not parsed", render.number(_rate(missed))),
        )
    else:
        says = render.part_says(part, snapshot.taken_at_ms)
    return Station(
        "Stream", "/stream", "wheel", render.health_level(part), render.health(part), facts, says,
        series="busy", series_text="busy, 10 min",
    )  # fmt: skip


def _sink(part: PartView, snapshot: Snapshot) -> Station:
    name = render.part_title(part.name)
    facts: tuple[Fact, ...] = ()
    stream = snapshot.part("stream")
    if part.name == "mysql" and part.reachable:
        facts = (
            ("transaction", sink_time(stream, "mysql")),
            ("batch", render.number(_rate(part.details.get("batch_id")))),
        )
    elif part.reachable:
        facts = (
            ("merge", sink_time(stream, "redis")),
            ("keys", render.number(_rate(part.details.get("keys")))),
        )
    says = "" if part.reachable else render.part_says(part, snapshot.taken_at_ms)
    icon = "table" if part.name == "mysql" else "bolt"
    return Station(
        name, "/counts", icon, render.health_level(part), render.health(part), facts, says
    )


def _to_sink(station: Station, stream: PartView | None, snapshot: Snapshot) -> Reach:
    rate = window_values(stream, NOW).get("cells")
    if station.level == "bad":
        return Reach("bad", "0", "cells/s", "waits", "", **water(None, None, "bad"))
    if rate is None:
        return Reach("unknown", render.UNKNOWN, "", "", "", **water(None, None, "unknown"))
    step = in_step(snapshot)
    level = "warn" if step == "behind" and station.name == "Redis" else "good"
    return Reach(
        level, _rate_text(rate), "cells/s", step if station.name == "Redis" else "the truth", "",
        **water(rate, None, level),
    )  # fmt: skip
