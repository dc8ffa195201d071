"""The state of the mill at one moment. Every page, the API and the command line show it.

This module has only immutable data. Lists are sorted. An unknown value is None, and another field
gives the reason. Times are Unix milliseconds, sizes are bytes, rates are offsets a second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from monitor.lag.reader_status import Judged, ReaderStatus
from monitor.lag.rules import CellState, Lag, LagSum, TimeLag
from monitor.state.alert import Standing
from monitor.state.broker_facts import NO_FACTS, BrokerFacts, Leaving
from monitor.state.collectors import CollectorView
from monitor.state.filling import Filling
from monitor.state.moves import MoveView
from monitor.state.progress import Stuck
from monitor.state.watches import StillFile
from protocol.reassignment import effective_min_isr, is_under_replicated

UNJUDGED = Judged(ReaderStatus.MEASURING)
NO_RULES = Standing()


@dataclass(frozen=True, slots=True)
class SourceError:
    """A source that could not be read in the polling cycle of this snapshot, and the error."""

    source: str
    text: str


@dataclass(frozen=True, slots=True)
class PartView:
    """One part of the mill as its own `/status` reports it.

    `details` is from the last status that the part answered. `supervised` is the part's state in
    the supervisor's words. `turn` says what the part waits for in a rolling restart. `words` has
    the part's last log lines before the supervisor gave it up.
    """

    name: str
    address: str
    reachable: bool
    state: str
    ready: bool
    error: str | None
    answered_at_ms: int | None
    started_at_ms: int | None
    pid: int | None
    problems: tuple[str, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    restarts: int | None = None
    words: str | None = None
    supervised: str | None = None
    turn: str | None = None
    version: str | None = None
    memory_bytes: int | None = None
    away_since_ms: int | None = None
    stuck: Stuck | None = None


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker: whether it answers, and whether it is in service.

    A broker that is alive and `fenced` answers requests, but leads no partition and is in no set of
    in-sync replicas.
    """

    node_id: int
    address: str
    is_controller: bool
    alive: bool
    error: str | None
    leads: int
    away_since_ms: int | None = None
    fenced: bool = False
    replicas: int = 0
    under_replicated: int = 0
    """The number of assigned partitions in which this broker is not in sync."""
    role: str | None = None
    """The role in the quorum: leader, voter or observer; None if the quorum does not name it."""
    quorum_lag: int | None = None
    facts: BrokerFacts = NO_FACTS
    leaving: Leaving | None = None
    """The replicas that are left on a cordoned broker; None for any other broker."""

    @property
    def state(self) -> str:
        """The broker's state: up, fenced or down."""
        return "down" if not self.alive else "fenced" if self.fenced else "up"


@dataclass(frozen=True, slots=True)
class QuorumReplicaView:
    """One replica of the metadata log. A value that the quorum's leader does not know is None."""

    node_id: int
    role: str
    log_end_offset: int | None
    lag: int | None
    fetched_ago_ms: int | None
    caught_up_ago_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The metadata quorum as its leader saw it at `at_ms`, the leader first."""

    at_ms: int
    leader_id: int
    epoch: int
    high_watermark: int
    replicas: tuple[QuorumReplicaView, ...]


@dataclass(frozen=True, slots=True)
class FollowerView:
    """A follower as its leader reports it: by how many offsets it is behind, and for how long."""

    node_id: int
    lag: int | None
    caught_up_ago_ms: int | None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition's replicas and the ends of its log. `write_rate` is in offsets a second over
    one minute.
    """

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    log_start_offset: int | None
    log_end_offset: int | None
    size_bytes: int | None
    write_rate: float | None
    error: str | None
    min_in_sync: int | None = None
    followers: tuple[FollowerView, ...] = ()
    """The followers as a Millrace leader reports them."""
    adding_replicas: tuple[int, ...] = ()
    """The replicas that a reassignment adds. Until its end they only copy records."""
    removing_replicas: tuple[int, ...] = ()
    """The replicas that a reassignment takes away when it completes."""

    @property
    def under_min_isr(self) -> bool:
        """True if the partition has a leader and refuses writes with acks=all."""
        least = effective_min_isr(self.min_in_sync or 0, self.replicas, self.adding_replicas)
        return self.leader is not None and len(self.in_sync_replicas) < least

    @property
    def under_replicated(self) -> bool:
        """True if a replica that no reassignment adds is out of sync."""
        return is_under_replicated(self.replicas, self.adding_replicas, self.in_sync_replicas)


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic with its partitions, in order."""

    name: str
    topic_id: str | None
    internal: bool
    partitions: tuple[PartitionView, ...]
    config: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)

    @property
    def offsets_held(self) -> int | None:
        """The number of offsets between start and end of all partitions; None if any end is
        unknown."""
        held = 0
        for part in self.partitions:
            if part.log_end_offset is None or part.log_start_offset is None:
                return None
            held += part.log_end_offset - part.log_start_offset
        return held

    @property
    def size_bytes(self) -> int | None:
        """The bytes on the leaders' disks; None if the size of any partition is unknown."""
        sizes = [part.size_bytes for part in self.partitions]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    @property
    def write_rate(self) -> float | None:
        """The write rate of all partitions in offsets a second; None if any rate is not measured
        yet."""
        rates = [part.write_rate for part in self.partitions]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if len(known) == len(rates) else None


