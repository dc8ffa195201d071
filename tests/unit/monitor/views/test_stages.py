"""How the stream's stages are shown: as series, chain and bars. Unknown values stay unknown."""

from dataclasses import replace

import pytest

from monitor.history.series import samples_of
from monitor.site.flow import flow_of
from monitor.site.plots import stage_plot
from monitor.state.snapshot import PartView, Snapshot
from monitor.views.stages import (
    NOW,
    SERIES,
    STAGES,
    TEN_MINUTES,
    Beside,
    batch_bars,
    says,
    stage_cards,
    stage_series,
    stages_of,
    window_rows,
    window_values,
)
from stream.stages import STAGES as TOLD_STAGES
from stream.stages import WINDOWS, BatchWork, StageSums
from tests.unit.monitor.readings import GROUP, metrics_of
from tests.unit.monitor.scene import CATCHING_UP, OLDER, STREAM_DOWN, Mill

SPARK = {"latestOffset": 10, "walCommit": 20, "triggerExecution": 400}
SECONDS = {"source": 0.01, "parse": 0.1, "fold": 0.05, "mysql": 0.15, "redis": 0.02}


def part(**details: object) -> PartView:
    return PartView("stream", "", True, "running", True, None, 0, 0, 1, details=details)


def told(seconds: dict[str, float] | None = None, ages: tuple[float, int] = (250.0, 4)) -> PartView:
    """Return the status of a stream that counted two batches in its first ten seconds."""
    stages = StageSums(0.0)
    for number in range(2):
        now_s = 4.0 + 4 * number
        stages.applied(
            number, BatchWork(seconds or SECONDS, 500, 40, [ages]), now_s, replayed=False
        )
        stages.finished(number, SPARK, now_s, 1_795_557_508_000)
    return part(stages=stages.told(10.0))


def test_stream_and_monitor_call_stages_and_windows_alike() -> None:
    assert STAGES == TOLD_STAGES
    assert set(WINDOWS) == {NOW, TEN_MINUTES}


def test_a_window_gives_every_series() -> None:
    values = window_values(told(), NOW)
    assert set(values) == set(SERIES)
    assert values["counted"] == 100
    assert values["cells"] == 8
    assert values["batches"] == pytest.approx(0.2)
    assert values["busy"] == pytest.approx(0.08)
    assert values[stage_series("mysql", "ms")] == pytest.approx(150)
    assert values[stage_series("mysql", "busy")] == pytest.approx(0.03)
    assert values["line_p50_s"] == pytest.approx(0.25, rel=0.05)


@pytest.mark.parametrize(
    "stages",
    [
        None,
        "nonsense",
        {},
        {"windows": None},
        {"windows": {NOW: {"seconds": 0, "busy": 1}}},
        {"windows": {NOW: {"seconds": True}}},
    ],
)
def test_of_a_stream_that_does_not_tell_nothing_is_known(stages: object) -> None:
    assert window_values(part(stages=stages), NOW) == {}
    assert window_values(None, NOW) == {}
    assert batch_bars(part(stages=stages)) == []
    assert window_rows(part(stages=stages)) == []
    cards = stage_cards({}, Beside())
    assert [card.time for card in cards[1:]] == ["unknown"] * len(STAGES)
    assert [card.busy for card in cards] == [None] * len(cards)
    assert not any(card.mark for card in cards)
    texts = {text for card in cards for _, text in card.facts}
    assert texts == {"unknown"}, "and never 0"
    assert says({}) == ""


def test_an_idle_stream_is_idle_and_its_stages_have_no_times() -> None:
    stages = StageSums(0.0)
    values = window_values(part(stages=stages.told(30.0)), NOW)
    assert values["busy"] == 0
    assert "line_p50_s" not in values
    assert says(values) == "Busy 0 % of the time."


def test_the_busiest_stage_is_marked_and_a_warning_where_the_stream_is_hard_pressed() -> None:
    values = window_values(told(), NOW)
    marked = [(card.title, card.level) for card in stage_cards(values, Beside()) if card.mark]
    assert marked == [("MySQL", "idle")], "there is time left"
    pressed = {**values, "busy": 0.95}
    assert [card.level for card in stage_cards(pressed, Beside()) if card.mark] == ["warn"]
    assert says(values) == "Busy 8 % of the time: MySQL takes 3 %, Parse takes 2 %."


def test_bars_have_one_scale_and_what_lies_between_stages_is_no_stage() -> None:
    last, median, slowest = batch_bars(told())
    assert (last.label, median.label, slowest.label) == (
        "last, 1",
        "median, 10 min",
        "slowest, 21:58:28",
    )
    assert [one.style for one in last.segments] == [1, 2, 3, 4, 5, 6, 0]
    assert last.end == pytest.approx(88)
    widths = [one.width for one in last.segments]
    assert widths[3] == pytest.approx(88 * 150 / 400, abs=0.02)
    assert last.segments[-1].title == "between them 40 ms"
    assert last.whole == "400 ms"
    assert "MySQL 150" in last.summary


