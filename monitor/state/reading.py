"""The answers of one cycle as they came, before `assembly` computes lags and states from them.

This module has only data classes. `monitor/asking/poller` makes a `Reading`, and
`monitor/assembly/assemble` makes a snapshot of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from monitor.state.collectors import Heard
from monitor.state.snapshot import DiskView, QuorumView, SourceError
from protocol.status import PartStatus
from protocol.types import TopicPartition


@dataclass(frozen=True, slots=True)
class SupervisedPart:
    """A part as its supervisor reports it.

    `words` has the part's last log lines, once the supervisor has given it up.
    """

    state: str
    reason: str
    words: str | None
    restarts: int
    uptime_ms: int | None
    pid: int | None
    memory_bytes: int | None = None
    awaits_its_turn: bool = False
    """True while it waits in a rolling restart; `reason` then says for what."""


@dataclass(frozen=True, slots=True)
class SupervisorAnswer:
    """The supervisor's answer: its notice about the saved configuration file, and its report on
    every part. `round_ended` says why a rolling restart ended too early.
    """

    problem: str | None
    notice: str | None
    parts: Mapping[str, SupervisedPart]
    round_ended: str | None = None


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """A part's status, or the reason why the part did not answer."""

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
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicReading:
    """A topic as metadata lists it."""

    name: str
    topic_id: str | None
    internal: bool
    partitions: tuple[PartitionReading, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed offset and the metadata text that its reader committed with it."""

    offset: int
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class MemberReading:
    """One member of a group; its assignment is empty in protocols other than the consumers'."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    assignment: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupReading:
    """A group: its state, its members and its commits.

    `members` is None if the group could not be described.
    """

    group_id: str
    state: str
    members: tuple[MemberReading, ...] | None
    commits: Mapping[TopicPartition, Commit]
    error: str | None = None
    coordinator: int | None = None
    assignor: str | None = None

    @property
    def topics(self) -> set[str]:
        """The topics of its commits and of its members' assignments."""
        read = {row.topic for one in self.members or () for row in one.assignment}
        return read | {row.topic for row in self.commits}


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A broker, whether metadata lists it as in service, and whether it answered.

    `supported` has the oldest and the newest level of the metadata log at which the broker runs,
    and `finalised` the level that it knows. They are None if it did not name them.
    """

    node_id: int
    address: str
    error: str | None
    is_listed: bool = True
    rack: str | None = None
    supported: tuple[int, int] | None = None
    finalised: int | None = None


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A topic's setting; `source` is Kafka's name for its origin, the value of a secret is null."""

    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class KafkaReading:
    """All answers of the brokers in one cycle. Commits are read first, then log starts, then log
    ends.

    Without a `quorum`, `quorum_error` gives the reason.
    """

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
    only_markers: frozenset[tuple[TopicPartition, int]] = frozenset()
    """Places (partition, offset) after which the log has only transaction markers and no
    records."""
    topic_configs: Mapping[str, Mapping[str, ConfigValue]] = field(default_factory=dict)
    quorum: QuorumView | None = None
    quorum_error: str | None = None
    rested: frozenset[str] = frozenset()
    """The groups that exist but were not polled in this cycle."""
    collectors: tuple[Heard, ...] | None = None
    """The last report of each collector of another host; None without their topic, or if it was
    not read yet."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All answers of one cycle; `kafka` is None when no broker answered."""

    now_ms: int
    parts: tuple[PartAnswer, ...]
    kafka: KafkaReading | None
    errors: tuple[SourceError, ...] = ()
    supervisor: SupervisorAnswer | None = None
    disks: tuple[DiskView, ...] = ()
