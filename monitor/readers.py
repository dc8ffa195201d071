"""From a cycle's commits and ends to readers: lag, age, rates and how each is doing.

Floor: pure, below `assemble`. The rows of a group are what its members are to read, what it has
committed, and the other partitions of those topics, so that a partition nobody committed is seen.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from monitor.history import History
from monitor.lag import Measured, add_up, judge, time_lag, worst_time_lag
from monitor.reader_status import (
    Judged,
    Look,
    ReaderStatus,
    Window,
    judge_reader,
    worst,
)
from monitor.reading import GroupReading, KafkaReading, MemberReading
from monitor.snapshot import GroupView, LagCell, MemberView, Snapshot
from protocol.types import TopicPartition

RATE_SPAN_MS = 60_000
ETA_SAMPLES_MIN = 5
ETA_CLOSING_MIN = 0.1
ETA_MAX_S = 24 * 3600.0
RECENT_LAG_MAX = 300


@dataclass(slots=True)
class Memory:
    """What is carried from cycle to cycle beside the last snapshot."""

    ends: History[TopicPartition] = field(default_factory=History)
    commits: History[tuple[str, TopicPartition]] = field(default_factory=History)
    windows: dict[tuple[str, TopicPartition], Window] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Context:
    """What all groups of a cycle are judged by; `partitions` are those that exist, by topic."""

    kafka: KafkaReading
    memory: Memory
    previous: Snapshot | None
    stream_group: str
    partitions: Mapping[str, frozenset[TopicPartition]]


def group_view(group: GroupReading, context: Context) -> GroupView:
    """One group as of this cycle; the memory keeps the windows of its readers."""
    kafka, memory = context.kafka, context.memory
    holders = {row: member.client_id for member in group.members or () for row in member.assignment}
    rows = set(group.commits) | set(holders)
    for topic in {row.topic for row in rows}:
        rows.update(context.partitions.get(topic, ()))
    before = context.previous.group(group.group_id) if context.previous else None
    old = {TopicPartition(c.topic, c.partition): c for c in before.cells} if before else {}
    kind = "stream" if group.group_id == context.stream_group else "group"
    cells = tuple(
        _judged(
            _cell(group, row, context, old.get(row)),
            group.group_id,
            memory,
            kafka.at_ms,
            holder=holders.get(row),
            is_read=row in holders or kind == "stream",
        )
        for row in sorted(rows)
    )
    total = add_up(cell.lag for cell in cells)
    recent = before.recent_lag if before else ()
    if total.known:
        recent = (*recent, total.lag)[-RECENT_LAG_MAX:]
    return GroupView(
        group_id=group.group_id,
        state=group.state,
        kind=kind,
        members=None if group.members is None else tuple(map(_member, group.members)),
        cells=cells,
        total=total,
        time_lag=worst_time_lag(cell.time_lag for cell in cells),
        read_rate=_sum_of_known(cell.read_rate for cell in cells),
        eta_s=_eta_s(group.group_id, cells, memory, kafka.at_ms),
        error=group.error,
        recent_lag=recent,
        judged=worst([cell.judged for cell in cells]),
        coordinator=group.coordinator,
        assignor=group.assignor,
        write_rate=_sum_of_known(cell.write_rate for cell in cells),
    )


def _member(member: MemberReading) -> MemberView:
    rows = tuple((row.topic, row.partition) for row in sorted(member.assignment))
    return MemberView(member.member_id, member.client_id, member.host, member.instance_id, rows)


def _judged(
    cell: LagCell,
    group_id: str,
    memory: Memory,
    now_ms: int,
    *,
    holder: str | None,
    is_read: bool,
) -> LagCell:
    """The cell with its verdict; a window is looked at only when it has taken up a look."""
    key = (group_id, TopicPartition(cell.topic, cell.partition))
    window = memory.windows.setdefault(key, Window())
    if cell.lag.lag is None or cell.committed_offset is None:
        judged = judge_reader(cell.lag, window, now_ms, is_read=is_read)
        return replace(cell, judged=judged, moved_at_ms=window.moved_at_ms, member=holder)
    if window.add(Look(now_ms, cell.committed_offset, cell.lag.lag)):
        judged = window.conclude(judge_reader(cell.lag, window, now_ms, is_read=is_read))
    elif window.held.status is ReaderStatus.MEASURING and cell.lag.lag == 0:
        judged = Judged(ReaderStatus.OK, "caught up")
    else:
        judged = window.held
    return replace(cell, judged=judged, moved_at_ms=window.moved_at_ms, member=holder)


def _cell(
    group: GroupReading, row: TopicPartition, context: Context, old: LagCell | None
) -> LagCell:
    kafka, memory = context.kafka, context.memory
    exists = row in context.partitions.get(row.topic, ())
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
        write_rate=memory.ends.rate_per_s(row, RATE_SPAN_MS, kafka.at_ms),
    )
    if lag.lag is not None:
        return replace(cell, last_lag=lag.lag, last_lag_at_ms=kafka.at_ms)
    return cell if old is None else _with_last(cell, old)


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
