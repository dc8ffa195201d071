"""From a cycle's commits and ends to readers: lag, age, rates and how each is doing.

Floor: pure, below `assemble`. The rows of a group are what its members are to read, what it has
committed, and the other partitions of those topics, so that a partition nobody committed is seen.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from monitor.history import History
from monitor.lag import Lag, Measured, add_up, judge, time_lag, worst_time_lag
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
from monitor.watches import FileMemory, ShareMemory
from protocol.types import TopicPartition

RATE_SPAN_MS = 60_000
ETA_SAMPLES_MIN = 5
ETA_CLOSING_MIN = 0.1
ETA_MAX_S = 24 * 3600.0
CAUGHT_UP = Judged(ReaderStatus.OK, "caught up")
RECENT_LAG_MAX = 300


@dataclass(slots=True)
class Memory:
    """What is carried from cycle to cycle beside the last snapshot."""

    ends: History[TopicPartition] = field(default_factory=History)
    commits: dict[str, History[TopicPartition]] = field(default_factory=dict)
    windows: dict[str, dict[TopicPartition, Window]] = field(default_factory=dict)
    files: FileMemory = field(default_factory=FileMemory)
    share: ShareMemory = field(default_factory=ShareMemory)

    def remember_group(self, group: GroupReading, at_ms: int) -> None:
        """Add a group's commits, and forget those that it has no more."""
        series = self.commits.get(group.group_id)
        if series is None:
            # Rates are all that is made of it, and there is one for every reader and partition.
            series = History(window_ms=RATE_SPAN_MS, samples_min=ETA_SAMPLES_MIN + 1)
            self.commits[group.group_id] = series
        for row, commit in group.commits.items():
            series.add(row, at_ms, commit.offset)
        series.keep_only(group.commits)
        windows = self.windows.setdefault(group.group_id, {})
        for row in [row for row in windows if row not in group.commits]:
            del windows[row]

    def keep_groups(self, group_ids: Set[str]) -> None:
        """Forget every group that is not among these."""
        for gone in [one for one in self.commits if one not in group_ids]:
            del self.commits[gone]
            del self.windows[gone]


@dataclass(frozen=True, slots=True)
class Context:
    """What all groups of a cycle are judged by; `partitions` are those that exist, by topic."""

    kafka: KafkaReading
    memory: Memory
    previous: Snapshot | None
    stream_group: str
    partitions: Mapping[str, frozenset[TopicPartition]]
    write_rates: dict[TopicPartition, float | None] = field(default_factory=dict)

    def write_rate(self, row: TopicPartition) -> float | None:
        """How fast a partition is written, measured once a cycle for all of its readers."""
        if row not in self.write_rates:
            rate = self.memory.ends.rate_per_s(row, RATE_SPAN_MS, self.kafka.at_ms)
            self.write_rates[row] = rate
        return self.write_rates[row]


@dataclass(frozen=True, slots=True)
class _Before:
    """A group's cells as they were at the last look."""

    cells: Mapping[TopicPartition, LagCell]
    looked_at_ms: int | None


def group_view(group: GroupReading, context: Context) -> GroupView:
    """One group as of this cycle; the memory keeps the windows of its readers."""
    memory = context.memory
    holders = {row: member.client_id for member in group.members or () for row in member.assignment}
    rows = set(group.commits) | set(holders)
    for topic in sorted({row.topic for row in rows}):
        rows.update(context.partitions.get(topic, ()))
    before = context.previous.group(group.group_id) if context.previous else None
    old = {TopicPartition(c.topic, c.partition): c for c in before.cells} if before else {}
    was = _Before(old, before.looked_at_ms if before else None)
    kind = "stream" if group.group_id == context.stream_group else "group"
    cells = tuple(
        _cell(group, row, context, was, holders.get(row), is_read=kind == "stream")
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
        eta_s=_eta_s(group.group_id, cells, memory),
        error=group.error,
        recent_lag=recent,
        judged=worst([cell.judged for cell in cells]),
        coordinator=group.coordinator,
        assignor=group.assignor,
        write_rate=_sum_of_known(cell.write_rate for cell in cells),
        looked_at_ms=context.kafka.at_ms,
        by_lag=tuple(
            sorted((cell for cell in cells if cell.lag.lag is not None), key=_greatest_lag)
        ),
    )


