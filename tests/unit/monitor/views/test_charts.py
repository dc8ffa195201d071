"""Charts: a gap interrupts the line, a mean keeps its minimum and maximum, and nothing is drawn
that was not measured."""

import pytest

from monitor.state.levels import DAY_MS, Event, Point
from monitor.views.charts import Plot, compact, draw, letters_of, spark
from monitor.views.ranges import SLOTS_MAX, axis_of, gaps_of, slots_of, span_keys, span_of

NOW_MS = 1_800_000_000_000
TEN_MIN = span_of("10m", DAY_MS)
AXIS = axis_of(TEN_MIN, NOW_MS, 2_000, None)
LAG = Plot("Stream lag", "lines", {"lag": "waiting"}, lambda value: f"{value:,.0f}", filled=True)


def points(slots: dict[int, float]) -> list[Point]:
    return [(AXIS.at(slot), value, value - 1, value + 1) for slot, value in slots.items()]


def test_every_range_has_at_most_180_slots_and_ends_now() -> None:
    for key, _ in span_keys():
        axis = axis_of(span_of(key, 90 * DAY_MS), NOW_MS, 2_000, NOW_MS - 30 * DAY_MS)
        assert axis.count <= SLOTS_MAX, key
        assert 0 <= axis.slot_of(NOW_MS) < axis.count, key


def test_a_name_that_is_no_range_is_ten_minutes() -> None:
    assert span_of("nonsense", DAY_MS).key == "10m"


def test_all_begins_where_the_history_does() -> None:
    axis = axis_of(span_of("all", 90 * DAY_MS), NOW_MS, 2_000, NOW_MS - 2 * DAY_MS)
    assert axis.end_ms - axis.begin_ms < 3 * DAY_MS


def test_a_gap_breaks_the_line_and_is_named() -> None:
    known = {slot: 100.0 for slot in range(120) if not 40 <= slot < 60}
    view = draw(LAG, {"lag": points(known)}, AXIS)
    assert view.lines[0].path.count("M") == 2
    assert len(view.gaps) == 1
    assert view.gaps[0][2].startswith("no data ")
    assert view.empty == ""


def test_one_missed_look_is_no_gap() -> None:
    known = {slot: 100.0 for slot in range(120) if slot != 40}
    view = draw(LAG, {"lag": points(known)}, AXIS)
    assert view.lines[0].path.count("M") == 1
    assert view.gaps == ()


def test_a_slow_sampler_makes_no_gaps_of_its_own() -> None:
    axis = axis_of(TEN_MIN, NOW_MS, 60_000, None)
    found = [(axis.at(slot), 1.0, 1.0, 1.0) for slot in range(0, 120, 12)]
    view = draw(LAG, {"lag": found}, axis)
    assert view.lines[0].path.count("M") == 1
    assert view.gaps == ()


def test_without_two_samples_a_chart_is_measuring() -> None:
    view = draw(LAG, {"lag": points({119: 5.0})}, AXIS)
    assert view.empty.startswith("measuring")
    assert draw(LAG, {}, AXIS).lines[0].value == "measuring"


def test_a_value_that_grew_old_is_unknown_and_not_the_last_one() -> None:
    view = draw(LAG, {"lag": points(dict.fromkeys(range(60), 5.0))}, AXIS)
    assert view.lines[0].value == "unknown"
    assert view.gaps[-1][0] + view.gaps[-1][1] == pytest.approx(100, abs=0.02)


def test_merged_slots_keep_least_and_most() -> None:
    axis = axis_of(span_of("1w", DAY_MS), NOW_MS, 2_000, None)
    at_ms = axis.at(50)
    merged = slots_of([(at_ms, 2.0, 1.0, 3.0), (at_ms + 600_000, 4.0, 0.5, 9.0)], axis)[50]
    assert merged == (3.0, 0.5, 9.0)


def test_a_line_stays_inside_its_plot() -> None:
    view = draw(LAG, {"lag": points({slot: float(slot**3) for slot in range(120)})}, AXIS)
    ys = [float(pair.split()[1]) for pair in view.lines[0].path[1:].split("L")]
    assert all(0 <= y <= 1000 for y in ys)
    assert view.peak is not None
    assert view.peak[3] == "end"


def test_events_are_lettered_from_the_oldest_on() -> None:
    events = [Event(AXIS.at(slot), "a", str(slot), True) for slot in range(100, 0, -10)]
    marks = letters_of([*events, Event(AXIS.at(5), "a", "unmarked")], AXIS)
    assert [(mark.letter, mark.event.text) for mark in marks] == [
        ("A", "50"), ("B", "60"), ("C", "70"), ("D", "80"), ("E", "90"), ("F", "100"),
    ]  # fmt: skip


def test_a_small_line_breaks_at_a_hole_too() -> None:
    known = {slot: 100.0 for slot in range(120) if not 40 <= slot < 60}
    drawn = spark(points(known), AXIS)
    assert drawn.line.count("M") == 2
    assert drawn.most == 100.0
    assert spark([], AXIS).line == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (12, "12"), (672_145, "672k"), (1_500_000, "1.5M"), (2e9, "2G")],
)
def test_axes_are_short(value: float, text: str) -> None:
    assert compact(value) == text


def test_before_the_first_sample_there_is_no_gap() -> None:
    slots = slots_of(points(dict.fromkeys(range(100, 120), 1.0)), AXIS)
    assert gaps_of({"lag": slots}, AXIS) == []


STAGED = Plot(
    "By stage",
    "ms",
    {"a": "one", "b": "two"},
    lambda value: f"{value:g}",
    styles=("f2", "f5"),
    stacked=True,
)


def test_a_stacked_chart_lays_each_series_on_those_before_it() -> None:
    known = {"a": points({118: 10.0, 119: 20.0}), "b": points({118: 30.0, 119: 40.0})}
    view = draw(STAGED, known, AXIS)
    lower, upper = view.lines
    assert (lower.style, upper.style, lower.path, upper.path) == ("f2", "f5", "", "")
    assert view.grid[-1][1] == "60", "the top is that of the sums"
    end = 1000 * 119 / (AXIS.count - 1)
    assert f"L{end:.0f} 667L{end:.0f} 1000" in lower.area, "20 of 60 above nothing"
    assert f"L{end:.0f} 0L{end:.0f} 667" in upper.area, "40 more above them"
    assert view.rows[0][1] == ("20", "40"), "the table has each on its own"
    assert view.peak is None


def test_what_is_not_known_of_one_series_adds_nothing_and_breaks_its_band() -> None:
    some = dict.fromkeys(range(120), 10.0)
    known = {"a": points(some), "b": points({s: v for s, v in some.items() if s < 20 or s > 60})}
    view = draw(STAGED, known, AXIS)
    assert view.gaps == ()
    assert [line.area.count("M") for line in view.lines] == [1, 2]
