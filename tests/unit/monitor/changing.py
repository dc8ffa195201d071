"""A cluster that changes: broker 3 is emptied, broker 4 gets its replicas, and broker 5 is away.

The brokers run a version that supports a later level than the cluster's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from monitor.state.reading import (
    KafkaReading,
    NodeReading,
    PartAnswer,
    PartitionReading,
    SupervisedPart,
    TopicReading,
)
from monitor.state.snapshot import QuorumReplicaView, QuorumView
from protocol.types import TopicPartition
from tests.unit.monitor.readings import part_answer

MB = 1_000_000
FULL = 3_000 * MB
"""The size of each replica on its leader."""
COPIED_S = 4 * MB
"""The bytes that a copy grows by in a second."""
RACKS = {1: "east", 2: "west", 3: "north", 4: "north"}
LEAVES, COMES, AWAY = 3, 4, 5
TURN = "restarts in its turn; waits for 2 partitions that are not in sync"

COPIES, QUEUED, WAITS, DONE = (
    TopicPartition("logs.access", 0),
    TopicPartition("logs.access", 1),
    TopicPartition("logs.json", 0),
    TopicPartition("logs.access", 2),
)
MOVING = {
    COPIES: PartitionReading(COPIES, 1, (1, 2, 4, 3), (1, 2, 3), (COMES,), (LEAVES,)),
    QUEUED: PartitionReading(QUEUED, 2, (2, 4, 1, 3), (1, 2, 3), (COMES,), (LEAVES,)),
    WAITS: PartitionReading(WAITS, 2, (2, 1, 5, 3), (1, 2, 3), (AWAY,), (LEAVES,)),
    DONE: PartitionReading(DONE, 2, (2, 1, 4), (1, 2, 4)),
}


def changing(kafka: KafkaReading) -> KafkaReading:
    """Turn a reading of one broker into one of this cluster."""
    nodes = [
        NodeReading(node, f"127.0.0.1:{19_091 + node}", None, True, rack, (23, 24), 23)
        for node, rack in RACKS.items()
    ]
    nodes.append(NodeReading(AWAY, "127.0.0.1:19096", "Connection refused", is_listed=False))
    return replace(
        kafka,
        nodes=tuple(nodes),
        topics=tuple(map(_spread, kafka.topics)),
        quorum=QuorumView(
            kafka.at_ms, 1, 21, 90_100,
            (
                QuorumReplicaView(1, "leader", 90_100, 0, 0, 0),
                QuorumReplicaView(2, "voter", 90_100, 0, 90, 90),
                QuorumReplicaView(3, "voter", 90_100, 0, 90, 90),
                QuorumReplicaView(4, "observer", 90_060, 40, 110, 400),
            ),
        ),
    )  # fmt: skip


def _spread(topic: TopicReading) -> TopicReading:
    def partition(one: PartitionReading) -> PartitionReading:
        tp = one.topic_partition
        first = tp.partition % 3
        replicas = tuple((first + step) % 3 + 1 for step in range(3))
        return MOVING.get(tp) or PartitionReading(tp, replicas[0], replicas, replicas)

    return replace(topic, partitions=tuple(map(partition, topic.partitions)))


def rows_of(kafka: KafkaReading, node: int, copied: int) -> Iterator[dict[str, object]]:
    """Yield the replicas of a broker as in its `/status`. `copied` are the bytes of the copy that
    runs."""
    for topic in kafka.topics:
        for one in topic.partitions:
            if node not in one.replicas:
                continue
            tp = one.topic_partition
            row: dict[str, object] = {
                "topic": tp.topic,
                "partition": tp.partition,
                "role": "leader" if one.leader == node else "follower",
                "size_bytes": FULL,
            }
            if node in one.adding_replicas:
                size, waits_for = (copied, []) if tp == COPIES else (0, ["queue"])
                copy = {"missing_bytes": FULL - size, "waits_for": waits_for}
                row |= {"size_bytes": size, "copy": copy}
            yield row


def registered(**of_leaving: object) -> list[dict[str, Any]]:
    """Return the registered brokers as in a `/status`. `of_leaving` replaces values of broker 3."""
    return [
        {
            "node_id": node,
            "rack": rack,
            "is_cordoned": node == LEAVES,
            "levels": {"oldest": 23, "newest": 24},
            "leader_rate": None,
            "follower_rate": None,
            **(of_leaving if node == LEAVES else {}),
        }
        for node, rack in {**RACKS, AWAY: "south"}.items()
    ]


def brokers(
    kafka: KafkaReading, copied: int, rows: list[dict[str, Any]] | None = None
) -> tuple[PartAnswer, ...]:
    """Return the parts broker-1 to broker-4."""
    return tuple(
        part_answer(
            f"broker-{node}",
            kafka.at_ms,
            node_id=node,
            is_controller=node == 1,
            metadata_offset=90_100,
            brokers=registered() if rows is None else rows,
            flush="ack",
            log_bytes=3 << 30,
            copying={
                "count": 2 if node == COMES else 0,
                "queued": 1 if node == COMES else 0,
                "is_out_of_room": False,
            },
            partition_list=list(rows_of(kafka, node, copied)),
        )
        for node in RACKS
    )


def turn(parts: Mapping[str, SupervisedPart]) -> dict[str, SupervisedPart]:
    """Return the supervisor's parts while a rolling restart waits before broker-2."""
    waits = SupervisedPart("healthy", TURN, None, 0, 90_000_000, 1_002, 70 << 20, True)
    return {**parts, "broker-2": waits}