@dataclass(frozen=True, slots=True)
class LagCell:
    """The lag of one group in one partition.

    While the log's end is unknown, `last_lag` and its time replace the lag.
    """

    topic: str
    partition: int
    lag: Lag
    time_lag: TimeLag
    committed_offset: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    read_rate: float | None = None
    last_lag: int | None = None
    last_lag_at_ms: int | None = None
    metadata: str | None = None
    judged: Judged = UNJUDGED
    moved_at_ms: int | None = None
    write_rate: float | None = None
    member: str | None = None

    @property
    def state(self) -> CellState:
        """The state of the lag."""
        return self.lag.state


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member of a group and its assignment."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group of readers. `recent_lag` is its total lag of the last minutes, oldest first.

    The total is the sum of the known lags, so one partition without a commit does not make it
    unknown. `members` is None if the group could not be described. In a large cluster not every
    group is polled in each cycle; `looked_at_ms` is when this group was last polled.
    """

    group_id: str
    state: str
    kind: str
    members: tuple[MemberView, ...] | None
    cells: Sequence[LagCell]
    total: LagSum
    time_lag: TimeLag
    read_rate: float | None
    eta_s: float | None
    error: str | None = None
    recent_lag: tuple[int, ...] = ()
    judged: Judged = UNJUDGED
    coordinator: int | None = None
    assignor: str | None = None
    write_rate: float | None = None
    looked_at_ms: int | None = None
    by_lag: Sequence[int] = ()
    """Indices of the cells with a known lag, the greatest lag first."""


@dataclass(frozen=True, slots=True)
class DiskView:
    """A disk with data of the mill. `name` says which data."""

    name: str
    free_bytes: int
    size_bytes: int
    filling: Filling | None = None
    """The pace at which the disk fills; None if the history is too short."""

    @property
    def days_left(self) -> float | None:
        """The days until the disk is full at this pace; None if the free space does not shrink."""
        return None if self.filling is None else self.filling.days_left(self.free_bytes)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the monitor knows at `taken_at_ms`.

    `kafka_at_ms` is when the brokers last answered. If it is older than `taken_at_ms`, topics and
    groups are as of `kafka_at_ms`, and their log ends are unknown.
    """

    seq: int
    taken_at_ms: int
    refresh_ms: int
    bootstrap_servers: str
    cluster_id: str | None = None
    kafka_at_ms: int | None = None
    parts: tuple[PartView, ...] = ()
    brokers: tuple[BrokerView, ...] = ()
    topics: tuple[TopicView, ...] = ()
    groups: tuple[GroupView, ...] = ()
    unseen: frozenset[str] = frozenset()
    """The groups that exist and were not polled yet."""
    errors: tuple[SourceError, ...] = ()
    config_problem: str | None = None
    config_notice: str | None = None
    quorum: QuorumView | None = None
    quorum_error: str | None = None
    moves: tuple[MoveView, ...] = ()
    """The reassignments under way, by partition."""
    round_ended: str | None = None
    """The reason why a rolling restart ended before all brokers were restarted; else None."""
    disks: tuple[DiskView, ...] = ()
    unparsed_share: float | None = None
    """The share of the lines of the last ten minutes that did not parse."""
    still_files: tuple[StillFile, ...] | None = None
    """The files that the collector has stopped reading; None if it does not report its files."""
    alerts: Standing = NO_RULES
    collectors: tuple[CollectorView, ...] | None = None
    """The collectors of other hosts, those with trouble first; None if none has ever reported."""

    @property
    def partitions(self) -> tuple[PartitionView, ...]:
        """All partitions of all topics."""
        return tuple(part for topic in self.topics for part in topic.partitions)

    def part(self, name: str) -> PartView | None:
        """Return the part with this name; None if there is none."""
        return next((part for part in self.parts if part.name == name), None)

    def group(self, group_id: str) -> GroupView | None:
        """Return the group with this id; None if there is none."""
        return next((group for group in self.groups if group.group_id == group_id), None)

    def topic(self, name: str) -> TopicView | None:
        """Return the topic with this name; None if there is none."""
        return next((topic for topic in self.topics if topic.name == name), None)
