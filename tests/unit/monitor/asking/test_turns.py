"""The order in which the groups of a large cluster are read: each gets its turn in time, and a
cycle reads a limited number of rows."""

import itertools

from monitor.asking.turns import EARLY_ROWS_A_CYCLE, ROWS_A_CYCLE, Turns
from monitor.lag.reader_status import SAMPLE_EVERY_MS, SAMPLES_TO_JUDGE, SPAN_TO_JUDGE_MS
from monitor.state.reading import Commit, GroupReading
from tests.unit.monitor.readings import row

CYCLE_MS = 2_000
SETTLED = 200_000
"""By this time every group in these tests has a status."""

SEEN_MS_MAX = 40_000
JUDGED_MS_MAX = 180_000
"""The time limits for 200 groups over 1,000 partitions, until each was read once, and until each
has a final status."""


def looks(
    turns: Turns, rows: dict[str, int], cycles: int, always: str = "", *, from_ms: int = 0
) -> list[list[str]]:
    """Run cycles. Return the groups that each cycle reads."""
    found = []
    for cycle in range(cycles):
        now_ms = from_ms + cycle * CYCLE_MS
        due = turns.due(list(rows), now_ms, rows_at_most=max(rows.values()), always=always)
        turns.looked([(one, rows[one]) for one in due], now_ms)
        found.append(due)
    return found


def settled(rows: dict[str, int], always: str = "") -> Turns:
    """Return turns after enough cycles that every group has a status."""
    turns = Turns(100, 1_000)
    for now_ms in range(0, SETTLED, SAMPLE_EVERY_MS):
        turns.due(list(rows), now_ms, rows_at_most=1, always=always)
        turns.looked(rows.items(), now_ms)
    return turns


def test_a_small_cluster_is_asked_for_whole_in_every_cycle() -> None:
    assert looks(Turns(100, 0), {"a": 50, "b": 50}, 3) == [["a", "b"]] * 3


def test_a_large_one_is_asked_for_in_turns_that_have_a_bound() -> None:
    rows = {f"g{number}": 40 for number in range(6)}
    found = looks(settled(rows), rows, 6, from_ms=SETTLED)
    assert {len(due) for due in found} == {2}
    assert sorted(itertools.chain(*found[:3])) == sorted(rows), "everybody within three cycles"
    assert found[3:] == found[:3]


def test_a_group_that_is_larger_than_a_cycle_has_its_turn() -> None:
    rows = {"huge": 1_000, "small": 10}
    found = looks(settled(rows), rows, 4, from_ms=SETTLED)
    assert sorted(found[:2]) == [["huge"], ["small"]]
    assert found[2:] == found[:2]


def test_the_streams_group_is_always_asked_for() -> None:
    rows = {"a": 100, "b": 100, "stream": 100}
    found = looks(settled(rows, "stream"), rows, 3, "stream", from_ms=SETTLED)
    assert sorted(found[:2]) == [["a", "stream"], ["b", "stream"]]
    assert found[2] == found[0]


def test_no_cycle_asks_for_all_of_a_large_cluster_and_all_are_seen_within_seconds() -> None:
    rows = {f"g{number:03}": 1_000 for number in range(200)}
    found = looks(Turns(), rows, 25)
    most = max(sum(rows[one] for one in due) for due in found)
    assert most <= ROWS_A_CYCLE + EARLY_ROWS_A_CYCLE
    seen = [set().union(*found[:cycles]) == set(rows) for cycles in range(len(found) + 1)]
    assert seen.index(True) * CYCLE_MS <= SEEN_MS_MAX


