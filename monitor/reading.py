"""What one cycle brought home, before anyone judged it.

Floor: pure data. `monitor/collect.py` fills it, `monitor/assemble.py` makes a snapshot of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from monitor.snapshot import SourceError
from protocol.status import PartStatus
from protocol.types import TopicPartition


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """What a part said of itself, or why it said nothing."""

    name: str
    address: str
    status: PartStatus | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """A partition as metadata lists it."""

    topic_partition: TopicPartition
    leader: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicReading:
    """A topic as metadata lists it."""

    name: str
    topic_id: str | None
    internal: bool
    partitions: tuple[PartitionReading, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed offset and the text its reader left with it."""

    offset: int
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class GroupReading:
    """A group: its state, and what it committed where."""

    group_id: str
    state: str
    members: int | None
    commits: Mapping[TopicPartition, Commit]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A broker that metadata lists, and what it answered when asked itself."""

    node_id: int
    address: str
    error: str | None


@dataclass(frozen=True, slots=True)
class KafkaReading:
    """One pass over the brokers: commits were read first, then starts, then ends."""

    at_ms: int
    cluster_id: str | None
    controller_id: int | None
    nodes: tuple[NodeReading, ...]
    topics: tuple[TopicReading, ...]
    groups: tuple[GroupReading, ...]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    partition_errors: Mapping[TopicPartition, str] = field(default_factory=dict)
    record_timestamps: Mapping[tuple[TopicPartition, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything of one cycle; `kafka` is None when no broker answered."""

    now_ms: int
    parts: tuple[PartAnswer, ...]
    kafka: KafkaReading | None
    errors: tuple[SourceError, ...] = ()
