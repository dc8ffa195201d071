"""The values of a snapshot that the history keeps, and the events between two snapshots.

This module is pure. A series whose value is unknown in a cycle gets no sample, so its chart shows a
gap and never a 0. Series of single partitions are kept only for the largest lags.
"""

import heapq
import itertools
from collections.abc import Iterator

from monitor.alerts.core import changes_between
from monitor.lag.rules import Bound
from monitor.state.levels import Event
from monitor.state.resting_cells import lags_of
from monitor.state.snapshot import GroupView, PartView, Snapshot
from monitor.views import render
from monitor.views.stages import COLLECT_BUSY, NOW, window_values
from protocol.types import TopicPartition

ALERT_EVENT = "alert"
CELLS_KEPT_MAX = 1_000
GROUPS_KEPT_MAX = 300
FILES_TOLD_MAX = 5


def samples_of(snapshot: Snapshot, stream_group: str) -> dict[str, float]:
    """Return the value of every series at this moment."""
    found: dict[str, float] = {}
    for name, value in _values(snapshot, stream_group):
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = float(value)
    return found


def _values(snapshot: Snapshot, stream_group: str) -> Iterator[tuple[str, object]]:
    collector, stream = snapshot.part("collector"), snapshot.part("stream")
    if collector is not None and collector.reachable:
        yield "collected", collector.details.get("rate_lines_s")
        yield "unread_bytes", collector.details.get("lag_bytes_total")
        yield COLLECT_BUSY, collector.details.get("busy")
    if stream is not None and stream.reachable:
        yield "batch_ms", stream.details.get("batch_ms")
        yield from window_values(stream, NOW).items()
    for name, key in (("not_parsed", "lines_unparsed"), ("metric_faults", "metric_faults")):
        mysql = snapshot.part("mysql")
        if mysql is not None and mysql.reachable:
            yield name, mysql.details.get(key)
    group = snapshot.group(stream_group)
    if group is not None and group.total.known:
        yield "lag", group.total.lag
        if group.time_lag.bound in (Bound.EXACT, Bound.ABOUT) and group.time_lag.age_ms is not None:
            yield "age_s", group.time_lag.age_ms / 1000
    for disk in snapshot.disks:
        yield disk_series(disk.name), disk.free_bytes
    yield from _broker_values(snapshot)
    yield from _group_values(snapshot)


def disk_series(name: str) -> str:
    """Return the name of the series of a disk's free bytes."""
    return f"disk.{name}.free"


def _broker_values(snapshot: Snapshot) -> Iterator[tuple[str, object]]:
    sums = {"bytes_in_per_s": 0.0, "bytes_out_per_s": 0.0}
    known = False
    for part in snapshot.parts:
        if not part.name.startswith("broker-") or not part.reachable:
            continue
        for name, key in (
            ("bytes_in", "bytes_in_per_s"),
            ("bytes_out", "bytes_out_per_s"),
            ("requests", "requests_per_s"),
            ("sync_p99_us", "flush_us_p99"),
            ("loop_late_us", "loop_late_us_p99"),
        ):
            value = part.details.get(key)
            yield f"{part.name}.{name}", value
            if key in sums and isinstance(value, int | float):
                sums[key] += value
                known = True
    if known:
        yield "bytes_in", sums["bytes_in_per_s"]
        yield "bytes_out", sums["bytes_out_per_s"]


def _group_values(snapshot: Snapshot) -> Iterator[tuple[str, object]]:
    for group in snapshot.groups[:GROUPS_KEPT_MAX]:
        if group.total.known:
            yield f"group.{group.group_id}.lag", group.total.lag
            yield f"group.{group.group_id}.age_s", _known_age_s(group)
            yield f"group.{group.group_id}.read", group.read_rate
            yield f"group.{group.group_id}.written", group.write_rate
    # Each group's cells are sorted by lag, so only the beginning of a large group is read.
    readers = heapq.merge(
        *(_by_lag(group) for group in snapshot.groups[:GROUPS_KEPT_MAX]),
        key=lambda reader: -(reader[1] or 0),
    )
    for group_id, lag, row in itertools.islice(readers, CELLS_KEPT_MAX):
        yield cell_series(group_id, row.topic, row.partition), lag
    for topic in snapshot.topics[:GROUPS_KEPT_MAX]:
        yield f"topic.{topic.name}.written", topic.write_rate


def _by_lag(group: GroupView) -> Iterator[tuple[str, int | None, TopicPartition]]:
    return ((group.group_id, lag, row) for lag, row in lags_of(group.cells, group.by_lag))


def _known_age_s(group: GroupView) -> float | None:
    age_ms = group.time_lag.age_ms
    return None if age_ms is None else age_ms / 1000


def cell_series(group_id: str, topic: str, partition: int) -> str:
    """Return the name of the series of one group in one partition."""
    return f"cell.{group_id}.{topic}-{partition}.lag"


def events_between(before: Snapshot | None, now: Snapshot) -> list[Event]:
    """Return the changes from one snapshot to the next, each as a sentence."""
    if before is None:
        return []
    return [
        Event(now.taken_at_ms, kind, text, mark)
        for kind, text, mark in (
            *_part_events(before, now),
            *_broker_events(before, now),
            *_file_events(before, now),
            *_group_events(before, now),
            *_config_events(before, now),
            *_alert_events(before, now),
        )
    ]


Told = tuple[str, str, bool]


