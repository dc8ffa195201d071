"""Waiting operations: each ends once, in offset order, whatever it does when it ends."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from broker.purgatory import (
    NO_MARK,
    WITHDRAWN_KEPT,
    FirstReached,
    OffsetKey,
    Purgatory,
)
from protocol.errors import ErrorCode

MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


class NotingWaiter:
    """A waiter that records how it ended and then does what the test says."""

    def __init__(
        self, name: str, journal: list[str], then: Callable[[], None] | None = None
    ) -> None:
        self.name = name
        self.journal = journal
        self.then = then
        self.ends = 0

    def reached(self) -> None:
        self._ended("reached")

    def lost(self, code: ErrorCode) -> None:
        self._ended(code.name)

    def _ended(self, how: str) -> None:
        self.ends += 1
        self.journal.append(f"{self.name} {how}")
        if self.then is not None:
            self.then()


class Scene:
    """A queue of waiters, and the list of their results."""

    def __init__(self, mark: int = 0) -> None:
        self.line = OffsetKey(mark)
        self.journal: list[str] = []
        self.waiters: list[NotingWaiter] = []

    def deadline_ms(self) -> int | None:
        return self.line.next_deadline_ms

    def wait(
        self,
        name: str,
        offset: int,
        deadline_ms: int | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        waiter = NotingWaiter(name, self.journal, then)
        self.waiters.append(waiter)
        self.line.await_(offset, waiter, deadline_ms)


def test_a_waiter_is_reached_when_the_mark_gets_to_its_offset() -> None:
    scene = Scene()
    scene.wait("a", 5)
    scene.line.reached(4)
    assert scene.journal == []
    scene.line.reached(5)
    assert scene.journal == ["a reached"]
    scene.line.reached(9)
    scene.line.lost(MOVED)
    assert scene.journal == ["a reached"]


def test_what_counts_already_is_reached_at_once() -> None:
    scene = Scene(mark=7)
    scene.wait("a", 7)
    assert scene.journal == ["a reached"]
    assert len(scene.line) == 0


def test_a_new_line_knows_no_mark() -> None:
    journal: list[str] = []
    line = OffsetKey()
    line.await_(0, NotingWaiter("empty", journal), None)
    assert (journal, line.mark) == ([], NO_MARK)
    line.reached(0)
    assert journal == ["empty reached"]


def test_a_mark_never_falls() -> None:
    scene = Scene(mark=7)
    scene.line.reached(3)
    scene.wait("a", 7)
    assert scene.journal == ["a reached"]


def test_a_duplicate_goes_where_its_offset_belongs() -> None:
    scene = Scene()
    for name, offset in (("a", 5), ("b", 8), ("c", 8), ("d", 9)):
        scene.wait(name, offset)
    scene.wait("again", 5)
    scene.wait("earlier", 2)
    scene.line.reached(5)
    assert scene.journal == ["earlier reached", "a reached", "again reached"]
    scene.line.reached(9)
    assert scene.journal[3:] == ["b reached", "c reached", "d reached"]


def test_losing_ends_all_and_forgets_the_mark() -> None:
    scene = Scene(mark=4)
    scene.wait("a", 5)
    scene.wait("b", 6, deadline_ms=100)
    scene.line.lost(MOVED)
    assert scene.journal == ["a NOT_LEADER_OR_FOLLOWER", "b NOT_LEADER_OR_FOLLOWER"]
    assert scene.line.next_deadline_ms is None
    scene.wait("next leadership", 3)
    assert len(scene.line) == 1
    scene.line.reached(3)
    assert scene.journal[2:] == ["next leadership reached"]


def test_the_earliest_deadline_since_the_line_was_empty() -> None:
    scene = Scene()
    scene.wait("a", 5, deadline_ms=500)
    scene.wait("b", 6, deadline_ms=300)
    scene.wait("c", 7)
    scene.wait("d", 8, deadline_ms=400)
    assert scene.line.next_deadline_ms == 300
    scene.line.expire(299)
    assert scene.journal == []
    scene.line.expire(400)
    assert scene.journal == ["b REQUEST_TIMED_OUT", "d REQUEST_TIMED_OUT"]
    assert scene.line.next_deadline_ms == 500
    scene.line.reached(5)
    # The waiter with the deadline 500 is gone, so `expire` finds no waiter and clears the deadline.
    scene.line.expire(500)
    assert (scene.deadline_ms(), len(scene.line)) == (None, 1)
    scene.line.reached(7)
    scene.wait("e", 9, deadline_ms=900)
    assert scene.line.next_deadline_ms == 900


def test_a_replay_has_no_deadline() -> None:
    scene = Scene()
    scene.wait("client", 5, deadline_ms=10)
    scene.wait("replay", 5)
    scene.line.expire(10_000_000)
    assert scene.journal == ["client REQUEST_TIMED_OUT"]
    scene.line.reached(5)
    assert scene.journal[1:] == ["replay reached"]


def test_awaiting_inside_an_end_keeps_the_order_of_offsets() -> None:
    scene = Scene()
    scene.wait("a", 1, then=lambda: scene.wait("nested", 3))
    scene.wait("b", 2)
    scene.wait("c", 4)
    scene.line.reached(4)
    assert scene.journal == ["a reached", "b reached", "nested reached", "c reached"]


def test_awaiting_inside_a_loss_stands_in_the_next_line() -> None:
    scene = Scene()
    scene.wait("a", 1, then=lambda: scene.wait("nested", 1))
    scene.wait("b", 1)
    scene.line.lost(MOVED)
    assert scene.journal == ["a NOT_LEADER_OR_FOLLOWER", "b NOT_LEADER_OR_FOLLOWER"]
    scene.line.reached(1)
    assert scene.journal[2:] == ["nested reached"]


def test_losing_inside_an_end_ends_the_others_once() -> None:
    scene = Scene()
    scene.wait("a", 1, then=lambda: scene.line.lost(MOVED))
    scene.wait("b", 1)
    scene.wait("c", 9)
    scene.line.reached(5)
    assert scene.journal == [
        "a reached",
        "b NOT_LEADER_OR_FOLLOWER",
        "c NOT_LEADER_OR_FOLLOWER",
    ]
    scene.wait("d", 5)
    assert len(scene.line) == 1


def test_losing_inside_an_expiry_ends_each_once() -> None:
    scene = Scene()
    scene.wait("a", 1, deadline_ms=10, then=lambda: scene.line.lost(MOVED))
    scene.wait("b", 1, deadline_ms=10)
    scene.wait("c", 1, deadline_ms=99)
    scene.line.expire(10)
    assert scene.journal == [
        "a REQUEST_TIMED_OUT",
        "c NOT_LEADER_OR_FOLLOWER",
        "b REQUEST_TIMED_OUT",
    ]


def test_awaiting_inside_an_expiry_keeps_the_new_deadline() -> None:
    scene = Scene()
    scene.wait("a", 1, deadline_ms=10, then=lambda: scene.wait("again", 1, deadline_ms=50))
    scene.line.expire(10)
    assert scene.line.next_deadline_ms == 50
    scene.line.expire(50)
    assert scene.journal == ["a REQUEST_TIMED_OUT", "again REQUEST_TIMED_OUT"]


@pytest.mark.parametrize("seed", range(200))
def test_every_waiter_ends_once_whatever_its_neighbours_do(seed: int) -> None:
    """Random waiters that start, cancel, advance and expire others when they end. Replay a failure
    with its seed."""
    chance = random.Random(seed)
    scene = Scene()
    clock = [0]

    def something() -> None:
        clock[0] += chance.randrange(3)
        deed = chance.random()
        if deed < 0.5 and len(scene.waiters) < 60:
            ahead = chance.choice((-3, -1, 0, 1, 2, 5))
            deadline_ms = None if chance.random() < 0.3 else clock[0] + chance.randrange(12)
            then = something if chance.random() < 0.6 else None
            scene.wait(str(len(scene.waiters)), scene.line.mark + ahead, deadline_ms, then)
        elif deed < 0.8:
            scene.line.reached(scene.line.mark + chance.randrange(3))
        elif deed < 0.9:
            scene.line.expire(clock[0])
        elif deed < 0.95:
            scene.line.lost(MOVED)

    for _ in range(120):
        something()
        assert all(waiter.ends <= 1 for waiter in scene.waiters), seed
        if scene.line.next_deadline_ms is not None:
            assert scene.line.next_deadline_ms >= 0
    scene.line.lost(MOVED)
    while len(scene.line):
        scene.line.lost(MOVED)
    assert [waiter.ends for waiter in scene.waiters] == [1] * len(scene.waiters), seed


class Lines:
    """Two queues with one alarm, and the times requested from the alarm."""

    def __init__(self) -> None:
        self.journal: list[str] = []
        self.alarms: list[int] = []
        self.purgatory = Purgatory(self.alarms.append)
        self.one, self.two = OffsetKey(0), OffsetKey(0)

    def wait(self, line: OffsetKey, name: str, offset: int, deadline_ms: int) -> None:
        self.purgatory.await_(line, offset, NotingWaiter(name, self.journal), deadline_ms)


def test_the_alarm_is_set_for_the_earliest_deadline_of_all_lines() -> None:
    lines = Lines()
    lines.wait(lines.one, "a", 5, 300)
    lines.wait(lines.two, "b", 5, 200)
    lines.wait(lines.one, "c", 6, 250)
    assert (lines.alarms, lines.purgatory.next_deadline_ms) == ([300, 200], 200)
    lines.purgatory.expire(199)
    assert lines.journal == []
    lines.purgatory.expire(200)
    assert (lines.journal, lines.purgatory.next_deadline_ms) == (["b REQUEST_TIMED_OUT"], 250)
    lines.purgatory.expire(1_000)
    assert lines.journal[1:] == ["a REQUEST_TIMED_OUT", "c REQUEST_TIMED_OUT"]
    assert lines.purgatory.next_deadline_ms is None


def test_a_line_that_was_reached_sets_no_alarm_and_keeps_none() -> None:
    lines = Lines()
    lines.one.reached(5)
    lines.wait(lines.one, "a", 5, 300)
    assert (lines.journal, lines.alarms) == (["a reached"], [])
    lines.wait(lines.one, "b", 6, 300)
    lines.one.reached(6)
    lines.purgatory.expire(300)
    assert lines.journal == ["a reached", "b reached"]
    assert lines.purgatory.next_deadline_ms is None


def test_who_is_told_that_it_took_too_long_may_wait_again() -> None:
    lines = Lines()

    def again() -> None:
        lines.wait(lines.one, "again", 9, 500)

    lines.purgatory.await_(lines.one, 5, NotingWaiter("a", lines.journal, again), 300)
    lines.purgatory.expire(300)
    assert lines.purgatory.next_deadline_ms == 500
    lines.purgatory.expire(500)
    assert lines.journal == ["a REQUEST_TIMED_OUT", "again REQUEST_TIMED_OUT"]


class Room:
    """A purgatory whose operations wait for the first of several keys."""

    def __init__(self) -> None:
        self.journal: list[str] = []
        self.alarms: list[int] = []
        self.purgatory = Purgatory(self.alarms.append)
        self.a, self.b = OffsetKey(), OffsetKey()

    def wait(
        self,
        name: str,
        offsets: dict[OffsetKey, int],
        deadline_ms: int = 500,
        then: Callable[[], None] | None = None,
    ) -> FirstReached:
        waiter = NotingWaiter(name, self.journal, then)
        return self.purgatory.await_first(offsets, waiter, deadline_ms)


def test_the_first_key_that_reaches_its_offset_ends_the_wait() -> None:
    room = Room()
    room.wait("fetch", {room.a: 10, room.b: 5})
    room.a.reached(9)
    room.b.reached(5)
    room.a.reached(10)
    room.purgatory.expire(1_000)
    room.b.lost(MOVED)
    assert room.journal == ["fetch reached"]
    assert room.purgatory.next_deadline_ms is None


def test_operations_of_a_key_end_by_offset_and_then_in_the_order_they_came() -> None:
    room = Room()
    for name, offset in (("one", 5), ("two", 3), ("three", 9), ("four", 3)):
        room.wait(name, {room.a: offset, room.b: 1})
    room.a.await_(3, NotingWaiter("produce", room.journal), None)
    room.a.reached(5)
    assert room.journal == ["two reached", "four reached", "produce reached", "one reached"]
    room.b.reached(1)
    assert room.journal[4:] == ["three reached"]


def test_an_offset_that_was_reached_before_does_not_count() -> None:
    room = Room()
    room.a.reached(7)
    room.wait("fetch", {room.a: 8})
    assert room.journal == []


def test_several_keys_expire_by_deadline_after_those_of_one_key() -> None:
    room = Room()
    room.wait("late", {room.a: 10}, 900)
    room.wait("soon", {room.a: 10, room.b: 1}, 500)
    room.wait("alone", {}, 600)
    room.purgatory.await_(room.a, 10, NotingWaiter("produce", room.journal), 700)
    assert room.alarms == [900, 500, 600, 700]
    assert room.purgatory.next_deadline_ms == 500
    room.purgatory.expire(499)
    assert room.journal == []
    room.purgatory.expire(500)
    assert room.journal == ["soon REQUEST_TIMED_OUT"]
    assert room.purgatory.next_deadline_ms == 600
    room.purgatory.expire(899)
    assert room.journal[1:] == ["produce REQUEST_TIMED_OUT", "alone REQUEST_TIMED_OUT"]
    room.a.reached(10)
    assert room.journal[3:] == ["late reached"]
    assert room.purgatory.next_deadline_ms is None


def test_a_lost_key_ends_all_its_operations() -> None:
    room = Room()
    room.wait("one", {room.a: 5, room.b: 5})
    room.wait("two", {room.b: 5})
    room.a.lost(MOVED)
    assert room.journal == ["one NOT_LEADER_OR_FOLLOWER"]
    room.b.reached(5)
    assert room.journal[1:] == ["two reached"]


def test_a_closing_connection_takes_its_operation_out() -> None:
    room = Room()
    first = room.wait("gone", {room.a: 5})
    room.purgatory.withdraw(first)
    room.purgatory.withdraw(first)
    room.a.reached(5)
    room.a.lost(MOVED)
    room.purgatory.expire(1_000)
    assert room.journal == []


def test_an_operation_that_is_withdrawn_by_the_end_of_another_does_not_end() -> None:
    room = Room()
    second: list[FirstReached] = []
    room.wait("one", {}, 500, then=lambda: room.purgatory.withdraw(second[0]))
    second.append(room.wait("two", {room.a: 1}, 500))
    room.purgatory.expire(500)
    assert room.journal == ["one REQUEST_TIMED_OUT"]


def test_an_operation_may_wait_again_in_its_own_end() -> None:
    room = Room()
    room.wait("one", {room.a: 1, room.b: 1}, then=lambda: again())

    def again() -> None:
        room.wait("again", {room.a: 2, room.b: 1})

    room.a.reached(1)
    assert room.journal == ["one reached"]
    room.b.reached(1)
    assert room.journal == ["one reached", "again reached"]


def test_a_quiet_key_does_not_keep_the_operations_that_others_have_ended() -> None:
    room = Room()
    for turn in range(1_000):
        first = room.wait(str(turn), {room.a: 2**40, room.b: turn})
        if turn % 3 == 0:
            room.purgatory.withdraw(first)
        elif turn % 3 == 1:
            room.purgatory.expire(500)
        else:
            room.b.reached(turn)
        assert len(room.a) <= WITHDRAWN_KEPT + 1
        assert len(room.b) <= WITHDRAWN_KEPT + 1
