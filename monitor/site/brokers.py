"""The content of the brokers' page: the first sentence, the facts and the map of replicas.

This module is pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from monitor.site.moves import MovesView, moves_view
from monitor.state.partition_health import PartitionHealth, health_of
from monitor.state.snapshot import (
    BrokerView,
    FollowerView,
    PartitionView,
    Snapshot,
    TopicView,
)
from monitor.views import render
from monitor.views.changes import leaving_text, skew_facts
from protocol.reassignment import original_replicas

MAPPED_PARTITIONS_MAX = 200
"""The number of partitions up to which all are drawn. If there are more, only partitions that move
or have a fault are drawn.
"""

MAPPED_CELLS_MAX = 200
"""The largest number of cells that are drawn if not all partitions are, so that the page does not
grow with the cluster.
"""

UNDER_LISTED_MAX = 200

MapCell = tuple[str, str, str]
"""One cell of the map: a CSS class, a sign, and the same in words."""


@dataclass(frozen=True, slots=True)
class TopicMap:
    """One topic: partitions as columns, brokers as rows."""

    name: str
    numbers: tuple[int, ...]
    rows: tuple[tuple[int, tuple[MapCell, ...]], ...]
    under: int


@dataclass(frozen=True, slots=True)
class UnderRow:
    """A partition with a replica out of sync. `behind` says how far each replica is behind."""

    part: PartitionView
    missing: tuple[int, ...]
    behind: str
    since: str


@dataclass(frozen=True, slots=True)
class QuorumRow:
    """One replica of the metadata log, as text."""

    node_id: int
    role: str
    end: str
    lag: str
    fetched: str
    caught_up: str
    level: str


@dataclass(frozen=True, slots=True)
class BrokersView:
    """The content of the page except the brokers' cards.

    `hidden` says what is not drawn.
    """

    level: str
    badge: str
    lead: str
    detail: str
    facts: tuple[tuple[str, str], ...]
    topics: tuple[TopicMap, ...]
    hidden: str
    under: tuple[UnderRow, ...]
    partitions: int
    quorum: tuple[QuorumRow, ...]
    quorum_says: str
    moves: MovesView


def brokers_view(snapshot: Snapshot) -> BrokersView:
    """Return the content of the page `/brokers` for a snapshot."""
    parts, health = snapshot.partitions, health_of(snapshot.partitions)
    up = [broker for broker in snapshot.brokers if broker.alive]
    level, badge, lead, detail = _verdict(snapshot, health)
    nodes = [broker.node_id for broker in snapshot.brokers]
    alive = {broker.node_id for broker in snapshot.brokers if broker.alive}
    drawn, hidden = _drawn(snapshot.topics, alive, MAPPED_CELLS_MAX // max(1, len(nodes)))
    controller = next((one.node_id for one in snapshot.brokers if one.is_controller), None)
    named = render.UNKNOWN if controller is None else f"broker {controller}"
    if controller is not None and snapshot.quorum is not None:
        named += f", epoch {snapshot.quorum.epoch}"
    under = [part for part in parts if part.under_replicated]
    return BrokersView(
        level=level,
        badge=badge,
        lead=lead,
        detail=detail,
        facts=(
            ("Brokers", f"{len(up)} of {len(nodes)} up" if nodes else "unknown"),
            ("Controller", named),
            ("Topics", str(len(snapshot.topics))),
            ("Partitions", f"{len(parts)}, replicas {sum(len(one.replicas) for one in parts)}"),
            ("Under-replicated", str(health.under_replicated)),
            ("Under min ISR", str(health.under_min_isr)),
            ("Offline", str(health.offline)),
            ("Not on preferred leader", str(sum(1 for one in parts if _strayed(one)))),
            *skew_facts(snapshot),
        ),
        topics=tuple(_map(topic, nodes, alive) for topic in drawn),
        hidden=hidden,
        under=tuple(_under(part) for part in under[:UNDER_LISTED_MAX]),
        partitions=len(parts),
        quorum=_quorum(snapshot),
        quorum_says=_quorum_says(snapshot),
        moves=moves_view(snapshot.moves),
    )


def _under(part: PartitionView) -> UnderRow:
    originals = original_replicas(part.replicas, part.adding_replicas)
    missing = tuple(one for one in originals if one not in part.in_sync_replicas)
    told = {one.node_id: one for one in part.followers}
    known = [told[one] for one in missing if one in told]
    return UnderRow(
        part,
        missing,
        ", ".join(_behind(one) for one in known) or render.UNKNOWN,
        ", ".join(_age(one.caught_up_ago_ms) for one in known) or render.UNKNOWN,
    )


def _behind(follower: FollowerView) -> str:
    return "nothing fetched yet" if follower.lag is None else render.number(follower.lag)


def _age(ago_ms: int | None) -> str:
    return "not in this epoch" if ago_ms is None else f"{render.duration(ago_ms)} ago"


def _quorum(snapshot: Snapshot) -> tuple[QuorumRow, ...]:
    quorum = snapshot.quorum
    if quorum is None or len(quorum.replicas) < 2:
        return ()
    down = {one.node_id for one in snapshot.brokers if not one.alive}
    return tuple(
        QuorumRow(
            one.node_id,
            one.role,
            render.UNKNOWN if one.log_end_offset is None else render.number(one.log_end_offset),
            render.UNKNOWN if one.lag is None else render.number(one.lag),
            "" if one.role == "leader" else _age(one.fetched_ago_ms),
            "" if one.role == "leader" else _age(one.caught_up_ago_ms),
            "bad" if one.node_id in down else "warn" if one.lag is None else "good",
        )
        for one in quorum.replicas
    )


def _quorum_says(snapshot: Snapshot) -> str:
    """Return the text next to the table of the quorum; the reason if the quorum is unknown."""
    quorum = snapshot.quorum
    if quorum is None:
        why = snapshot.quorum_error or "no broker has answered yet"
        return f"The state of the quorum is unknown: {why}."
    if len(quorum.replicas) < 2:
        return "One broker: there is no quorum to describe."
    committed = render.number(quorum.high_watermark)
    return f"epoch {quorum.epoch}, committed below {committed}"


def _verdict(snapshot: Snapshot, health: PartitionHealth) -> tuple[str, str, str, str]:
    away = [str(broker.node_id) for broker in snapshot.brokers if not broker.alive]
    fenced = [str(broker.node_id) for broker in snapshot.brokers if broker.fenced]
    if not snapshot.brokers:
        return "unknown", "unknown", "No broker has answered yet.", ""
    if len(away) == len(snapshot.brokers):
        errors = "; ".join(error.text for error in snapshot.errors)
        return "bad", "none answers", "No broker answers.", errors
    if health.offline:
        lead = f"{health.offline} of {health.total} partitions have no leader."
        return "bad", f"{health.offline} offline", lead, "They can be neither written nor read."
    if away:
        since = [one.away_since_ms for one in snapshot.brokers if one.away_since_ms is not None]
        at = f" since {render.clock_time(min(since))}" if since else ""
        who = f"Broker {away[0]} does" if len(away) == 1 else f"Brokers {', '.join(away)} do"
        return "warn", f"{len(away)} down", f"{who} not answer{at}.", health.meaning
    if fenced:
        is_one = len(fenced) == 1
        who = f"Broker {fenced[0]} is" if is_one else f"Brokers {', '.join(fenced)} are"
        return "warn", f"{len(fenced)} fenced", f"{who} out of service.", health.meaning
    if health.under_min_isr or health.under_replicated:
        lead = f"{health.under_replicated} of {health.total} partitions are under-replicated."
        badge = f"{health.under_replicated} under-replicated"
        if health.under_min_isr:
            return "bad", f"{health.under_min_isr} under min ISR", lead, health.meaning
        return "warn", badge, lead, "Every partition has a leader."
    if len(snapshot.brokers) == 1:
        return "good", "up", "The broker answers.", "One broker: there is no second replica."
    lead = f"All {len(snapshot.brokers)} brokers answer."
    return "good", "in sync", lead, f"All {health.total} partitions are in sync."


def _strayed(part: PartitionView) -> bool:
    return part.leader is not None and bool(part.replicas) and part.leader != part.replicas[0]


def _is_well(part: PartitionView, alive: set[int]) -> bool:
    is_moving = bool(part.adding_replicas or part.removing_replicas)
    return not (part.leader not in alive or part.under_replicated or _strayed(part) or is_moving)


def _drawn(
    topics: Sequence[TopicView], alive: set[int], columns_max: int
) -> tuple[list[TopicView], str]:
    """Return the topics to draw, and what is left out of them."""
    if sum(len(topic.partitions) for topic in topics) <= MAPPED_PARTITIONS_MAX:
        return list(topics), ""
    drawn, unwell, room = [], 0, columns_max
    for topic in topics:
        parts = [part for part in topic.partitions if not _is_well(part, alive)]
        unwell += len(parts)
        if parts[:room]:
            drawn.append(replace(topic, partitions=tuple(parts[:room])))
            room -= len(parts[:room])
    if unwell > columns_max:
        return drawn, f"{columns_max} of {unwell} partitions that move or are not well are drawn"
    return drawn, "only partitions that move or are not well are drawn"


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
    css, sign, words = _place(part, node, alive)
    if node in part.adding_replicas:
        return css, f"{sign}+", f"{words}; being added"
    if node in part.removing_replicas:
        return css, f"{sign}−", f"{words}; being removed"
    return css, sign, words


def _place(part: PartitionView, node: int, alive: set[int]) -> MapCell:
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


def change_facts(broker: BrokerView) -> list[tuple[str, str]]:
    """Return the facts about a broker that matter when the cluster changes. Unknown ones are left
    out, because other clusters do not report them."""
    facts, found = broker.facts, []
    if facts.rack is not None:
        found.append(("Rack", facts.rack))
    if broker.role is not None:
        lag = "" if broker.role == "leader" else f", {_lag(broker.quorum_lag)}"
        found.append(("Quorum", f"{broker.role}{lag}"))
    if facts.version is not None:
        found.append(("Version", facts.version))
    if facts.finalised is not None and facts.supported is not None:
        oldest, newest = facts.supported
        found.append(("Metadata level", f"{facts.finalised} of {oldest} to {newest}"))
    if facts.copies:
        queued = f", {facts.queued} in the queue" if facts.queued else ""
        found.append(("Copies", f"{facts.copies} replicas{queued}"))
    if leaving := leaving_text(broker):
        found.append(("Change", leaving))
    return found


def _lag(offsets: int | None) -> str:
    if offsets is None:
        return "lag unknown"
    return "no lag" if not offsets else f"{render.number(offsets)} behind"
