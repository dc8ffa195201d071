"""Parked requests: released by key and threshold, expired by deadline, each exactly once."""

from __future__ import annotations

from broker.purgatory import Purgatory

Room = Purgatory[str, str]


def test_a_request_leaves_when_its_key_reaches_the_threshold() -> None:
    room: Room = Purgatory()
    room.park("fetch", [("a", 10)], 500)
    assert room.release("a", 9) == []
    assert room.release("b", 100) == []
    assert room.release("a", 10) == ["fetch"]
    assert room.release("a", 11) == []
    assert (len(room), room.next_deadline_ms) == (0, None)


def test_a_fetch_waits_for_any_of_its_keys() -> None:
    room: Room = Purgatory()
    room.park("fetch", [("a", 10), ("b", 5)], 500)
    assert room.release("b", 5) == ["fetch"]
    assert room.release("a", 10) == []
    assert room.expire(1000) == []


def test_requests_of_a_key_leave_in_the_order_they_came() -> None:
    room: Room = Purgatory()
    for name, threshold in (("one", 5), ("two", 3), ("three", 9), ("four", 4)):
        room.park(name, [("a", threshold)], 500)
    assert room.release("a", 5) == ["one", "two", "four"]
    assert room.release("a", 9) == ["three"]


def test_requests_expire_by_deadline_and_are_gone_from_their_keys() -> None:
    room: Room = Purgatory()
    room.park("late", [("a", 10)], 900)
    room.park("soon", [("a", 10), ("b", 1)], 500)
    assert room.next_deadline_ms == 500
    assert room.expire(499) == []
    assert room.expire(500) == ["soon"]
    assert room.next_deadline_ms == 900
    assert room.release("a", 10) == ["late"]
    assert room.release("b", 10) == []
    assert room.expire(10_000) == []


def test_a_request_without_keys_waits_for_its_deadline() -> None:
    room: Room = Purgatory()
    room.park("alone", [], 500)
    assert room.expire(500) == ["alone"]


def test_a_key_named_twice_counts_with_its_higher_threshold() -> None:
    room: Room = Purgatory()
    room.park("produce", [("a", 5), ("a", 7), ("a", 6)], 500)
    assert room.release("a", 6) == []
    assert room.release("a", 7) == ["produce"]


def test_a_closing_connection_takes_its_requests_out() -> None:
    room: Room = Purgatory()
    parked = room.park("gone", [("a", 5)], 500)
    room.remove(parked)
    room.remove(parked)
    assert room.release("a", 5) == []
    assert room.expire(1000) == []


def test_a_key_that_is_gone_releases_its_waiters() -> None:
    room: Room = Purgatory()
    room.park("one", [("a", 5), ("b", 5)], 500)
    room.park("two", [("b", 5)], 500)
    assert room.release_all("a") == ["one"]
    assert room.release_all("a") == []
    assert room.release("b", 5) == ["two"]


def test_nothing_is_left_behind_by_those_who_leave() -> None:
    room: Room = Purgatory()
    for turn in range(1000):
        parked = room.park("idle", [("a", 2**40), (f"k{turn}", 1)], turn + 500)
        if turn % 3 == 0:
            room.remove(parked)
        elif turn % 3 == 1:
            room.expire(turn + 500)
        else:
            room.release(f"k{turn}", 1)
            room.release("a", 2**40)
    room.expire(10**6)
    assert len(room) == 0
    assert room.waiting == {}


def test_it_says_whether_anybody_waits_for_a_key() -> None:
    purgatory: Purgatory[str, str] = Purgatory()
    seen = [bool(purgatory.waiting)]
    purgatory.park("timer alone", [], 10)
    seen.append(bool(purgatory.waiting))
    parked = purgatory.park("both", [("a", 1), ("b", 1)], 10)
    seen.append(bool(purgatory.waiting))
    purgatory.release("a", 0)
    seen.append(bool(purgatory.waiting))
    purgatory.remove(parked)
    seen.append(bool(purgatory.waiting))
    assert seen == [False, False, True, True, False]
