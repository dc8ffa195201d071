"""Lines of waiters: each ends once, in the order of offsets, whatever it does at its end."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from broker.offset_waiters import NO_MARK, OffsetWaiters, Waits
from protocol.errors import ErrorCode

MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


class NotingWaiter:
    """A waiter that writes down how it ended, and then does what the test says."""

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
    """A line of waiters, and a journal of their results."""

    def __init__(self, mark: int = 0) -> None:
        self.line = OffsetWaiters(mark)
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
    scene.line.advanced(4)
    assert scene.journal == []
    scene.line.advanced(5)
    assert scene.journal == ["a reached"]
    scene.line.advanced(9)
    scene.line.lose(MOVED)
    assert scene.journal == ["a reached"]


def test_what_counts_already_is_reached_at_once() -> None:
    scene = Scene(mark=7)
    scene.wait("a", 7)
    assert scene.journal == ["a reached"]
    assert len(scene.line) == 0


def test_a_new_line_knows_no_mark() -> None:
    journal: list[str] = []
    line = OffsetWaiters()
    line.await_(0, NotingWaiter("empty", journal), None)
    assert (journal, line.mark) == ([], NO_MARK)
    line.advanced(0)
    assert journal == ["empty reached"]


def test_a_mark_never_falls() -> None:
    scene = Scene(mark=7)
    scene.line.advanced(3)
    scene.wait("a", 7)
    assert scene.journal == ["a reached"]


def test_a_duplicate_goes_where_its_offset_belongs() -> None:
    scene = Scene()
    for name, offset in (("a", 5), ("b", 8), ("c", 8), ("d", 9)):
        scene.wait(name, offset)
    scene.wait("again", 5)
    scene.wait("earlier", 2)
    scene.line.advanced(5)
    assert scene.journal == ["earlier reached", "a reached", "again reached"]
    scene.line.advanced(9)
    assert scene.journal[3:] == ["b reached", "c reached", "d reached"]


def test_losing_ends_all_and_forgets_the_mark() -> None:
    scene = Scene(mark=4)
    scene.wait("a", 5)
    scene.wait("b", 6, deadline_ms=100)
    scene.line.lose(MOVED)
    assert scene.journal == ["a NOT_LEADER_OR_FOLLOWER", "b NOT_LEADER_OR_FOLLOWER"]
    assert scene.line.next_deadline_ms is None
    scene.wait("next leadership", 3)
    assert len(scene.line) == 1
    scene.line.advanced(3)
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
    scene.line.advanced(5)
    # The waiter with that deadline has gone: the next look finds none, and then there is no
    # deadline.
    scene.line.expire(500)
    assert (scene.deadline_ms(), len(scene.line)) == (None, 1)
    scene.line.advanced(7)
    scene.wait("e", 9, deadline_ms=900)
    assert scene.line.next_deadline_ms == 900


def test_a_replay_has_no_deadline() -> None:
    scene = Scene()
    scene.wait("client", 5, deadline_ms=10)
    scene.wait("replay", 5)
    scene.line.expire(10_000_000)
    assert scene.journal == ["client REQUEST_TIMED_OUT"]
    scene.line.advanced(5)
    assert scene.journal[1:] == ["replay reached"]


def test_awaiting_inside_an_end_keeps_the_order_of_offsets() -> None:
    scene = Scene()
    scene.wait("a", 1, then=lambda: scene.wait("nested", 3))
    scene.wait("b", 2)
    scene.wait("c", 4)
    scene.line.advanced(4)
    assert scene.journal == ["a reached", "b reached", "nested reached", "c reached"]


def test_awaiting_inside_a_loss_stands_in_the_next_line() -> None:
    scene = Scene()
    scene.wait("a", 1, then=lambda: scene.wait("nested", 1))
    scene.wait("b", 1)
    scene.line.lose(MOVED)
    assert scene.journal == ["a NOT_LEADER_OR_FOLLOWER", "b NOT_LEADER_OR_FOLLOWER"]
    scene.line.advanced(1)
    assert scene.journal[2:] == ["nested reached"]


def test_losing_inside_an_end_ends_the_others_once() -> None:
    scene = Scene()
    scene.wait("a", 1, then=lambda: scene.line.lose(MOVED))
    scene.wait("b", 1)
    scene.wait("c", 9)
    scene.line.advanced(5)
    assert scene.journal == [
        "a reached",
        "b NOT_LEADER_OR_FOLLOWER",
        "c NOT_LEADER_OR_FOLLOWER",
    ]
    scene.wait("d", 5)
    assert len(scene.line) == 1


def test_losing_inside_an_expiry_ends_each_once() -> None:
    scene = Scene()
    scene.wait("a", 1, deadline_ms=10, then=lambda: scene.line.lose(MOVED))
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
    """Random ends that await, lose, advance and expire from inside; replay: this seed."""
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
            scene.line.advanced(scene.line.mark + chance.randrange(3))
        elif deed < 0.9:
            scene.line.expire(clock[0])
        elif deed < 0.95:
            scene.line.lose(MOVED)

    for _ in range(120):
        something()
        assert all(waiter.ends <= 1 for waiter in scene.waiters), seed
        if scene.line.next_deadline_ms is not None:
            assert scene.line.next_deadline_ms >= 0
    scene.line.lose(MOVED)
    while len(scene.line):
        scene.line.lose(MOVED)
    assert [waiter.ends for waiter in scene.waiters] == [1] * len(scene.waiters), seed


class Lines:
    """Two lines under one alarm, and when that was asked to ring."""

    def __init__(self) -> None:
        self.journal: list[str] = []
        self.alarms: list[int] = []
        self.waits = Waits(self.alarms.append)
        self.one, self.two = OffsetWaiters(0), OffsetWaiters(0)

    def wait(self, line: OffsetWaiters, name: str, offset: int, deadline_ms: int) -> None:
        self.waits.await_(line, offset, NotingWaiter(name, self.journal), deadline_ms)


def test_the_alarm_is_set_for_the_earliest_deadline_of_all_lines() -> None:
    lines = Lines()
    lines.wait(lines.one, "a", 5, 300)
    lines.wait(lines.two, "b", 5, 200)
    lines.wait(lines.one, "c", 6, 250)
    assert (lines.alarms, lines.waits.next_deadline_ms) == ([300, 200], 200)
    lines.waits.expire(199)
    assert lines.journal == []
    lines.waits.expire(200)
    assert (lines.journal, lines.waits.next_deadline_ms) == (["b REQUEST_TIMED_OUT"], 250)
    lines.waits.expire(1_000)
    assert lines.journal[1:] == ["a REQUEST_TIMED_OUT", "c REQUEST_TIMED_OUT"]
    assert lines.waits.next_deadline_ms is None


def test_a_line_that_was_reached_sets_no_alarm_and_keeps_none() -> None:
    lines = Lines()
    lines.one.advanced(5)
    lines.wait(lines.one, "a", 5, 300)
    assert (lines.journal, lines.alarms) == (["a reached"], [])
    lines.wait(lines.one, "b", 6, 300)
    lines.one.advanced(6)
    lines.waits.expire(300)
    assert lines.journal == ["a reached", "b reached"]
    assert lines.waits.next_deadline_ms is None


def test_who_is_told_that_it_took_too_long_may_wait_again() -> None:
    lines = Lines()

    def again() -> None:
        lines.wait(lines.one, "again", 9, 500)

    lines.waits.await_(lines.one, 5, NotingWaiter("a", lines.journal, again), 300)
    lines.waits.expire(300)
    assert lines.waits.next_deadline_ms == 500
    lines.waits.expire(500)
    assert lines.journal == ["a REQUEST_TIMED_OUT", "again REQUEST_TIMED_OUT"]
