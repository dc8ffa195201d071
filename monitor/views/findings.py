"""The findings: each fault as one sentence with its cause, the worst first.

This module is pure. Faults that stop lines come first. The order is: a part that is down or stuck,
a partition that cannot be written, a configuration that is not in effect, lag that grows, lag that
shrinks, and last the readers outside the mill.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from monitor.lag.reader_status import BAD, WARN
from monitor.state.alert import Kind
from monitor.state.filling import DAYS_WARNING
from monitor.state.levels import DAY_MS
from monitor.state.partition_health import health_of
from monitor.state.resting_cells import judged_of
from monitor.state.snapshot import GroupView, PartView, Snapshot
from monitor.views import render
from monitor.views.links import group_href, part_page

CATCHING_UP_MS = 10_000
"""The unread lines of a stream that keeps up are younger than this."""

GLYPHS = {"good": "●", "warn": "▲", "bad": "✕", "unknown": "?", "idle": "○"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence with its badge: `level` is good, warn, bad, unknown or idle, and `badge` the
    word on it.

    `lead` is the emphasised part of the sentence, `href` the page with details.
    """

    level: str
    badge: str
    lead: str
    text: str = ""
    detail: str = ""
    href: str = "/"

    @property
    def glyph(self) -> str:
        """The symbol of the level, so that no reader depends on its colour."""
        return GLYPHS[self.level]


def findings_of(
    snapshot: Snapshot, stream_group: str, inputs: Sequence[tuple[Sequence[str], str]] = ()
) -> list[Finding]:
    """Return all findings, worst first; never an empty list."""
    found = [
        *_parts(snapshot),
        *_brokers(snapshot),
        *_configuration(snapshot),
        *_alerts(snapshot),
        *_stream_lag(snapshot, stream_group),
        *_degraded(snapshot),
        *_groups(snapshot, stream_group),
        *_disks(snapshot),
        *_notices(snapshot),
    ]
    rank = {"bad": 0, "warn": 1}
    found.sort(key=lambda one: rank.get(one.level, 2))
    return found or [_well(snapshot, inputs)]


def _clock(at_ms: int | None) -> str:
    return render.clock_time(at_ms) if at_ms is not None else render.UNKNOWN


def _parts(snapshot: Snapshot) -> Iterator[Finding]:
    now_ms = snapshot.taken_at_ms
    for part in snapshot.parts:
        word = render.health(part)
        href = part_page(part.name)
        name = render.part_title(part.name)
        if word == "failed":
            said = f"Its last message: {part.words}" if part.words else (part.error or "")
            yield Finding(
                "bad", f"{part.name} failed", f"{name} has given up",
                " and is not started again.", said, href,
            )  # fmt: skip
        elif word == "down":
            since = f" since {_clock(part.away_since_ms)}." if part.away_since_ms else "."
            meaning = _consequences(snapshot) if part.name.startswith("broker-") else ""
            known = (meaning, part.error, _last_seen(part, now_ms), part.words)
            detail = ". ".join(filter(None, known))
            yield Finding(
                "bad", f"{part.name} down", f"{name} does not answer", since, detail, href
            )
        elif part.stuck is not None:
            since_s = render.duration(now_ms - part.stuck.since_ms)
            cause = "; ".join(part.problems) or (part.words or "")
            yield Finding(
                "bad", f"{part.name} stuck", f"{name} has made no progress for {since_s}",
                f"; {part.stuck.over}.", cause, href,
            )  # fmt: skip


def _consequences(snapshot: Snapshot) -> str:
    """Return what a missing broker means for producers; empty if no broker answers, because another
    finding says so.
    """
    if not any(broker.alive for broker in snapshot.brokers):
        return ""
    return health_of(snapshot.partitions).meaning.removesuffix(".")


def _last_seen(part: PartView, now_ms: int) -> str:
    if part.answered_at_ms is None:
        return "It has never answered"
    return f"The page shows its state of {render.duration(now_ms - part.answered_at_ms)} ago"


