"""Readings for the monitor's tests: a small cluster, one group, and parts that are up or down."""

from monitor.api.exposition import metric_pieces
from monitor.state.reading import (
    Commit,
    GroupReading,
    KafkaReading,
    NodeReading,
    PartAnswer,
    PartitionReading,
    Reading,
    TopicReading,
)
from monitor.state.snapshot import Snapshot, SourceError
from protocol.status import PartState, PartStatus
from protocol.types import TopicPartition

GROUP = "millrace-stream"


def row(partition: int, topic: str = "logs.access") -> TopicPartition:
    """Return a partition of the topic."""
    return TopicPartition(topic, partition)


def topic_reading(name: str = "logs.access", partitions: int = 2) -> TopicReading:
    """Return a topic that node 1 leads, with all replicas in sync."""
    return TopicReading(
        name,
        "2c7f9a51-3a0f-4a64-9f0b-3f1d9b8d7e11",
        internal=False,
        partitions=tuple(
            PartitionReading(TopicPartition(name, index), 1, (1,), (1,))
            for index in range(partitions)
        ),
    )


def kafka_reading(
    at_ms: int,
    *,
    commits: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    starts: dict[TopicPartition, int] | None = None,
    topics: tuple[TopicReading, ...] | None = None,
    group_id: str = GROUP,
    timestamps: dict[tuple[TopicPartition, int], int] | None = None,
) -> KafkaReading:
    """Return a reading of a cluster with one node and one group that has these committed
    offsets."""
    return KafkaReading(
        at_ms=at_ms,
        cluster_id="abcdefghijklmnopqrstuv",
        controller_id=1,
        nodes=(NodeReading(1, "127.0.0.1:9092", None),),
        topics=(topic_reading(),) if topics is None else topics,
        groups=(
            GroupReading(
                group_id, "Empty", (), {part: Commit(offset) for part, offset in commits.items()}
            ),
        ),
        starts=dict.fromkeys(ends, 0) if starts is None else starts,
        ends=ends,
        record_timestamps=timestamps or {},
    )


def part_answer(name: str, now_ms: int, **details: object) -> PartAnswer:
    """Return the answer of a part that runs and reports these details."""
    status = PartStatus(
        part=name,
        state=PartState.RUNNING,
        ready=True,
        started_at_ms=max(1_000, now_ms - 272_000_000),
        now_ms=now_ms,
        details=details,
    )
    return PartAnswer(name, "127.0.0.1:8092", status)


def part_down(name: str) -> PartAnswer:
    """Return the result of asking a part that does not answer."""
    return PartAnswer(name, "127.0.0.1:8092", None, "127.0.0.1:8092: Connection refused")


def reading(now_ms: int, kafka: KafkaReading | None, parts: tuple[PartAnswer, ...] = ()) -> Reading:
    """Return the result of one polling cycle. Without Kafka, it has the brokers' error."""
    errors = () if kafka else (SourceError("brokers", "127.0.0.1:9092: refused"),)
    return Reading(now_ms, parts, kafka, errors)


def metrics_of(snapshot: Snapshot) -> bytes:
    """Return the text that Prometheus gets for a snapshot."""
    return b"".join(metric_pieces(snapshot))
