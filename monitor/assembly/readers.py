"""Computes lag, age, rates and status of each reader from a cycle's commits and log ends.

This module is pure. A reader is one group in one partition. The rows of a group are the partitions
that its members are assigned, those in which it has commits, and all other partitions of the same
topics, so that a partition without a commit is shown too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from monitor.assembly.group_memory import RATE_SPAN_MS, GroupMemories, GroupMemory
from monitor.lag.columns import signed
from monitor.lag.offset_history import History
from monitor.lag.reader_status import (
    Judged,
    Look,
    ReaderStatus,
    Window,
    judge_reader,
    worst,
)
from monitor.lag.rules import CellState, Lag, Measured, add_up, judge, time_lag, worst_time_lag
from monitor.state.moves import MoveMemory
from monitor.state.reading import Commit, GroupReading, KafkaReading, MemberReading
from monitor.state.resting_cells import rows_of
from monitor.state.snapshot import GroupView, LagCell, MemberView, Snapshot
from monitor.state.watches import FileMemory, ShareMemory
from protocol.types import TopicPartition

ETA_SPAN_MS_MIN = 8_000
"""The shortest time a reader is observed before it gets an ETA."""

ETA_CLOSING_MIN = 0.1
ETA_MAX_S = 24 * 3600.0
CAUGHT_UP = Judged(ReaderStatus.OK, "caught up")
RECENT_LAG_MAX = 300


@dataclass(slots=True)
class Memory:
    """The state that is kept between cycles in addition to the last snapshot."""

    ends: History[TopicPartition] = field(default_factory=History)
    groups: GroupMemories = field(default_factory=GroupMemories)
    files: FileMemory = field(default_factory=FileMemory)
    share: ShareMemory = field(default_factory=ShareMemory)
    moves: MoveMemory = field(default_factory=MoveMemory)


@dataclass(frozen=True, slots=True)
class Context:
    """The data from which all groups of a cycle are computed.

    `partitions` has the existing partitions by topic.
    """

    kafka: KafkaReading
    memory: Memory
    previous: Snapshot | None
    stream_group: str
    partitions: Mapping[str, frozenset[TopicPartition]]
    write_rates: dict[TopicPartition, float | None] = field(default_factory=dict)

    def kind_of(self, group_id: str) -> str:
        """Return whether a group is the mill's own stream or another group."""
        return "stream" if group_id == self.stream_group else "group"

    def write_rate(self, row: TopicPartition) -> float | None:
        """Return a partition's write rate, measured once a cycle for all of its readers."""
        if row not in self.write_rates:
            rate = self.memory.ends.rate_per_s(row, RATE_SPAN_MS, self.kafka.at_ms)
            self.write_rates[row] = rate
        return self.write_rates[row]


class _Before:
    """The cells of a group at its last poll.

    They are unpacked one at a time, because few are needed.
    """

    def __init__(self, before: GroupView | None) -> None:
        self._cells: Sequence[LagCell] = before.cells if before else ()
        self._indices = {row: index for index, row in enumerate(rows_of(self._cells))}
        self.looked_at_ms = before.looked_at_ms if before else None

    def cell(self, row: TopicPartition) -> LagCell | None:
        """Return the cell of a partition; None if the group had no such cell."""
        index = self._indices.get(row)
        return None if index is None else self._cells[index]