def test_stages_that_overlap_make_a_bar_longer_than_the_batch() -> None:
    """A large batch is written in parts: one part is written while the next one is folded."""
    last = batch_bars(told({**SECONDS, "fold": 0.3, "mysql": 0.3}))[0]
    assert [one.style for one in last.segments] == [1, 2, 3, 4, 5, 6]
    assert last.end == pytest.approx(88)
    assert last.whole == "400 ms"


def test_windows_are_rows() -> None:
    minute, ten = window_rows(told())
    assert (minute.name, ten.name) == ("1 min", "10 min")
    assert minute.cells[:4] == ("2", "1,000", "100/s", "8.0/s")
    assert minute.cells[6] == "8 %"
    (none, _) = window_rows(part(stages=StageSums(0.0).told(5.0)))
    assert none.cells[-2:] == ("none", "none")


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Snapshot]:
    stories = {"catching up": CATCHING_UP, "older": OLDER, "down": STREAM_DOWN}
    return {name: Mill(story, None).run() for name, story in stories.items()}


def test_the_way_shows_cells_and_how_old_a_line_is(snapshots: dict[str, Snapshot]) -> None:
    flow = flow_of(snapshots["catching up"], GROUP)
    assert [reach.rate_unit for reach in flow.to_sinks] == ["cells/s", "cells/s"]
    assert dict(flow.stream.facts)["busy"].endswith(" %")
    assert flow.line is not None
    assert (flow.line.sink, flow.line.unknown) == ("Redis", "")
    assert flow.line.p50.endswith(" s") and flow.line.p99.endswith(" s")
    mysql, redis = flow.sinks
    assert dict(mysql.facts)["transaction"] == "218 ms"
    assert dict(redis.facts)["merge"] == "31 ms"


def test_of_an_older_stream_the_way_says_unknown(snapshots: dict[str, Snapshot]) -> None:
    flow = flow_of(snapshots["older"], GROUP)
    assert dict(flow.stream.facts)["busy"] == "unknown"
    assert [reach.rate for reach in flow.to_sinks] == ["unknown", "unknown"]
    assert [reach.level for reach in flow.to_sinks] == ["unknown", "unknown"]
    assert flow.line is not None and flow.line.unknown == "unknown, this stream does not tell"
    assert dict(flow.sinks[0].facts)["transaction"] == "unknown"


def test_of_a_stream_that_is_down_nothing_is_told_as_of_now(snapshots: dict[str, Snapshot]) -> None:
    down = snapshots["down"]
    flow = flow_of(down, GROUP)
    assert flow.line is not None and flow.line.unknown == "unknown, the stream does not answer"
    assert not set(SERIES) & set(samples_of(down, GROUP))
    assert b"millrace_stage" not in metrics_of(down)
    assert b"millrace_line_seconds" not in metrics_of(down)


def test_a_quiet_minute_is_not_called_unknown(snapshots: dict[str, Snapshot]) -> None:
    before = snapshots["catching up"]
    quiet = told(ages=(250.0, 0))
    parts = tuple(quiet if one.name == "stream" else one for one in before.parts)
    flow = flow_of(replace(before, parts=parts), GROUP)
    assert flow.line is not None
    assert flow.line.unknown == "not measured, no live line came in the last minute"


def test_a_sink_that_the_mill_does_not_have_is_no_stage(snapshots: dict[str, Snapshot]) -> None:
    whole = snapshots["older"]
    alone = replace(whole, parts=tuple(one for one in whole.parts if one.name != "mysql"))
    assert stages_of(whole) == list(STAGES)
    assert stages_of(alone) == [stage for stage in STAGES if stage != "mysql"]
    cards = stage_cards({}, Beside(), stages_of(alone))
    assert [(card.title, card.style) for card in cards[4:]] == [("Redis", 5), ("Commit", 6)]
    assert stage_plot(stages_of(alone)).styles == ("f1", "f2", "f3", "f5", "f6")


def test_prometheus_has_the_stages_by_name(snapshots: dict[str, Snapshot]) -> None:
    text = metrics_of(snapshots["catching up"]).decode()
    for stage in STAGES:
        assert f'millrace_stage_busy_share{{stage="{stage}"}} 0.' in text
    assert 'millrace_stage_batch_seconds{stage="mysql"} 0.218' in text
    assert 'millrace_line_seconds{quantile="0.99"} ' in text
    assert "millrace_stream_busy_share 0." in text
    older = metrics_of(snapshots["older"])
    assert b"millrace_stage" not in older and b"millrace_stream_busy" not in older
