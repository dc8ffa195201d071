"""Whose turn it is in a large cluster: nobody starves, and a cycle has a bound."""

from monitor.turns import Turns

CYCLE_MS = 2_000


def looks(turns: Turns, rows: dict[str, int], cycles: int, always: str = "") -> list[list[str]]:
    """Who is asked for in each of the cycles."""
    found = []
    for cycle in range(cycles):
        due = turns.due(list(rows), always)
        turns.looked([(one, rows[one]) for one in due], cycle * CYCLE_MS)
        found.append(due)
    return found


def test_a_small_cluster_is_asked_for_whole_in_every_cycle() -> None:
    assert looks(Turns(100), {"a": 50, "b": 50}, 3) == [["a", "b"]] * 3


def test_a_large_one_is_asked_for_in_turns_that_have_a_bound() -> None:
    rows = {f"g{number}": 40 for number in range(6)}
    first, *later = looks(Turns(100), rows, 7)
    assert first == list(rows), "nobody is unknown for longer than a cycle"
    assert later == [["g0", "g1"], ["g2", "g3"], ["g4", "g5"]] * 2


def test_a_group_that_is_larger_than_a_cycle_has_its_turn() -> None:
    _, *later = looks(Turns(100), {"huge": 1_000, "small": 10}, 5)
    assert later == [["huge"], ["small"], ["huge"], ["small"]]


def test_the_streams_group_is_always_asked_for() -> None:
    _, *later = looks(Turns(100), {"a": 100, "b": 100, "stream": 100}, 4, "stream")
    assert later == [["a", "stream"], ["b", "stream"], ["a", "stream"]]


def test_who_did_not_answer_is_asked_again_and_who_is_gone_is_forgotten() -> None:
    turns = Turns(100)
    turns.looked([("a", 100), ("b", 100)], 0)
    assert turns.due(["a", "b", "c"]) == ["a", "c"]
    assert turns.due(["a", "b", "c"]) == ["a", "c"], "neither was looked at"
    assert turns.due(["b"]) == ["b"]
    assert turns.due(["a", "b"]) == ["a", "b"], "one that comes back is a new one"


def test_after_a_time_without_brokers_all_are_due() -> None:
    turns = Turns(100)
    turns.looked([("a", 100), ("b", 100)], 0)
    turns.forget()
    assert turns.due(["a", "b"]) == ["a", "b"]