def _brokers(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.errors and not any(one.alive for one in snapshot.brokers):
        since = ""
        if snapshot.kafka_at_ms is not None:
            age = render.duration(snapshot.taken_at_ms - snapshot.kafka_at_ms)
            since = f"; topics and groups are {age} old."
        detail = "; ".join(error.text for error in snapshot.errors)
        yield Finding("bad", "no broker", "No broker answers", since, detail, "/brokers")
        return
    health = health_of(snapshot.partitions)
    away = [broker for broker in snapshot.brokers if not broker.alive]
    if health.offline:
        first = next(part for part in snapshot.partitions if part.leader is None)
        yield Finding(
            "bad", f"{health.offline} offline", f"{health.offline} partitions have no leader",
            f", among them {first.topic}-{first.partition}: they can be neither written nor read.",
            href="/brokers",
        )  # fmt: skip
    elif health.under_min_isr:
        yield Finding(
            "bad", f"{health.under_min_isr} under min ISR",
            f"{health.under_min_isr} partitions have too few replicas in sync",
            ": writes with acks=all are refused.", href="/brokers",
        )  # fmt: skip
    if health.under_replicated and not away:
        yield Finding(
            "warn", f"{health.under_replicated} under-replicated",
            f"{health.under_replicated} of {health.total} partitions are under-replicated",
            "; writes go on as long as enough replicas are in sync.", href="/brokers",
        )  # fmt: skip
    own = {part.name for part in snapshot.parts}
    silent = {part.name for part in snapshot.parts if not part.reachable}
    for broker in snapshot.brokers:
        if not broker.alive and f"broker-{broker.node_id}" not in silent:
            yield Finding(
                "bad", f"broker {broker.node_id} down",
                f"Broker {broker.node_id} does not answer",
                f" since {_clock(broker.away_since_ms)}.",
                ". ".join(filter(None, (_consequences(snapshot), broker.error))), "/brokers",
            )  # fmt: skip
        elif broker.fenced and f"broker-{broker.node_id}" not in own:
            yield Finding(
                "warn", f"broker {broker.node_id} fenced",
                f"Broker {broker.node_id} answers, but is out of service",
                ": it leads no partition, and none of its replicas is in sync.", "", "/brokers",
            )  # fmt: skip


def _configuration(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.config_problem:
        yield Finding(
            "warn", "configuration", "The saved configuration is not in effect",
            ".", snapshot.config_problem, "/stream",
        )  # fmt: skip
    if snapshot.config_notice:
        yield Finding(
            "warn", "metrics removed", "The saved configuration has removed metrics",
            ".", snapshot.config_notice, "/counts",
        )  # fmt: skip


SAID_ANYWAY = (Kind.PART_DOWN, Kind.PART_STUCK)
"""The kinds of alerts that are left out here, because the findings about parts already report the
same fault, and sooner."""


def _alerts(snapshot: Snapshot) -> Iterator[Finding]:
    for one in snapshot.alerts.open:
        if one.kind not in SAID_ANYWAY:
            level = "bad" if one.kind is Kind.DISK_FREE else "warn"
            lead = one.text[:1].upper() + one.text[1:]
            since = f"The alert {one.rule} has been open since {_clock(one.opened_at_ms)}."
            yield Finding(level, f"alert {one.rule}", lead, ".", since, one.page)


def _stream_lag(snapshot: Snapshot, stream_group: str) -> Iterator[Finding]:
    group = snapshot.group(stream_group)
    stream = snapshot.part("stream")
    if group is None or not group.total.known or not group.total.lag:
        return
    if stream is not None and stream.stuck is not None:
        return
    age_ms = group.time_lag.age_ms
    lead = f"The stream lags {render.number(group.total.lag)} lines"
    if group.judged.status in BAD | WARN and group.eta_s is None:
        word = render.status_word(group.judged.status)
        text = f", the oldest {render.age(group.time_lag)}."
        yield Finding("warn", word, lead, text, group.judged.reason, "/stream")
    elif age_ms is not None and age_ms > CATCHING_UP_MS:
        eta = render.eta(group)
        more = f" It catches up in about {eta}." if group.eta_s is not None else f" It is {eta}."
        text = f", the oldest {render.age(group.time_lag)}.{more}"
        yield Finding("warn", "catching up", lead, text, "", "/stream")


def _degraded(snapshot: Snapshot) -> Iterator[Finding]:
    faulty = [row for row in render.file_rows(snapshot.part("collector")) if row.get("error")]
    if faulty:
        count = "1 file is" if len(faulty) == 1 else f"{len(faulty)} files are"
        yield Finding(
            "warn", "files", f"{count} not read to the end",
            f", among them {faulty[0].get('path')}.", str(faulty[0].get("error")), "/collector",
        )  # fmt: skip
    for part in snapshot.parts:
        if render.health_level(part) == "warn" and part.stuck is None:
            word = render.health(part)
            text = "; ".join(part.problems) or part.words or part.error or ""
            yield Finding(
                "warn", f"{part.name} {word}", f"{render.part_title(part.name)} is {word}",
                ".", text, part_page(part.name),
            )  # fmt: skip


def _groups(snapshot: Snapshot, stream_group: str) -> Iterator[Finding]:
    for group in snapshot.groups:
        if group.group_id == stream_group:
            continue
        href = group_href(group.group_id)
        status = group.judged.status
        if status in BAD or status in WARN:
            level = "bad" if status in BAD else "warn"
            where = _worst_cells(group)
            yield Finding(
                level, group.group_id, f"{group.group_id}: {where} {_is(group)}",
                f"; it lags {render.number(group.total.lag)} records.", group.judged.reason, href,
            )  # fmt: skip


def _disks(snapshot: Snapshot) -> Iterator[Finding]:
    for disk in snapshot.disks:
        days, filling = disk.days_left, disk.filling
        if filling is not None and days is not None and days < DAYS_WARNING:
            yield Finding(
                "warn", "disk fills", f"The disk of {disk.name} is full in {days:.1f} days",
                f" at the pace of the last {filling.reach_ms / DAY_MS:.1f} days.",
                f"{render.size(filling.bytes_a_day)} a day are written,"
                f" {render.size(disk.free_bytes)} of {render.size(disk.size_bytes)} are free.",
                "/#parts",
            )  # fmt: skip


def _notices(snapshot: Snapshot) -> Iterator[Finding]:
    stream = snapshot.part("stream")
    notices: Any = stream.details.get("notices") if stream is not None else None
    if notices:
        first = min(one["from_ms"] for one in notices)
        cells = sum(one["cells"] for one in notices)
        yield Finding(
            "warn", "deletion ahead", f"MySQL will delete {render.number(cells)} cells",
            f" of windows that are older than `keep` allows, from {render.clock(first)} on.",
            "`keep: {mysql: forever}` of the metric keeps them.", "/stream",
        )  # fmt: skip


def _is(group: GroupView) -> str:
    return f"is {render.status_word(group.judged.status)}"


def _worst_cells(group: GroupView) -> str:
    rows = [row for row, judged in judged_of(group.cells) if judged.status == group.judged.status]
    first = f"{rows[0][0]}-{rows[0][1]}" if rows else "it"
    return first if len(rows) <= 1 else f"{first} and {len(rows) - 1} more"


def _well(snapshot: Snapshot, inputs: Sequence[tuple[Sequence[str], str]]) -> Finding:
    files = render.file_rows(snapshot.part("collector"))
    held = any(topic.offsets_held for topic in snapshot.topics if not topic.internal)
    if not files and not held and snapshot.part("collector") is not None:
        paths = ", ".join(path for one, _ in inputs for path in one)
        folder = inputs[0][0][0].split("*")[0] if inputs and inputs[0][0] else "watched/"
        return Finding(
            "idle", "waiting for lines", "The mill is ready.",
            f" Drop a log file into {folder}, or run ./millrace demo.",
            f"The collector reads {paths}." if paths else "", "/collector",
        )  # fmt: skip
    partitions = sum(len(topic.partitions) for topic in snapshot.topics)
    keep_up = sum(1 for group in snapshot.groups if group.total.known)
    detail = (
        f"All {len(snapshot.parts)} parts are up, {partitions} partitions in sync,"
        f" {render.counted(keep_up, 'group')} {'keeps' if keep_up == 1 else 'keep'} up."
    )
    return Finding("good", "flowing", "Everything flows.", "", detail, "/")