def test_every_group_of_a_large_cluster_is_judged_within_three_minutes() -> None:
    rows = {f"g{number:03}": 1_000 for number in range(200)}
    turns = Turns()
    found = looks(turns, rows, 110)
    for one in rows:
        at_ms = [cycle * CYCLE_MS for cycle, due in enumerate(found) if one in due]
        assert len(at_ms) > SAMPLES_TO_JUDGE
        assert at_ms[SAMPLES_TO_JUDGE - 1] <= JUDGED_MS_MAX
    later = looks(turns, rows, 5, from_ms=110 * CYCLE_MS)
    assert {len(due) for due in later} == {ROWS_A_CYCLE // 1_000}


def test_a_new_group_is_looked_at_before_its_turn_until_it_can_be_judged() -> None:
    rows = {"a": 100, "b": 100, "c": 100}
    turns = settled(rows)
    found = looks(turns, rows | {"new": 100}, 80, from_ms=SETTLED)
    at_ms = [cycle * CYCLE_MS for cycle, due in enumerate(found) if "new" in due]
    assert at_ms[0] == 0, "it is asked for at once"
    before = [at for at in at_ms if at <= SPAN_TO_JUDGE_MS]
    assert len(before) >= SPAN_TO_JUDGE_MS // SAMPLE_EVERY_MS
    for one in rows:
        assert any(one in due for due in found[:4]), "and the others have their turns"


def test_what_groups_have_is_learnt_from_those_that_were_looked_at() -> None:
    rows = {f"g{number:03}": 3 for number in range(300)}
    turns = Turns()
    first = turns.due(list(rows), 0, rows_at_most=500)
    assert len(first) == (ROWS_A_CYCLE + EARLY_ROWS_A_CYCLE) // 500
    turns.looked([(one, rows[one]) for one in first], 0)
    second = turns.due(list(rows), CYCLE_MS, rows_at_most=500)
    assert len(second) == len(rows)


def test_who_did_not_answer_is_asked_again_and_who_is_gone_is_forgotten() -> None:
    rows = {"a": 100, "b": 100}
    turns = settled(rows)
    assert turns.due(["a", "b", "c"], SETTLED, rows_at_most=100) == ["c"]
    later = turns.due(["a", "b", "c"], SETTLED + SAMPLE_EVERY_MS, rows_at_most=100)
    assert "c" in later, "it was not looked at"
    assert len(later) == 2
    assert turns.due(["a"], SETTLED + SAMPLE_EVERY_MS, rows_at_most=100) == ["a"]
    found = turns.due(["a", "b"], SETTLED + SAMPLE_EVERY_MS, rows_at_most=100)
    assert found == ["b"], "a row that comes back is a new one"


def test_a_group_that_never_answers_delays_no_other() -> None:
    rows = {f"g{number}": 100 for number in range(4)}
    turns = Turns(100, 100)
    asked: set[str] = set()
    for cycle in range(4):
        asked |= set(turns.due(list(rows), cycle * CYCLE_MS, rows_at_most=100))
    assert asked == set(rows)


def test_after_a_time_without_brokers_all_are_due() -> None:
    rows = {"a": 100, "b": 100}
    turns = settled(rows)
    turns.forget()
    assert turns.due(["a", "b"], SETTLED, rows_at_most=100) == ["a", "b"]
    turns.looked(rows.items(), SETTLED)
    assert len(turns.due(["a", "b"], SETTLED + CYCLE_MS, rows_at_most=100)) == 1


def test_what_a_group_has_are_the_partitions_of_the_topics_it_reads() -> None:
    groups = [
        GroupReading("wide", "Empty", (), {row(0): Commit(1), row(0, "orders"): Commit(1)}),
        GroupReading("silent", "Unknown", None, {}, "no answer"),
        GroupReading("narrow", "Empty", (), {row(0, "gone"): Commit(1)}),
    ]
    turns = Turns(100, 0)
    names = [group.group_id for group in groups]
    turns.due(names, 0, rows_at_most=1)
    turns.note(groups, {"logs.access": 60, "orders": 50}, frozenset(), 0)
    assert turns.due(names, CYCLE_MS, rows_at_most=1) == ["silent", "narrow"]


def test_all_are_due_when_an_end_comes_or_goes_and_only_then() -> None:
    rows = {"a": 100, "b": 100}
    ends = frozenset({row(0)})
    for before, now, count in ((frozenset(), ends, 2), (ends, ends, 1), (ends, frozenset(), 2)):
        turns = settled(rows)
        turns.note([], {}, before, SETTLED - 1)
        looks(turns, rows, 2, from_ms=SETTLED - 1)
        turns.note([], {}, now, SETTLED)
        assert len(turns.due(list(rows), SETTLED + CYCLE_MS, rows_at_most=100)) == count
