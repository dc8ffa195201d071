"""What is kept in columns comes back as it was: cells, commits, windows."""

from dataclasses import replace

import pytest

from monitor.group_memory import GroupMemories
from monitor.lag import Bound, CellState, Lag, TimeLag
from monitor.reader_status import Judged, Look, ReaderStatus
from monitor.reading import Commit, GroupReading
from monitor.resting_cells import MarkedCells, RestingCells, rows_of
from monitor.snapshot import LagCell
from tests.unit.monitor.readings import row

PLAIN = LagCell(
    topic="logs.access",
    partition=0,
    lag=Lag(CellState.OK, 40),
    time_lag=TimeLag(1_500, Bound.ABOUT),
    committed_offset=60,
    log_start_offset=7,
    log_end_offset=100,
    read_rate=2.5,
    last_lag=40,
    last_lag_at_ms=9_000,
    metadata="",
    judged=Judged(ReaderStatus.STALLED, "its commit does not move; 40 wait", 2_000),
    moved_at_ms=2_000,
    write_rate=0.25,
    member="reader-1",
)
CELLS = (
    PLAIN,
    replace(PLAIN, partition=1, read_rate=None, write_rate=None, member=None, moved_at_ms=None),
    replace(PLAIN, partition=2, lag=Lag(CellState.NO_COMMIT, backlog=93), committed_offset=None),
    replace(PLAIN, partition=3, lag=Lag(CellState.END_UNKNOWN), log_end_offset=None),
    replace(PLAIN, partition=4, lag=Lag(CellState.LOST, 93, lost=3), committed_offset=4),
    replace(PLAIN, partition=5, time_lag=TimeLag(None, Bound.MEASURING), last_lag_at_ms=8_000),
    replace(PLAIN, topic="orders", partition=0, metadata="of a reader of its own"),
    replace(PLAIN, topic="orders", partition=1, lag=Lag(CellState.OK, 40), last_lag=39),
)


def test_cells_come_back_as_they_were() -> None:
    resting = RestingCells(CELLS)
    assert tuple(resting) == CELLS
    assert [resting[index] for index in range(len(CELLS))] == list(CELLS)
    assert (resting[-1], resting[2:4]) == (CELLS[-1], CELLS[2:4])
    assert list(rows_of(resting)) == list(rows_of(CELLS))
    with pytest.raises(IndexError):
        resting[len(CELLS)]


def test_a_mark_is_put_on_every_cell_that_is_asked_for() -> None:
    def mark(cell: LagCell) -> LagCell:
        return replace(cell, log_end_offset=None)

    marked = MarkedCells(RestingCells(CELLS), mark)
    assert tuple(marked) == tuple(map(mark, CELLS))
    assert list(rows_of(marked)) == list(rows_of(CELLS))


def test_a_group_that_rests_remembers_its_commits_and_its_windows() -> None:
    memories = GroupMemories()
    for step in range(4):
        commits = {row(0): Commit(step), row(300): Commit(5), row(1, "orders"): Commit(step * 70)}
        memories.of("a").remember(GroupReading("a", "Empty", (), commits), step * 10_000)
        for partition, commit in commits.items():
            window = memories.of("a").window(partition)
            assert window.add(Look(step * 10_000, commit.offset, 1_000_000_000_000 - step))
    window.conclude(Judged(ReaderStatus.STALLED, "for two looks", 3))
    memories.of("a").window(row(9))
    before = (dict(memories.of("a").commits.items()), memories.of("a").windows)
    memories.keep({"a"}, {"a"})
    found = memories.of("a")
    assert (dict(found.commits.items()), found.windows) == before
    assert found.commits.rate_per_s(row(1, "orders"), 60_000, 30_000) == 7.0
    memories.keep({"b"}, frozenset())
    assert len(memories) == 0


def test_a_group_that_rests_is_forgotten_when_it_is_gone() -> None:
    memories = GroupMemories()
    memories.of("a").window(row(0))
    memories.keep({"a"}, {"a"})
    assert len(memories) == 1
    memories.keep(frozenset(), frozenset())
    assert (len(memories), memories.of("a").windows) == (0, {})