def _greatest_lag(cell: LagCell) -> tuple[int, str, int]:
    return -(cell.lag.lag or 0), cell.topic, cell.partition


def _member(member: MemberReading) -> MemberView:
    rows = tuple((row.topic, row.partition) for row in sorted(member.assignment))
    return MemberView(member.member_id, member.client_id, member.host, member.instance_id, rows)


def _cell(
    group: GroupReading,
    row: TopicPartition,
    context: Context,
    was: _Before,
    holder: str | None,
    *,
    is_read: bool,
) -> LagCell:
    """One reader in one partition; `is_read` where someone reads it who is no member."""
    kafka, memory = context.kafka, context.memory
    old = was.cells.get(row)
    exists = row in context.partitions.get(row.topic, ())
    commit = group.commits.get(row)
    offset = commit.offset if commit else None
    start, end = kafka.starts.get(row), kafka.ends.get(row)
    metadata = commit.metadata if commit else None
    if old is not None and exists and _stands(old, (offset, start, end, holder, metadata)):
        return old
    lag = judge(Measured(offset, start, end, topic_exists=exists))
    # A reader behind the log's start will next read its first record.
    next_offset = offset if offset is None or start is None else max(offset, start)
    timestamp_ms = None if next_offset is None else kafka.record_timestamps.get((row, next_offset))
    windows = memory.windows[group.group_id]
    window = windows.get(row)
    if window is None:
        window = windows[row] = Window()
    last: tuple[int | None, int | None] = (lag.lag, kafka.at_ms)
    if lag.lag is None:
        last = (None, None) if old is None else (old.last_lag, old.last_lag_at_ms)
        if old is not None and old.lag.lag is not None:
            # A cell that was taken over is as old as the last look at its group.
            last = (old.lag.lag, was.looked_at_ms)
    return LagCell(
        topic=row.topic,
        partition=row.partition,
        lag=lag,
        time_lag=time_lag(
            lag,
            next_offset,
            record_timestamp_ms=timestamp_ms,
            samples=memory.ends.samples(row),
            now_ms=kafka.at_ms,
        ),
        committed_offset=offset,
        log_start_offset=start,
        log_end_offset=end,
        read_rate=memory.commits[group.group_id].rate_per_s(row, RATE_SPAN_MS, kafka.at_ms),
        last_lag=last[0],
        last_lag_at_ms=last[1],
        metadata=metadata,
        judged=_judged(lag, offset, window, kafka.at_ms, is_read=is_read or holder is not None),
        moved_at_ms=window.moved_at_ms,
        write_rate=context.write_rate(row),
        member=holder,
    )


def _stands(old: LagCell, now: tuple[object, ...]) -> bool:
    """Whether a reader has read all of a partition that is quiet, and nothing of that has changed.

    Most partitions of a large cluster are so at any moment; their cells are taken over as they are.
    """
    was = (old.committed_offset, old.log_start_offset, old.log_end_offset, old.member, old.metadata)
    return was == now and old.lag.lag == 0 and not old.read_rate and not old.write_rate


def _judged(lag: Lag, offset: int | None, window: Window, now_ms: int, *, is_read: bool) -> Judged:
    """The verdict over a reader; its window is judged only when it has taken up a look."""
    if lag.lag is None or offset is None:
        return judge_reader(lag, window, now_ms, is_read=is_read)
    if window.add(Look(now_ms, offset, lag.lag)):
        return window.conclude(judge_reader(lag, window, now_ms, is_read=is_read))
    if window.held.status is ReaderStatus.MEASURING and lag.lag == 0:
        return CAUGHT_UP
    return window.held


def _eta_s(group_id: str, cells: tuple[LagCell, ...], memory: Memory) -> float | None:
    """Seconds until the slowest partition has caught up; None unless every lagging one closes in.

    The greatest of the partitions' own times, because a ratio of sums would hide a stuck one.
    """
    slowest = 0.0
    for cell in cells:
        if not cell.lag.lag:
            continue
        row = TopicPartition(cell.topic, cell.partition)
        if len(memory.commits[group_id].samples(row)) < ETA_SAMPLES_MIN:
            return None
        if cell.read_rate is None or cell.write_rate is None:
            return None
        closing = cell.read_rate - cell.write_rate
        if closing < ETA_CLOSING_MIN:
            return None
        slowest = max(slowest, cell.lag.lag / closing)
    return min(slowest, ETA_MAX_S)


def _sum_of_known(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
