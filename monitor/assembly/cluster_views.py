"""Makes the brokers and the reassignments of a snapshot, from metadata and the brokers' statuses.

This module is pure. Metadata of any Kafka cluster has addresses, racks and replicas. Only the
brokers of the mill report cordons, rates, and the sizes of their replicas.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from monitor.assembly.readers import Context
from monitor.state.broker_facts import NO_FACTS, BrokerFacts, Leaving
from monitor.state.moves import BrokersNow, MoveView, MovingPartition, ReplicaCopy
from monitor.state.reading import KafkaReading, NodeReading, PartAnswer
from monitor.state.snapshot import BrokerView, QuorumReplicaView, Snapshot
from monitor.views import render
from protocol.reassignment import FOLLOWER_LIST, LEADER_LIST, original_replicas
from protocol.status import PartStatus
from protocol.types import TopicPartition

Details = Mapping[str, Any]


@dataclass(slots=True)
class _Counts:
    """The number of partitions by broker: led, assigned, out of sync, and being removed."""

    leads: Counter[int | None] = field(default_factory=Counter)
    replicas: Counter[int] = field(default_factory=Counter)
    lagging: Counter[int] = field(default_factory=Counter)
    removing: Counter[int] = field(default_factory=Counter)


def broker_views(
    kafka: KafkaReading, parts: tuple[PartAnswer, ...], previous: Snapshot | None
) -> tuple[BrokerView, ...]:
    """Return all brokers that metadata, partitions or the quorum name, by id."""
    before = {b.node_id: b for b in previous.brokers} if previous else {}
    controller_id = kafka.controller_id if kafka.quorum is None else kafka.quorum.leader_id
    voting = {one.node_id: one for one in kafka.quorum.replicas} if kafka.quorum else {}
    own, registered = _statuses(parts), _registered(parts)
    counts = _counted(kafka)

    def view(node: NodeReading) -> BrokerView:
        known, replica = before.get(node.node_id), voting.get(node.node_id, NO_REPLICA)
        address = node.address
        if node.error and not node.is_listed and known is not None:
            address = known.address
        away_since_ms = (known.away_since_ms if known else None) or kafka.at_ms
        facts = _facts(
            node, own.get(node.node_id), registered.get(node.node_id, {}),
            NO_FACTS if known is None else known.facts,
        )  # fmt: skip
        return BrokerView(
            node_id=node.node_id,
            address=address,
            is_controller=node.node_id == controller_id,
            alive=node.error is None,
            error=node.error,
            leads=counts.leads[node.node_id],
            away_since_ms=away_since_ms if node.error else None,
            fenced=node.error is None and not node.is_listed,
            replicas=counts.replicas[node.node_id],
            under_replicated=counts.lagging[node.node_id],
            role=replica.role or None,
            quorum_lag=replica.lag,
            facts=facts,
            leaving=_leaving(node.node_id, facts, counts, None if known is None else known.leaving),
        )

    return tuple(view(node) for node in sorted(kafka.nodes, key=lambda node: node.node_id))


NO_REPLICA = QuorumReplicaView(-1, "", None, None, None, None)
"""The quorum facts of a broker that the quorum does not name: all unknown."""


def _counted(kafka: KafkaReading) -> _Counts:
    counts = _Counts()
    for topic in kafka.topics:
        for part in topic.partitions:
            counts.leads[part.leader] += 1
            counts.replicas.update(part.replicas)
            counts.removing.update(part.removing_replicas)
            counts.lagging.update(
                node_id
                for node_id in original_replicas(part.replicas, part.adding_replicas)
                if node_id not in part.in_sync_replicas
            )
    return counts


def _statuses(parts: tuple[PartAnswer, ...]) -> dict[int, PartStatus]:
    """Return the answer of each broker of the mill, by its id."""
    found = {}
    for part in parts:
        node_id = None if part.status is None else part.status.details.get("node_id")
        if part.status is not None and isinstance(node_id, int):
            found[node_id] = part.status
    return found


def _registered(parts: tuple[PartAnswer, ...]) -> dict[int, Details]:
    """Return the registered brokers of the mill by id, as the answer with the newest metadata has
    them."""
    told: list[Details] = [part.status.details for part in parts if part.status is not None]
    told = [one for one in told if isinstance(one.get("brokers"), list)]
    newest = max(told, key=lambda one: one.get("metadata_offset") or 0, default={})
    return {one["node_id"]: one for one in newest.get("brokers", ())}


def _facts(
    node: NodeReading, own: PartStatus | None, registered: Details, before: BrokerFacts
) -> BrokerFacts:
    """Return the facts about a broker. A broker that is away keeps its rack."""
    details: Details = {} if own is None else own.details
    copying: Details = details.get("copying") or {}
    levels: Details = registered.get("levels") or {}
    return BrokerFacts(
        rack=node.rack or registered.get("rack") or before.rack,
        version=None if own is None else own.version,
        started_at_ms=None if own is None else own.started_at_ms,
        finalised=node.finalised,
        supported=node.supported or ((levels["oldest"], levels["newest"]) if levels else None),
        is_cordoned=registered.get("is_cordoned"),
        leader_rate=registered.get("leader_rate"),
        follower_rate=registered.get("follower_rate"),
        copies=copying.get("count"),
        queued=copying.get("queued"),
        is_out_of_room=copying.get("is_out_of_room"),
        log_bytes=details.get("log_bytes"),
    )


def _leaving(
    node_id: int, facts: BrokerFacts, counts: _Counts, before: Leaving | None
) -> Leaving | None:
    if facts.is_cordoned is not True:
        return None
    left = counts.replicas[node_id]
    most = max(left, 0 if before is None else before.most)
    return Leaving(left, most, facts.log_bytes, counts.removing[node_id] > 0)


def move_views(
    context: Context, parts: tuple[PartAnswer, ...], brokers: tuple[BrokerView, ...]
) -> tuple[MoveView, ...]:
    """Return the reassignments under way, and add a sample of each to the memory."""
    kafka = context.kafka
    moving = [
        part
        for topic in kafka.topics
        for part in topic.partitions
        if part.adding_replicas or part.removing_replicas
    ]
    sizes, copies = _replicas_of({part.topic_partition for part in moving}, parts)
    now = BrokersNow(
        {one.node_id: _since(one) for one in brokers if one.state != "up"},
        frozenset(one.node_id for one in brokers if one.facts.follower_rate == 0),
        frozenset(one.node_id for one in brokers if one.facts.leader_rate == 0),
    )
    found = (
        MovingPartition(
            part.topic_partition,
            part.leader,
            part.replicas,
            part.in_sync_replicas,
            part.adding_replicas,
            part.removing_replicas,
            min_in_sync_of(part.topic_partition.topic, kafka),
            "compact" in (_setting(part.topic_partition.topic, "cleanup.policy", kafka) or ""),
            any(
                _setting(part.topic_partition.topic, key, kafka)
                for key in (LEADER_LIST, FOLLOWER_LIST)
            ),
            sizes.get(part.topic_partition, {}),
            copies.get(part.topic_partition, {}),
        )
        for part in moving
    )
    return context.memory.moves.look(found, now, kafka.at_ms)


def _since(broker: BrokerView) -> str | None:
    return None if broker.away_since_ms is None else render.clock_time(broker.away_since_ms)


def _replicas_of(
    wanted: set[TopicPartition], parts: tuple[PartAnswer, ...]
) -> tuple[dict[TopicPartition, dict[int, int]], dict[TopicPartition, dict[int, ReplicaCopy]]]:
    """Return the size of each replica of these partitions, and the state of those that are copied,
    by broker, as the mill's own brokers report them."""
    sizes: dict[TopicPartition, dict[int, int]] = {}
    copies: dict[TopicPartition, dict[int, ReplicaCopy]] = {}
    for node_id, status in _statuses(parts).items() if wanted else ():
        listed: Any = status.details.get("partition_list")
        for row in listed if isinstance(listed, list) else ():
            tp = TopicPartition(row.get("topic"), row.get("partition"))
            if tp not in wanted:
                continue
            sizes.setdefault(tp, {})[node_id] = row["size_bytes"]
            if copy := row.get("copy"):
                state = ReplicaCopy(copy["missing_bytes"], tuple(copy["waits_for"]))
                copies.setdefault(tp, {})[node_id] = state
    return sizes, copies


def min_in_sync_of(topic: str, kafka: KafkaReading) -> int | None:
    """Return the topic's `min.insync.replicas`; None if its settings are unknown."""
    text = _setting(topic, "min.insync.replicas", kafka)
    return int(text) if text is not None and text.isdecimal() else None


def _setting(topic: str, key: str, kafka: KafkaReading) -> str | None:
    entry = kafka.topic_configs.get(topic, {}).get(key)
    return None if entry is None else entry.value
