"""The history of a partition's offsets: bounded, exact about times without a change, and started
again when an offset falls."""

import pytest

from monitor.lag.offset_history import History
from monitor.lag.offset_series import Series


def test_a_flat_run_keeps_its_two_ends_only() -> None:
    history: History[str] = History()
    for at_ms in range(0, 10_000, 1_000):
        history.add("a", at_ms, 7)
    assert history.samples("a") == Series([(0, 7), (9_000, 7)])


def test_the_rate_reaches_into_a_flat_run() -> None:
    history: History[str] = History()
    for at_ms, offset in ((0, 0), (1_000, 0), (60_000, 0), (61_000, 100)):
        history.add("a", at_ms, offset)
    assert history.rate_per_s("a", 10_000, 61_000) == pytest.approx(10.0)
    assert history.rate_per_s("a", 60_000, 61_000) == pytest.approx(100 / 60)


def test_a_value_that_falls_starts_the_series_again() -> None:
    history: History[str] = History()
    history.add("a", 1_000, 500)
    history.add("a", 2_000, 3)
    assert history.rate_per_s("a", 60_000, 2_000) is None
    history.add("a", 3_000, 13)
    assert history.rate_per_s("a", 60_000, 3_000) == pytest.approx(10.0)


def test_samples_are_bounded_in_number_and_in_time() -> None:
    history: History[str] = History(window_ms=10_000, samples_max=5)
    for step in range(100):
        history.add("a", step * 1_000, step)
    kept = history.samples("a")
    assert len(kept) == 5
    assert kept.offsets[-1] == 99
    history.add("a", 500_000, 200)
    assert len(history.samples("a")) == 2


def test_a_short_window_keeps_as_many_samples_as_its_reader_needs() -> None:
    history: History[str] = History(window_ms=60_000, samples_min=6)
    for step in range(20):
        history.add("a", step * 60_000, step * 60)
    assert len(history.samples("a")) == 6
    assert history.rate_per_s("a", 60_000, 19 * 60_000) == pytest.approx(1.0)


@pytest.mark.parametrize("begin_ms", [0, 500, 5_000, 31_000, 44_000, 59_500])
def test_the_rate_is_the_same_from_whichever_end_it_is_looked_for(begin_ms: int) -> None:
    history: History[str] = History()
    for at_ms in range(0, 61_000, 1_000):
        history.add("a", at_ms, at_ms * at_ms)
    span_ms = 60_000 - begin_ms
    low, high = begin_ms // 1_000 * 1_000, -(-begin_ms // 1_000) * 1_000
    share = (begin_ms - low) / 1_000
    begin = low * low + share * (high * high - low * low)
    expected = (60_000 * 60_000 - begin) * 1_000 / span_ms
    assert history.rate_per_s("a", span_ms, 60_000) == pytest.approx(expected)


def test_a_sample_from_the_past_is_ignored_and_dead_series_go() -> None:
    history: History[str] = History()
    history.add("a", 2_000, 5)
    history.add("a", 1_000, 6)
    assert len(history.samples("a")) == 1
    history.keep_only(set())
    assert len(history.samples("a")) == 0
