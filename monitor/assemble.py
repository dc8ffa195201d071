"""From a cycle's reading, the offsets' history and the snapshot before it: the next snapshot.

Floor: pure. A source that failed keeps its last values, marked: cells say `end_unknown` with the
lag they last had, brokers say they do not answer, parts keep their details with the time of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from monitor.history import History
from monitor.lag import (
    Bound,
    Lag,
    LagSum,
    Measured,
    TimeLag,
    add_up,
    judge,
    time_lag,
    worst_time_lag,
)
from monitor.reading import GroupReading, KafkaReading, PartAnswer, Reading, TopicReading
from monitor.snapshot import (
    BrokerView,
    GroupView,
    LagCell,
    PartitionView,
    PartView,
    Snapshot,
    TopicView,
)
from protocol.types import TopicPartition

RATE_SPAN_MS = 60_000
ETA_SAMPLES_MIN = 5
ETA_CLOSING_MIN = 0.1
ETA_MAX_S = 24 * 3600.0
RECENT_LAG_MAX = 120


@dataclass(slots=True)
class Memory:
    """What is carried from cycle to cycle beside the last snapshot."""

    ends: History[TopicPartition] = field(default_factory=History)
    commits: History[tuple[str, TopicPartition]] = field(default_factory=History)


def assemble(
    reading: Reading,
    previous: Snapshot | None,
    memory: Memory,
    *,
    refresh_ms: int,
    bootstrap_servers: str,
    stream_group: str,
) -> Snapshot:
    """The picture after this cycle; `memory` takes up the cycle's offsets."""
    base = Snapshot(
        seq=1 if previous is None else previous.seq + 1,
        taken_at_ms=reading.now_ms,
        refresh_ms=refresh_ms,
        bootstrap_servers=bootstrap_servers,
        parts=tuple(_part(answer, previous, reading.now_ms) for answer in reading.parts),
        errors=reading.errors,
    )
    if reading.kafka is None:
        return base if previous is None else _without_kafka(base, previous)
    kafka = reading.kafka
    remember(memory, kafka)
    sizes = partition_sizes(reading.parts)
    return replace(
        base,
        cluster_id=kafka.cluster_id,
        kafka_at_ms=kafka.at_ms,
        brokers=_brokers(kafka),
        topics=tuple(_topic(topic, kafka, memory, sizes) for topic in kafka.topics),
        groups=tuple(
            _group(group, kafka, memory, previous, stream_group) for group in kafka.groups
        ),
    )


def remember(memory: Memory, kafka: KafkaReading) -> None:
    """Add a cycle's offsets to the history, and forget what is gone."""
    for topic_partition, end in kafka.ends.items():
        memory.ends.add(topic_partition, kafka.at_ms, end)
    live = {part.topic_partition for topic in kafka.topics for part in topic.partitions}
    memory.ends.keep_only(live)
    readers = set()
    for group in kafka.groups:
        for topic_partition, commit in group.commits.items():
            readers.add((group.group_id, topic_partition))
            memory.commits.add((group.group_id, topic_partition), kafka.at_ms, commit.offset)
    memory.commits.keep_only(readers)


def partition_sizes(parts: tuple[PartAnswer, ...]) -> dict[TopicPartition, int]:
    """Bytes on disk by partition, from the statuses of our own brokers."""
    sizes: dict[TopicPartition, int] = {}
    for part in parts:
        listed = part.status.details.get("partition_list") if part.status else None
        for row in listed if isinstance(listed, list) else ():
            if isinstance(row, dict) and isinstance(row.get("size_bytes"), int):
                key = TopicPartition(str(row.get("topic")), int(row.get("partition", -1)))
                sizes[key] = max(sizes.get(key, 0), row["size_bytes"])
    return sizes


def _part(answer: PartAnswer, previous: Snapshot | None, now_ms: int) -> PartView:
    status = answer.status
    if status is not None:
        return PartView(
            name=answer.name,
            address=answer.address,
            reachable=True,
            state=str(status.state),
            ready=status.ready,
            error=None,
            answered_at_ms=now_ms,
            started_at_ms=status.started_at_ms or None,
            pid=status.pid or None,
            problems=tuple(problem.text for problem in status.problems),
            details=status.details,
        )
    before = previous.part(answer.name) if previous else None
    if before is None:
        return PartView(
            answer.name, answer.address, False, "down", False, answer.error, None, None, None
        )
    return replace(
        before,
        reachable=False,
        state="down",
        ready=False,
        error=answer.error,
        pid=None,
        problems=(),
    )


def _brokers(kafka: KafkaReading) -> tuple[BrokerView, ...]:
    leads: dict[int, int] = {}
    for topic in kafka.topics:
        for part in topic.partitions:
            if part.leader is not None:
                leads[part.leader] = leads.get(part.leader, 0) + 1
    return tuple(
        BrokerView(
            node_id=node.node_id,
            address=node.address,
            is_controller=node.node_id == kafka.controller_id,
            alive=node.error is None,
            error=node.error,
            leads=leads.get(node.node_id, 0),
        )
        for node in sorted(kafka.nodes, key=lambda node: node.node_id)
    )


def _topic(
    topic: TopicReading,
    kafka: KafkaReading,
    memory: Memory,
    sizes: Mapping[TopicPartition, int],
) -> TopicView:
    rows = [
        PartitionView(
            topic=topic.name,
            partition=part.topic_partition.partition,
            leader=part.leader,
            replicas=part.replicas,
            in_sync_replicas=part.in_sync_replicas,
            log_start_offset=kafka.starts.get(part.topic_partition),
            log_end_offset=kafka.ends.get(part.topic_partition),
            size_bytes=sizes.get(part.topic_partition),
            write_rate=memory.ends.rate_per_s(part.topic_partition, RATE_SPAN_MS, kafka.at_ms),
            error=kafka.partition_errors.get(part.topic_partition),
        )
        for part in topic.partitions
    ]
    return TopicView(topic.name, topic.topic_id, topic.internal, tuple(rows))


