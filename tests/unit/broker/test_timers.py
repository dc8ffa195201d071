"""Deadlines: order, cancellation, and a heap that drops cancelled entries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.timers import CANCELLED_KEPT, Timers


def test_items_come_out_by_deadline_then_in_the_order_they_went_in() -> None:
    timers: Timers[str] = Timers()
    for deadline_ms, item in ((20, "c"), (10, "a"), (20, "d"), (10, "b")):
        timers.add(deadline_ms, item)
    assert (timers.next_deadline_ms, timers.due(9)) == (10, [])
    assert (timers.due(19), timers.next_deadline_ms) == (["a", "b"], 20)
    assert (timers.due(1000), timers.next_deadline_ms) == (["c", "d"], None)
    assert len(timers) == 0


def test_a_cancelled_timer_does_not_come_up() -> None:
    timers: Timers[str] = Timers()
    first, second = timers.add(10, "a"), timers.add(20, "b")
    timers.cancel(first)
    timers.cancel(first)
    assert (len(timers), timers.next_deadline_ms) == (1, 20)
    assert timers.due(30) == ["b"]
    timers.cancel(second)
    assert len(timers) == 0


def test_cancelled_timers_do_not_pile_up() -> None:
    timers: Timers[int] = Timers()
    kept = [timers.add(10**9, number) for number in range(10)]
    for number in range(10_000):
        timers.cancel(timers.add(10**6, number))
    assert len(timers) == len(kept)
    assert len(timers._heap) <= 2 * (len(kept) + CANCELLED_KEPT)


@given(
    st.lists(st.tuples(st.sampled_from(["add", "cancel", "due"]), st.integers(0, 50)), max_size=200)
)
def test_any_use_agrees_with_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    timers: Timers[int] = Timers()
    live: dict[int, tuple[int, object]] = {}
    for number, (act, value) in enumerate(steps):
        if act == "add":
            live[number] = (value, timers.add(value, number))
        elif act == "cancel" and live:
            chosen = sorted(live)[value % len(live)]
            timers.cancel(live.pop(chosen)[1])  # type: ignore[arg-type]  # kept as object
        elif act == "due":
            expected = sorted((at, one) for one, (at, _) in live.items() if at <= value)
            assert timers.due(value) == [one for _, one in expected]
            for _, one in expected:
                del live[one]
        assert len(timers) == len(live)
        assert timers.next_deadline_ms == min((at for at, _ in live.values()), default=None)


def test_what_is_due_can_be_postponed_in_its_order() -> None:
    timers: Timers[str] = Timers()
    first, gone = timers.add(1, "first"), timers.add(2, "gone")
    timers.add(3, "second")
    timers.add(9, "later")
    timers.cancel(gone)
    timers.postpone(5, 20)
    assert first.deadline_ms == 20
    assert timers.due(10) == ["later"]
    assert timers.due(20) == ["first", "second"]
    assert len(timers) == 0
