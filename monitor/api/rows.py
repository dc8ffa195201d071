"""The snapshot as plain rows for the API, CSV and the command line. Unknown values are null.

This module is pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from monitor.lag.rules import Bound, worst_time_lag
from monitor.state.moves import MoveView, in_order, sum_of
from monitor.state.placement import doubled_racks, skew_of
from monitor.state.snapshot import (
    BrokerView,
    DiskView,
    GroupView,
    LagCell,
    PartView,
    Snapshot,
    TopicView,
)
from monitor.views.changes import (
    advice_of,
    leaving_text,
    move_text,
    operations_of,
    voter_count,
)
from monitor.views.render import health

UNSEEN_STATE = "unknown"

MOVES_LISTED_MAX = 20
"""The largest number of reassignments in the row of changes. `/api/v1/moves` has all."""


def lag_rows(snapshot: Snapshot, per: str = "partition") -> list[dict[str, object]]:
    """Return one row of plain values for each lag, sorted. An unknown value is None.

    With `per` partition or topic, a group has a row for each of them. With `per` group it has one
    row.
    """
    rows: list[dict[str, object]] = []
    if per == "group":
        rows.extend(_unseen_row(group_id) for group_id in snapshot.unseen)
    for group in snapshot.groups:
        if per == "group":
            rows.append({"group": group.group_id, "state": group.state, **_sum_row(group)})
        elif per == "topic":
            rows.extend(_topic_rows(group))
        else:
            rows.extend(_cell_row(group, cell) for cell in group.cells)
    return sorted(rows, key=lambda row: str(row["group"])) if per == "group" else rows


def disk_row(disk: DiskView) -> dict[str, object]:
    """Return the row of a disk, with the days until it is full at its current pace."""
    filling = disk.filling
    return {
        "disk": disk.name,
        "free_bytes": disk.free_bytes,
        "size_bytes": disk.size_bytes,
        "bytes_a_day": None if filling is None else round(filling.bytes_a_day),
        "seen_ms": None if filling is None else filling.reach_ms,
        "days_left": None if disk.days_left is None else round(disk.days_left, 2),
    }


def _sum_row(group: GroupView) -> dict[str, object]:
    return {
        "lag": group.total.lag if group.total.known else None,
        "known": group.total.known,
        "partitions": group.total.total,
        "time_lag_ms": group.time_lag.age_ms,
        "time_lag_bound": str(group.time_lag.bound),
        "eta_s": group.eta_s,
        "looked_at_ms": group.looked_at_ms,
    }


def _unseen_row(group_id: str) -> dict[str, object]:
    """Return the row of a group that exists but was not polled yet."""
    return {
        "group": group_id,
        "state": UNSEEN_STATE,
        "lag": None,
        "known": 0,
        "partitions": None,
        "time_lag_ms": None,
        "time_lag_bound": str(Bound.UNKNOWN),
        "eta_s": None,
        "looked_at_ms": None,
    }


def _topic_rows(group: GroupView) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for topic in sorted({cell.topic for cell in group.cells}):
        cells = [cell for cell in group.cells if cell.topic == topic]
        known = [cell.lag.lag for cell in cells if cell.lag.lag is not None]
        oldest = worst_time_lag(cell.time_lag for cell in cells)
        rows.append(
            {
                "group": group.group_id,
                "topic": topic,
                "lag": sum(known) if known else None,
                "known": len(known),
                "partitions": len(cells),
                "time_lag_ms": oldest.age_ms,
                "time_lag_bound": str(oldest.bound),
            }
        )
    return rows


def _cell_row(group: GroupView, cell: LagCell) -> dict[str, object]:
    return {
        "group": group.group_id,
        "topic": cell.topic,
        "partition": cell.partition,
        "state": str(cell.state),
        "committed_offset": cell.committed_offset,
        "log_start_offset": cell.log_start_offset,
        "log_end_offset": cell.log_end_offset,
        "lag": cell.lag.lag,
        "lost": cell.lag.lost if cell.lag.lag is not None else None,
        "status": str(cell.judged.status),
        "reason": cell.judged.reason,
        "last_commit_moved_ms": cell.moved_at_ms,
        "member": cell.member,
        "metadata": cell.metadata,
        "time_lag_ms": cell.time_lag.age_ms,
        "time_lag_bound": str(cell.time_lag.bound),
        "read_rate": cell.read_rate,
        "last_lag": cell.last_lag,
        "last_lag_at_ms": cell.last_lag_at_ms,
        "looked_at_ms": group.looked_at_ms,
    }


def group_row(group: GroupView) -> dict[str, object]:
    """Return one group for `/api/v1/groups`, without its cells."""
    return {
        "group": group.group_id,
        "state": group.state,
        "kind": group.kind,
        "status": str(group.judged.status),
        "reason": group.judged.reason,
        "status_since_ms": group.judged.since_ms,
        "members": None if group.members is None else len(group.members),
        "coordinator": group.coordinator,
        "assignor": group.assignor,
        "write_rate": group.write_rate,
        "read_rate": group.read_rate,
        "error": group.error,
        **_sum_row(group),
    }


def topic_row(topic: TopicView) -> dict[str, object]:
    """Return one topic with its partitions for `/api/v1/topics`."""
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "size_bytes": topic.size_bytes,
        "offsets_held": topic.offsets_held,
        "write_rate": topic.write_rate,
        "partitions": [
            {
                "partition": part.partition,
                "leader": part.leader,
                "replicas": list(part.replicas),
                "in_sync_replicas": list(part.in_sync_replicas),
                "adding_replicas": list(part.adding_replicas),
                "removing_replicas": list(part.removing_replicas),
                "log_start_offset": part.log_start_offset,
                "log_end_offset": part.log_end_offset,
                "size_bytes": part.size_bytes,
                "write_rate": part.write_rate,
                "error": part.error,
            }
            for part in topic.partitions
        ],
    }


def broker_row(broker: BrokerView) -> dict[str, object]:
    """Return one broker for `/api/v1/brokers`."""
    return {
        "node_id": broker.node_id,
        "address": broker.address,
        "controller": broker.is_controller,
        "state": broker.state,
        "alive": broker.alive,
        "fenced": broker.fenced,
        "error": broker.error,
        "leads": broker.leads,
        "replicas": broker.replicas,
        "under_replicated": broker.under_replicated,
        "away_since_ms": broker.away_since_ms,
        "role": broker.role,
        "quorum_lag": broker.quorum_lag,
        "rack": broker.facts.rack,
        "version": broker.facts.version,
        "finalised_level": broker.facts.finalised,
        "oldest_level": None if broker.facts.supported is None else broker.facts.supported[0],
        "newest_level": None if broker.facts.supported is None else broker.facts.supported[1],
        "cordoned": broker.facts.is_cordoned,
        "leaving": leaving_text(broker) or None,
        "left_replicas": None if broker.leaving is None else broker.leaving.left,
        "left_bytes": None if broker.leaving is None else broker.leaving.size_bytes,
        "copies": broker.facts.copies,
        "copies_queued": broker.facts.queued,
        "out_of_room": broker.facts.is_out_of_room,
    }


def move_row(move: MoveView) -> dict[str, object]:
    """Return one reassignment for `/api/v1/moves`. Bytes and rates are null if unknown."""
    return {
        "topic": move.topic,
        "partition": move.partition,
        "adding": list(move.adding),
        "removing": list(move.removing),
        "copying": list(move.copying),
        "to_go_bytes": move.to_go,
        "to_go_is_estimate": move.is_about,
        "share": None if move.share is None else round(move.share, 4),
        "rate_bytes_s": None if move.rate is None else round(move.rate),
        "writes_bytes_s": None if move.writes is None else round(move.writes),
        "eta_s": None if move.eta_s is None else round(move.eta_s, 1),
        "is_endless": move.is_endless,
        "is_queued": move.is_queued,
        "waits": move.waits or None,
        "says": move_text(move),
        "still_since_ms": move.still_since_ms,
    }


def changes_row(snapshot: Snapshot) -> dict[str, object]:
    """Return the changes of the cluster for `/api/v1/changes`: what is under way, what must be
    done, and how evenly replicas and leaders are spread."""
    skew = skew_of(snapshot)
    total = sum_of(snapshot.moves)
    return {
        "brokers": [broker_row(one) for one in snapshot.brokers],
        "moves": {
            "count": total.count,
            "queued": total.queued,
            "standing": total.standing,
            "unknown": total.unknown,
            "to_go_bytes": total.to_go,
            "rate_bytes_s": None if total.rate is None else round(total.rate),
            "eta_s": None if total.eta_s is None else round(total.eta_s, 1),
            "list": [move_row(one) for one in in_order(snapshot.moves)[:MOVES_LISTED_MAX]],
        },
        "voters": voter_count(snapshot),
        "doubled_racks": sum(doubled_racks(snapshot).values()),
        "skew": None if skew is None else {
            "replicas": [skew.replicas.least, skew.replicas.most],
            "leaders": [skew.leaders.least, skew.leaders.most],
        },
        "operations": [
            {
                "kind": one.kind,
                "text": one.text,
                "commands": [
                    {"does": does, "command": command} for does, command in one.commands
                ],
            }
            for one in operations_of(snapshot)
        ],
        "advice": [asdict(one) for one in advice_of(snapshot)],
    }  # fmt: skip


def quorum_rows(snapshot: Snapshot) -> list[dict[str, object]]:
    """Return one row for each replica of the metadata log; none if the quorum is unknown."""
    quorum = snapshot.quorum
    if quorum is None:
        return []
    return [
        {
            "node_id": one.node_id,
            "role": one.role,
            "epoch": quorum.epoch,
            "high_watermark": quorum.high_watermark,
            "log_end_offset": one.log_end_offset,
            "lag": one.lag,
            "fetched_ago_ms": one.fetched_ago_ms,
            "caught_up_ago_ms": one.caught_up_ago_ms,
        }
        for one in quorum.replicas
    ]


def part_row(part: PartView) -> dict[str, object]:
    """Return one part of the mill for the API; `details` is from the last status that the part
    answered.
    """
    return {
        "part": part.name,
        "address": part.address,
        "health": health(part),
        "stuck_since_ms": part.stuck.since_ms if part.stuck else None,
        "stuck_over": part.stuck.over if part.stuck else None,
        "supervised": part.supervised,
        "turn": part.turn,
        "version": part.version,
        "words": part.words,
        "restarts": part.restarts,
        "memory_bytes": part.memory_bytes,
        "reachable": part.reachable,
        "ready": part.ready,
        "error": part.error,
        "answered_at_ms": part.answered_at_ms,
        "started_at_ms": part.started_at_ms,
        "pid": part.pid,
        "problems": list(part.problems),
        "details": dict(part.details),
    }


def flat(row: Mapping[str, object]) -> dict[str, object]:
    """Flatten a row for a table: lists become text, and nested values are left out."""
    found: dict[str, object] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            continue
        if isinstance(value, list):
            if any(isinstance(one, dict) for one in value):
                continue
            found[key] = " ".join(map(str, value))
        else:
            found[key] = value
    return found


def partition_rows(topics: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Return topics as one row per partition, for a table."""
    rows = []
    for topic in topics:
        listed = topic.get("partitions")
        for part in listed if isinstance(listed, list) else ():
            rows.append({"topic": topic["topic"], **part})
    return rows
