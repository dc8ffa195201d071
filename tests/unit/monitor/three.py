"""Three brokers in a simulated mill. Broker 2 can be down."""

from dataclasses import replace

from monitor.state.reading import (
    KafkaReading,
    NodeReading,
    PartAnswer,
    PartitionReading,
    TopicReading,
)
from monitor.state.snapshot import QuorumReplicaView, QuorumView
from tests.unit.monitor.readings import part_answer, part_down

DEAD = 2
REFUSED = "127.0.0.1:19093: Connection refused"


def spread(topic: TopicReading, is_down: bool) -> TopicReading:
    """Return the topic spread over three brokers. If broker 2 is down, other brokers lead its
    partitions."""

    def partition(one: PartitionReading) -> PartitionReading:
        first = one.topic_partition.partition % 3
        replicas = tuple((first + step) % 3 + 1 for step in range(3))
        live = tuple(node for node in replicas if not (is_down and node == DEAD))
        return PartitionReading(one.topic_partition, live[0], replicas, live)

    return replace(topic, partitions=tuple(map(partition, topic.partitions)))


def quorum(now_ms: int, is_down: bool) -> QuorumView:
    """Return a quorum led by broker 1, with each voter's offset."""
    rows = [QuorumReplicaView(1, "leader", 81_204, 0, 0, 0)]
    for node in (2, 3):
        lag, ago_ms = (17, 9_000) if is_down and node == DEAD else (0, 120)
        rows.append(QuorumReplicaView(node, "voter", 81_204 - lag, lag, ago_ms, ago_ms))
    return QuorumView(now_ms, 1, 17, 81_204, tuple(rows))


def alone(now_ms: int) -> QuorumView:
    """Return a quorum with one voter."""
    return QuorumView(now_ms, 1, 17, 81_204, (QuorumReplicaView(1, "leader", 81_204, 0, 0, 0),))


def three(kafka: KafkaReading, is_down: bool) -> KafkaReading:
    """Turn a reading of one broker into one of three. A broker that is down is missing from the
    metadata."""
    nodes = [NodeReading(node, f"127.0.0.1:{19_091 + node}", None) for node in (1, 2, 3)]
    if is_down:
        nodes[1] = NodeReading(DEAD, "address unknown", REFUSED, is_listed=False)
    return replace(
        kafka,
        nodes=tuple(nodes),
        topics=tuple(spread(topic, is_down) for topic in kafka.topics),
        quorum=quorum(kafka.at_ms, is_down),
    )


def followers_of(kafka: KafkaReading, node: int, is_down: bool) -> list[dict[str, object]]:
    """Return the partitions that a broker leads, in the form of its `/status`."""
    return [
        {
            "topic": one.topic_partition.topic,
            "partition": one.topic_partition.partition,
            "role": "leader",
            "size_bytes": 4_096,
            "followers": [
                {
                    "node_id": other,
                    "lag": 1_102 if is_down and other == DEAD else 0,
                    "caught_up_ago_ms": 61_000 if is_down and other == DEAD else 0,
                }
                for other in one.replicas
                if other != node
            ],
        }
        for topic in kafka.topics
        for one in topic.partitions
        if one.leader == node
    ]


def brokers(kafka: KafkaReading, is_down: bool) -> tuple[PartAnswer, ...]:
    """Return the answers of the parts broker-1 to broker-3. A broker that is down does not
    answer."""
    return tuple(
        part_down(f"broker-{node}")
        if is_down and node == DEAD
        else part_answer(
            f"broker-{node}",
            kafka.at_ms,
            is_controller=node == 1,
            flush="ack",
            log_bytes=3 << 30,
            bytes_in_per_s=1 << 20,
            partition_list=followers_of(kafka, node, is_down),
        )
        for node in (1, 2, 3)
    )