def _group(
    group: GroupReading,
    kafka: KafkaReading,
    memory: Memory,
    previous: Snapshot | None,
    stream_group: str,
) -> GroupView:
    partitions = {t.name: [p.topic_partition for p in t.partitions] for t in kafka.topics}
    rows = set(group.commits)
    for topic_partition in group.commits:
        rows.update(partitions.get(topic_partition.topic, ()))
    before = previous.group(group.group_id) if previous else None
    cells = tuple(
        _cell(group, row, kafka, memory, before, exists=row in partitions.get(row.topic, ()))
        for row in sorted(rows)
    )
    total = add_up(cell.lag for cell in cells)
    recent = before.recent_lag if before else ()
    if total.complete:
        recent = (*recent, total.lag)[-RECENT_LAG_MAX:]
    return GroupView(
        group_id=group.group_id,
        state=group.state,
        kind="stream" if group.group_id == stream_group else "group",
        members=group.members,
        cells=cells,
        total=total,
        time_lag=worst_time_lag(cell.time_lag for cell in cells),
        read_rate=_sum_of_known(cell.read_rate for cell in cells),
        eta_s=_eta_s(group.group_id, cells, memory, kafka.at_ms),
        error=group.error,
        recent_lag=recent,
    )


def _cell(
    group: GroupReading,
    row: TopicPartition,
    kafka: KafkaReading,
    memory: Memory,
    before: GroupView | None,
    *,
    exists: bool,
) -> LagCell:
    commit = group.commits.get(row)
    offset = commit.offset if commit else None
    start, end = kafka.starts.get(row), kafka.ends.get(row)
    lag = judge(Measured(offset, start, end, topic_exists=exists))
    # A reader behind the log's start will next read its first record.
    next_offset = offset if offset is None or start is None else max(offset, start)
    age = time_lag(
        lag,
        next_offset,
        record_timestamp_ms=None
        if next_offset is None
        else kafka.record_timestamps.get((row, next_offset)),
        samples=memory.ends.samples(row),
        now_ms=kafka.at_ms,
    )
    cell = LagCell(
        topic=row.topic,
        partition=row.partition,
        lag=lag,
        time_lag=age,
        committed_offset=offset,
        log_start_offset=start,
        log_end_offset=end,
        read_rate=memory.commits.rate_per_s((group.group_id, row), RATE_SPAN_MS, kafka.at_ms),
        metadata=commit.metadata if commit else None,
    )
    if lag.lag is not None:
        return replace(cell, last_lag=lag.lag, last_lag_at_ms=kafka.at_ms)
    old = _find_cell(before, row)
    return cell if old is None else _with_last(cell, old)


def _find_cell(group: GroupView | None, row: TopicPartition) -> LagCell | None:
    cells = group.cells if group else ()
    return next((c for c in cells if c.topic == row.topic and c.partition == row.partition), None)


def _with_last(cell: LagCell, old: LagCell) -> LagCell:
    return replace(cell, last_lag=old.last_lag, last_lag_at_ms=old.last_lag_at_ms)


def _eta_s(group_id: str, cells: tuple[LagCell, ...], memory: Memory, now_ms: int) -> float | None:
    """Seconds until the slowest partition has caught up; None unless every lagging one closes in.

    The greatest of the partitions' own times, because a ratio of sums would hide a stuck one.
    """
    slowest = 0.0
    for cell in cells:
        if not cell.lag.lag:
            continue
        row = TopicPartition(cell.topic, cell.partition)
        if len(memory.commits.samples((group_id, row))) < ETA_SAMPLES_MIN:
            return None
        written = memory.ends.rate_per_s(row, RATE_SPAN_MS, now_ms)
        if cell.read_rate is None or written is None:
            return None
        closing = cell.read_rate - written
        if closing < ETA_CLOSING_MIN:
            return None
        slowest = max(slowest, cell.lag.lag / closing)
    return min(slowest, ETA_MAX_S)


def _sum_of_known(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _without_kafka(base: Snapshot, previous: Snapshot) -> Snapshot:
    """No broker answered: everything known of them stays, marked as not known any more."""
    why = "no broker answered"
    unknown = judge(Measured(None, None, None))
    return replace(
        base,
        cluster_id=previous.cluster_id,
        kafka_at_ms=previous.kafka_at_ms,
        brokers=tuple(replace(b, alive=False, error=b.error or why) for b in previous.brokers),
        topics=tuple(_stale_topic(topic, why) for topic in previous.topics),
        groups=tuple(_stale_group(group, unknown) for group in previous.groups),
    )


def _stale_topic(topic: TopicView, why: str) -> TopicView:
    return replace(
        topic,
        partitions=tuple(
            replace(part, log_end_offset=None, write_rate=None, error=why)
            for part in topic.partitions
        ),
    )


def _stale_group(group: GroupView, unknown: Lag) -> GroupView:
    return replace(
        group,
        state="unknown",
        cells=tuple(
            replace(
                cell,
                lag=unknown,
                time_lag=TimeLag(None, Bound.UNKNOWN),
                log_end_offset=None,
                read_rate=None,
            )
            for cell in group.cells
        ),
        total=LagSum(0, 0, len(group.cells)),
        time_lag=TimeLag(None, Bound.UNKNOWN),
        read_rate=None,
        eta_s=None,
    )