def _part_events(before: Snapshot, now: Snapshot) -> Iterator[Told]:
    for part in now.parts:
        old = before.part(part.name)
        if old is None:
            continue
        was, word = render.health(old), render.health(part)
        if old.pid and part.pid and old.pid != part.pid:
            yield "part", f"{part.name} was restarted", True
        elif was != word and "down" in (was, word):
            if word == "down":
                yield "part", f"{part.name} does not answer", True
            elif old.away_since_ms is not None:
                away = render.duration(now.taken_at_ms - old.away_since_ms)
                yield "part", f"{part.name} is back after {away}", True
        if word == "failed" != was:
            yield "part", f"{part.name} has given up: {part.words or part.error or ''}", True
        if part.stuck is not None and old.stuck is None:
            yield "part", f"{part.name} {part.stuck.text(now.taken_at_ms)}", True
        elif part.stuck is None and old.stuck is not None:
            yield "part", f"{part.name} makes progress again", True
        yield from (
            ("part", f"{part.name}: {text}", False)
            for text in part.problems
            if text not in old.problems
        )


def _broker_events(before: Snapshot, now: Snapshot) -> Iterator[Told]:
    yield from _standing_events(before, now)
    old_leaders = {
        (part.topic, part.partition): part for topic in before.topics for part in topic.partitions
    }
    moved = shrunk = 0
    for topic in now.topics:
        for part in topic.partitions:
            old = old_leaders.get((part.topic, part.partition))
            if old is None or part.error is not None:
                continue
            moved += (
                old.leader is not None and part.leader is not None and (old.leader != part.leader)
            )
            shrunk += len(part.in_sync_replicas) < len(old.in_sync_replicas)
    if moved:
        has = "has" if moved == 1 else "have"
        yield "leader", f"{render.counted(moved, 'partition')} {has} another leader", True
    if shrunk:
        lost = "lost" if shrunk == 1 else "each lost"
        yield "isr", f"{render.counted(shrunk, 'partition')} {lost} an in-sync replica", True
    names = {topic.name for topic in before.topics}
    if before.kafka_at_ms is not None:
        for topic in now.topics:
            if topic.name not in names:
                yield "topic", f"topic {topic.name} was made", False
        for name in sorted(names - {topic.name for topic in now.topics}):
            yield "topic", f"topic {name} was deleted", False


def _standing_events(before: Snapshot, now: Snapshot) -> Iterator[Told]:
    """Yield events about the quorum, and about brokers that are not parts of this mill."""
    parts = {part.name for part in now.parts}
    old = {broker.node_id: broker for broker in before.brokers}
    for broker in now.brokers:
        was = old.get(broker.node_id)
        if was is None or was.state == broker.state:
            continue
        if broker.fenced or was.fenced:
            word = "is out of service" if broker.fenced else f"is {broker.state}"
            yield "broker", f"broker {broker.node_id} {word}", True
        elif f"broker-{broker.node_id}" not in parts:
            word = "answers again" if broker.alive else "does not answer"
            yield "broker", f"broker {broker.node_id} {word}", True
    quorum, led = now.quorum, before.quorum
    if quorum is not None and led is not None and quorum.epoch > led.epoch:
        yield "controller", f"broker {quorum.leader_id} is the active controller", True


def _file_events(before: Snapshot, now: Snapshot) -> Iterator[Told]:
    old, new = before.part("collector"), now.part("collector")
    if old is None or new is None or not (old.reachable and new.reachable):
        return
    known = {row.get("path") for row in render.file_rows(old)}
    found = [row for row in render.file_rows(new) if row.get("path") not in known]
    for row in found[:FILES_TOLD_MAX]:
        yield "file", f"new file {row.get('path')}, {render.size(row.get('size_bytes'))}", True
    if len(found) > FILES_TOLD_MAX:
        yield "file", f"{len(found) - FILES_TOLD_MAX} more new files", False


def _group_events(before: Snapshot, now: Snapshot) -> Iterator[Told]:
    for group in now.groups:
        old = before.group(group.group_id)
        if old is None:
            if before.kafka_at_ms is not None and group.group_id not in before.unseen:
                yield "group", f"group {group.group_id} appeared", False
            continue
        was, status = old.judged.status, group.judged.status
        if was != status and "measuring" not in (was, status) and "unknown" not in (was, status):
            text = f"group {group.group_id} is {render.status_word(status)}"
            yield "group", f"{text}: {group.judged.reason}" if group.judged.reason else text, False


def _config_events(before: Snapshot, now: Snapshot) -> Iterator[Told]:
    if now.config_problem and now.config_problem != before.config_problem:
        yield "configuration", now.config_problem, True
    if now.config_notice and now.config_notice != before.config_notice:
        yield "configuration", now.config_notice, True
    old, new = before.part("stream"), now.part("stream")
    if old is None or new is None or not (old.reachable and new.reachable):
        return
    had, has = (set(_names(part)) for part in (old, new))
    if had and has:
        changes = [f"{name} added" for name in sorted(has - had)]
        changes += [f"{name} removed" for name in sorted(had - has)]
        if changes:
            yield "configuration", f"metrics: {', '.join(changes)}", True


def _alert_events(before: Snapshot, now: Snapshot) -> Iterator[Told]:
    opened, closed = changes_between(before.alerts.open, now.alerts.open)
    for one in opened:
        yield ALERT_EVENT, f"alert {one.rule}: {one.text}", True
    for one in closed:
        yield ALERT_EVENT, f"alert {one.rule} is over: {one.subject}", False


def _names(part: PartView) -> list[str]:
    listed = part.details.get("metrics")
    return [str(name) for name in listed] if isinstance(listed, list) else []
