"""The number of handshakes that a listener processes at a time, and their time in one turn of the
loop."""

from __future__ import annotations

from collections.abc import Callable

from broker.real.handshakes import PLACE_NS_MAX, TURN_NS_MAX, UNDER_WAY_MAX, Handshakes


class Turns:
    """A loop that the test turns, and a clock that each handshake advances."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.later: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.handshakes = Handshakes(
            lambda: self.now_ns,
            self.soon,
            lambda delay_s, call: self.timers.append((delay_s, call)),
        )

    def soon(self, call: Callable[[], None]) -> None:
        self.later.append(call)

    def turn(self) -> None:
        later, self.later = self.later, []
        for call in later:
            call()


class Link:
    """A connection whose handshake takes some time and then waits for its peer."""

    def __init__(self, turns: Turns, costs_ns: int = 0) -> None:
        self.turns = turns
        self.costs_ns = costs_ns
        self.steps = 0
        self.is_held = False
        self.gave_way = False

    def reject_handshake(self) -> None:
        self.gave_way = True
        self.turns.handshakes.leave(self)

    def pause_handshake(self) -> None:
        self.is_held = True

    def continue_handshake(self) -> None:
        self.is_held = False
        self.steps += 1
        self.turns.now_ns += self.costs_ns


def test_a_thousand_are_begun_and_few_are_worked_on() -> None:
    turns = Turns()
    links = [Link(turns) for _ in range(1_000)]
    for link in links:
        turns.handshakes.step(link)
    assert turns.handshakes.under_way == UNDER_WAY_MAX
    assert turns.handshakes.waiting == 1_000 - UNDER_WAY_MAX
    assert [link.steps for link in links] == [1] * UNDER_WAY_MAX + [0] * (1_000 - UNDER_WAY_MAX)
    assert [link.is_held for link in links].count(True) == 1_000 - UNDER_WAY_MAX


def test_a_place_that_becomes_free_goes_to_the_first_in_the_line() -> None:
    turns = Turns()
    links = [Link(turns) for _ in range(UNDER_WAY_MAX + 2)]
    for link in links:
        turns.handshakes.step(link)
    turns.handshakes.leave(links[3])
    turns.turn()
    assert (links[-2].steps, links[-2].is_held) == (1, False)
    assert (links[-1].steps, links[-1].is_held) == (0, True)


def test_one_that_leaves_the_line_frees_no_place() -> None:
    turns = Turns()
    links = [Link(turns) for _ in range(UNDER_WAY_MAX + 2)]
    for link in links:
        turns.handshakes.step(link)
    turns.handshakes.leave(links[-2])
    turns.turn()
    assert (turns.handshakes.under_way, turns.handshakes.waiting) == (UNDER_WAY_MAX, 1)
    assert links[-2].steps == 0
    turns.handshakes.leave(links[0])
    turns.turn()
    assert links[-1].steps == 1


def test_a_turn_ends_and_the_rest_comes_in_the_next_ones() -> None:
    turns = Turns()
    links = [Link(turns, TURN_NS_MAX // 4) for _ in range(12)]
    for link in links:
        turns.handshakes.step(link)
    first = sum(link.steps for link in links)
    assert first == 5
    turns.turn()
    assert sum(link.steps for link in links) == 2 * first
    turns.turn()
    assert [link.steps for link in links] == [1] * 12
    assert not any(link.is_held for link in links)


def test_one_that_was_closed_before_its_turn_is_left_alone() -> None:
    turns = Turns()
    links = [Link(turns, TURN_NS_MAX) for _ in range(4)]
    for link in links:
        turns.handshakes.step(link)
    gone = next(link for link in links if not link.steps)
    turns.handshakes.leave(gone)
    for _ in range(4):
        turns.turn()
    assert gone.steps == 0
    assert [link.steps for link in links if link is not gone] == [1, 1, 1]


def test_places_that_are_held_for_long_go_to_those_who_wait() -> None:
    turns = Turns()
    lazy = [Link(turns) for _ in range(UNDER_WAY_MAX)]
    for link in lazy:
        turns.handshakes.step(link)
    turns.now_ns += PLACE_NS_MAX // 2
    waiting = [Link(turns) for _ in range(3)]
    for link in waiting:
        turns.handshakes.step(link)
    assert not any(link.gave_way for link in lazy)
    ((delay_s, look),) = turns.timers
    assert delay_s == PLACE_NS_MAX / 2 / 1e9
    turns.now_ns += PLACE_NS_MAX // 2
    look()
    assert [link.gave_way for link in lazy] == [True] * 3 + [False] * (UNDER_WAY_MAX - 3)
    turns.turn()
    assert [link.steps for link in waiting] == [1] * 3
    assert len(turns.timers) == 1


def test_without_a_line_a_slow_handshake_keeps_its_place() -> None:
    turns = Turns()
    lazy = [Link(turns) for _ in range(UNDER_WAY_MAX)]
    for link in lazy:
        turns.handshakes.step(link)
    turns.now_ns += 5 * PLACE_NS_MAX
    turns.handshakes.leave(lazy[0])
    turns.handshakes.step(Link(turns))
    assert not any(link.gave_way for link in lazy)
    assert turns.timers == []
