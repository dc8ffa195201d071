"""The brokers' page: its verdict, its facts and the map of replicas. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from monitor.snapshot import PartitionView, Snapshot, TopicView

MAPPED_PARTITIONS_MAX = 200
UNDER_LISTED_MAX = 200

MapCell = tuple[str, str, str]
"""CSS class, sign, and the same in words."""


@dataclass(frozen=True, slots=True)
class TopicMap:
    """One topic: partitions as columns, brokers as rows."""

    name: str
    numbers: tuple[int, ...]
    rows: tuple[tuple[int, tuple[MapCell, ...]], ...]
    under: int


@dataclass(frozen=True, slots=True)
class BrokersView:
    """What the page shows beside the brokers' own cards. `hidden` topics are well and not drawn."""

    level: str
    badge: str
    lead: str
    detail: str
    facts: tuple[tuple[str, str], ...]
    topics: tuple[TopicMap, ...]
    hidden: int
    under: tuple[PartitionView, ...]
    partitions: int


def brokers_view(snapshot: Snapshot) -> BrokersView:
    """The page of a snapshot."""
    parts = [part for topic in snapshot.topics for part in topic.partitions]
    offline = [part for part in parts if part.leader is None]
    under = [part for part in parts if part.under_replicated]
    away = [broker for broker in snapshot.brokers if not broker.alive]
    level, badge, lead, detail = _verdict(snapshot, len(parts), len(offline), len(under))
    nodes = [broker.node_id for broker in snapshot.brokers]
    alive = {broker.node_id for broker in snapshot.brokers if broker.alive}
    drawn = list(snapshot.topics)
    if len(parts) > MAPPED_PARTITIONS_MAX:
        drawn = [topic for topic in drawn if not _is_well(topic, alive)]
    controller = next((one.node_id for one in snapshot.brokers if one.is_controller), None)
    return BrokersView(
        level=level,
        badge=badge,
        lead=lead,
        detail=detail,
        facts=(
            ("Brokers", f"{len(nodes) - len(away)} of {len(nodes)} up" if nodes else "unknown"),
            ("Controller", "unknown" if controller is None else f"broker {controller}"),
            ("Topics", str(len(snapshot.topics))),
            ("Partitions", f"{len(parts)}, replicas {sum(len(one.replicas) for one in parts)}"),
            ("Under-replicated", str(len(under))),
            ("Offline", str(len(offline))),
            ("Not on preferred leader", str(sum(1 for one in parts if _strayed(one)))),
        ),
        topics=tuple(_map(topic, nodes, alive) for topic in drawn),
        hidden=len(snapshot.topics) - len(drawn),
        under=tuple(under[:UNDER_LISTED_MAX]),
        partitions=len(parts),
    )


def _verdict(
    snapshot: Snapshot, partitions: int, offline: int, under: int
) -> tuple[str, str, str, str]:
    away = [str(broker.node_id) for broker in snapshot.brokers if not broker.alive]
    if not snapshot.brokers:
        return "unknown", "unknown", "No broker has answered yet.", ""
    if len(away) == len(snapshot.brokers):
        errors = "; ".join(error.text for error in snapshot.errors)
        return "bad", "none answers", "No broker answers.", errors
    if offline:
        lead = f"{offline} of {partitions} partitions have no leader."
        return "bad", f"{offline} offline", lead, "They can be neither written nor read."
    if away:
        lead = f"Broker {', '.join(away)} does not answer."
        return "warn", f"{len(away)} down", lead, f"{under} partitions are under-replicated."
    if under:
        lead = f"{under} of {partitions} partitions are under-replicated."
        return "warn", f"{under} under-replicated", lead, "Every partition has a leader."
    if len(snapshot.brokers) == 1:
        return "good", "up", "The broker answers.", "One broker: there is no second replica."
    lead = f"All {len(snapshot.brokers)} brokers answer."
    return "good", "in sync", lead, f"All {partitions} partitions are in sync."


def _strayed(part: PartitionView) -> bool:
    return part.leader is not None and bool(part.replicas) and part.leader != part.replicas[0]


def _is_well(topic: TopicView, alive: Iterable[int]) -> bool:
    return not any(
        part.leader is None or part.under_replicated or _strayed(part) or part.leader not in alive
        for part in topic.partitions
    )


def _map(topic: TopicView, nodes: list[int], alive: set[int]) -> TopicMap:
    return TopicMap(
        topic.name,
        tuple(part.partition for part in topic.partitions),
        tuple(
            (node, tuple(_cell(part, node, alive) for part in topic.partitions)) for node in nodes
        ),
        sum(1 for part in topic.partitions if part.under_replicated),
    )


def _cell(part: PartitionView, node: int, alive: set[int]) -> MapCell:
    if node not in part.replicas:
        return "none", "·", "no replica"
    if node not in alive:
        return "off", "✕", "offline"
    if part.leader == node:
        return ("lead", "L*", "leader, not the preferred one") if _strayed(part) else (
            "lead", "L", "leader",
        )  # fmt: skip
    if node in part.in_sync_replicas:
        return "isr", "f", "follower, in sync"
    return "behind", "▲", "behind, not in sync"