def group_view(group: GroupReading, context: Context) -> GroupView:
    """Return one group as of this cycle, and add its commits and samples to the memory."""
    memory = context.memory.groups.of(group.group_id)
    memory.remember(group, context.kafka.at_ms)
    holders = {row: member.client_id for member in group.members or () for row in member.assignment}
    rows = set(group.commits) | set(holders)
    for topic in sorted({row.topic for row in rows}):
        rows.update(context.partitions.get(topic, ()))
    before = context.previous.group(group.group_id) if context.previous else None
    was = _Before(before)
    kind = context.kind_of(group.group_id)
    cells = tuple(
        _cell(
            _Row(row, group.commits.get(row), holders.get(row)),
            context,
            memory,
            was,
            is_read=kind == "stream",
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
        eta_s=_eta_s(cells, memory.commits),
        recent_lag=recent,
        judged=worst([cell.judged for cell in cells]),
        coordinator=group.coordinator,
        assignor=group.assignor,
        write_rate=_sum_of_known(cell.write_rate for cell in cells),
        looked_at_ms=context.kafka.at_ms,
        by_lag=_by_lag(cells),
    )


def _by_lag(cells: Sequence[LagCell]) -> Sequence[int]:
    lags = [(-cell.lag.lag, index) for index, cell in enumerate(cells) if cell.lag.lag is not None]
    return signed(index for _, index in sorted(lags))


def _member(member: MemberReading) -> MemberView:
    rows = tuple((row.topic, row.partition) for row in sorted(member.assignment))
    return MemberView(member.member_id, member.client_id, member.host, member.instance_id, rows)


class _Row(NamedTuple):
    """One row of a group: a partition, the commit in it, and the member to which it is assigned."""

    row: TopicPartition
    commit: Commit | None
    holder: str | None


def _cell(
    one: _Row, context: Context, memory: GroupMemory, was: _Before, *, is_read: bool
) -> LagCell:
    """Return the cell of one partition.

    `is_read` is true if a reader that is not a member, such as the stream, reads the partition.
    """
    row, commit, holder = one
    kafka = context.kafka
    exists = row in context.partitions.get(row.topic, ())
    offset = commit.offset if commit else None
    metadata = commit.metadata if commit else None
    start, end = kafka.starts.get(row), kafka.ends.get(row)
    if exists and offset is not None and offset == end:
        old = was.cell(row)
        if old is not None and _stands(old, (offset, start, end, holder, metadata)):
            return old
    lag = judge(Measured(offset, start, end, topic_exists=exists))
    # If the commit is below the log start offset, the reader will next read the log's first record.
    next_offset = offset if offset is None or start is None else max(offset, start)
    timestamp_ms, only_markers = None, False
    if next_offset is not None:
        timestamp_ms = kafka.record_timestamps.get((row, next_offset))
        only_markers = (row, next_offset) in kafka.only_markers
    window = memory.window(row)
    last: tuple[int | None, int | None] = (lag.lag, kafka.at_ms)
    if lag.lag is None:
        last = _last_known(was.cell(row), was.looked_at_ms)
    return LagCell(
        topic=row.topic,
        partition=row.partition,
        lag=lag,
        time_lag=time_lag(
            lag,
            next_offset,
            record_timestamp_ms=timestamp_ms,
            samples=context.memory.ends.samples(row),
            now_ms=kafka.at_ms,
            only_markers=only_markers,
        ),
        committed_offset=offset,
        log_start_offset=start,
        log_end_offset=end,
        read_rate=memory.commits.rate_per_s(row, RATE_SPAN_MS, kafka.at_ms),
        last_lag=last[0],
        last_lag_at_ms=last[1],
        metadata=metadata,
        judged=_judged(
            lag,
            offset,
            window,
            kafka.at_ms,
            is_read=is_read or holder is not None,
            only_markers=only_markers,
        ),
        moved_at_ms=window.moved_at_ms,
        write_rate=context.write_rate(row),
        member=holder,
    )


def _last_known(old: LagCell | None, looked_at_ms: int | None) -> tuple[int | None, int | None]:
    """Return the last known lag of a reader and its time; two None if no lag was ever known."""
    if old is None:
        return None, None
    if old.lag.lag is not None:
        # The cell's lag was measured when its group was last polled.
        return old.lag.lag, looked_at_ms
    return old.last_lag, old.last_lag_at_ms


def _stands(old: LagCell, now: tuple[object, ...]) -> bool:
    """Return whether a cell is unchanged: its reader had caught up, and its partition got no
    records.

    Most partitions of a large cluster get no records in a cycle, so their old cells are used again.
    """
    was = (old.committed_offset, old.log_start_offset, old.log_end_offset, old.member, old.metadata)
    return was == now and old.lag.lag == 0 and not old.read_rate and not old.write_rate


def _judged(
    lag: Lag,
    offset: int | None,
    window: Window,
    now_ms: int,
    *,
    is_read: bool,
    only_markers: bool,
) -> Judged:
    """Return the status of a reader. It is computed again only if this poll added a sample to the
    reader's window.
    """
    if lag.lag is None or offset is None:
        return judge_reader(lag, window, now_ms, is_read=is_read)
    if window.add(Look(now_ms, offset, lag.lag)):
        found = judge_reader(lag, window, now_ms, is_read=is_read, only_markers=only_markers)
        return window.conclude(found)
    if window.held.status is ReaderStatus.MEASURING and lag.lag == 0:
        return CAUGHT_UP
    return window.held


def _eta_s(cells: Sequence[LagCell], commits: History[TopicPartition]) -> float | None:
    """Return the seconds until the slowest partition has caught up; None if that is not known.

    It is the greatest of the partitions' times, because total lag divided by total rate would hide
    a stuck partition. It is known if the lag of every partition with a lag shrinks, at least one
    lag is known, and no partition that can have unread records has an unknown lag.
    """
    if all(cell.lag.lag is None for cell in cells) or any(map(_may_hide_a_lag, cells)):
        return None
    slowest = 0.0
    for cell in cells:
        if not cell.lag.lag:
            continue
        samples = commits.samples(TopicPartition(cell.topic, cell.partition))
        if samples.span_ms < ETA_SPAN_MS_MIN:
            return None
        if cell.read_rate is None or cell.write_rate is None:
            return None
        closing = cell.read_rate - cell.write_rate
        if closing < ETA_CLOSING_MIN:
            return None
        slowest = max(slowest, cell.lag.lag / closing)
    return min(slowest, ETA_MAX_S)


def _may_hide_a_lag(cell: LagCell) -> bool:
    """Return whether the lag of a cell is unknown but can be above 0.

    It is certainly 0 in an empty or deleted partition.
    """
    if cell.state is CellState.NO_COMMIT:
        return cell.lag.backlog != 0
    return cell.lag.lag is None and cell.state is not CellState.DELETED


def _sum_of_known(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
