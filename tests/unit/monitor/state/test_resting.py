"""Cells, commits and windows that are stored in columns are the same when they are read back."""

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from monitor.alerts.kinds import measured
from monitor.api.exposition import metric_pieces
from monitor.assembly.group_memory import GroupMemories
from monitor.config.alert_rules import SHIPPED_RULES
from monitor.config.following import Configured
from monitor.config.settings import MonitorSection, MonitorSettings
from monitor.history.series import samples_of
from monitor.lag.reader_status import Judged, Look, ReaderStatus
from monitor.lag.rules import Bound, CellState, Lag, TimeLag, add_up
from monitor.site.site import Site
from monitor.state.reading import Commit, GroupReading
from monitor.state.resting_cells import (
    MarkedCells,
    RestingCells,
    judged_of,
    numbers_of,
    rows_of,
    states_of,
    time_lags_of,
    topics_of,
)
from monitor.state.snapshot import GroupView, LagCell, Snapshot, TopicView
from monitor.views.findings import findings_of
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


def test_columns_tell_the_same_as_cells_and_make_none(made: list[int]) -> None:
    resting = RestingCells(CELLS)
    for one in (rows_of, numbers_of, time_lags_of, judged_of):
        assert list(one(resting)) == list(one(CELLS)), one
    for each in (topics_of, states_of):
        assert set(each(resting)) == set(each(CELLS)), each
    assert states_of(RestingCells([PLAIN])) == {CellState.OK}
    assert CellState.OK not in states_of(RestingCells([CELLS[2]]))
    marked = MarkedCells(resting, lambda cell: cell)
    assert list(rows_of(marked)) == list(rows_of(CELLS))
    assert set(topics_of(marked)) == {"logs.access", "orders"}
    assert made == []


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the index of each cell that is built from columns from now on."""
    found: list[int] = []
    real = RestingCells.cell

    def cell(self: RestingCells, index: int) -> LagCell:
        found.append(index)
        return real(self, index)

    monkeypatch.setattr(RestingCells, "cell", cell)
    return found


def large(groups: int) -> Snapshot:
    """Return a snapshot of groups without activity that all have the same cells."""
    views = tuple(
        GroupView(
            f"group {number}", "Empty", "consumer", (), RestingCells(CELLS),
            add_up(cell.lag for cell in CELLS), TimeLag(1_500, Bound.ABOUT), 2.5, None,
            judged=PLAIN.judged,
        )
        for number in range(groups)
    )  # fmt: skip
    topics = tuple(TopicView(name, None, False, ()) for name in ("logs.access", "orders"))
    return Snapshot(1, 10_000, 2_000, "x", kafka_at_ms=10_000, groups=views, topics=topics)


def test_no_cycle_no_list_and_no_scrape_makes_the_cells_of_groups_that_rest(
    made: list[int], tmp_path: Path
) -> None:
    snapshot = large(groups=3)
    rules = [one.rule() for one in SHIPPED_RULES]
    assert made == []
    measured(rules, snapshot)
    measured([replace(one, of=("*",)) for one in rules], snapshot)
    samples_of(snapshot, "group 1")
    assert len(findings_of(snapshot, "group 1", ())) >= 2, "they are stalled"
    list(metric_pieces(snapshot))
    settings = MonitorSettings(
        section=MonitorSection(), bootstrap_servers="x", data_dir=str(tmp_path), parts={},
        inputs=(), metrics=(),
    )  # fmt: skip
    site = Site(settings, Configured(settings), None, None, 0)
    names = [f"group {number}" for number in range(3)]
    assert site.topics(snapshot, "")["readers"] == {"logs.access": names, "orders": names}
    shown = site.topic(snapshot, "orders", "10m")["readers"]
    assert [group.group_id for group in shown] == names
    assert made == []


def test_prometheus_reads_of_columns_what_it_reads_of_cells() -> None:
    resting = large(groups=1)
    name = 'a "quoted" \\ name\nof two lines'
    resting = replace(resting, groups=(replace(resting.groups[0], group_id=name),))
    awake = replace(resting, groups=(replace(resting.groups[0], cells=CELLS),))
    text = b"".join(metric_pieces(resting))
    assert text == b"".join(metric_pieces(awake))
    families = {one.name: one for one in text_string_to_metric_families(text.decode())}
    expected = {
        "millrace_group_lag_offsets": {0: 40.0, 1: 40.0, 4: 93.0, 5: 40.0},
        "millrace_group_lost_offsets": {0: 0.0, 1: 0.0, 4: 3.0, 5: 0.0},
        "millrace_group_committed_offset": {0: 60.0, 1: 60.0, 3: 60.0, 4: 4.0, 5: 60.0},
        "millrace_group_lag_seconds": {0: 1.5, 1: 1.5, 2: 1.5, 3: 1.5, 4: 1.5},
    }
    for family, values in expected.items():
        found = {
            int(one.labels["partition"]): one.value
            for one in families[family].samples
            if one.labels["topic"] == "logs.access"
        }
        assert found == values, family
        assert {one.labels["group"] for one in families[family].samples} == {name}


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
