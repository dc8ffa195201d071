"""The rates of clients and the pauses, with Kafka's formulas."""

from __future__ import annotations

import pytest

from broker.quotas.rates import SAMPLE_COUNT, SAMPLE_MS, SampledRate


def test_ten_seconds_worth_passes_at_once_and_more_pauses() -> None:
    rate = SampledRate()
    rate.record(10_000, 5)
    assert rate.throttle_ms(1_000, 5) == 0
    rate.record(1_000, 5)
    # 1,100 a second over ten seconds: 10 % above 1,000 for 10 s.
    assert rate.per_second(5) == 1_100
    assert rate.throttle_ms(1_000, 5) == 1_000


def test_after_the_pause_the_average_is_the_quota() -> None:
    """The window grows from 10 s to 11 s, so a pause of up to a second ends exactly at the
    quota."""
    rate = SampledRate()
    for second in range(10):
        rate.record(1_050, second * SAMPLE_MS)
    now_ms = 10 * SAMPLE_MS
    pause_ms = rate.throttle_ms(1_000, now_ms)
    assert pause_ms == 500
    assert rate.per_second(now_ms + pause_ms) == pytest.approx(1_000)
    assert rate.throttle_ms(1_000, now_ms + pause_ms) == 0


def test_the_elapsed_time_is_at_least_ten_whole_samples() -> None:
    rate = SampledRate()
    rate.record(1_000, 0)
    assert rate.per_second(0) == 100
    # 300 ms of an unfinished sample count beyond the ten, as in Kafka.
    assert rate.per_second(300) == pytest.approx(1_000 / 10.3)
    assert rate.per_second(10_300) == pytest.approx(1_000 / 10.3)


def test_a_sample_leaves_the_window_as_a_whole() -> None:
    rate = SampledRate()
    rate.record(1_000, 0)
    rate.record(500, 999)
    rate.record(7, 1_000)
    assert rate.per_second(SAMPLE_COUNT * SAMPLE_MS - 1) == pytest.approx(1_507 / 10.999)
    assert rate.per_second(SAMPLE_COUNT * SAMPLE_MS) == pytest.approx(0.7)
    assert not rate.is_unused(SAMPLE_COUNT * SAMPLE_MS)
    assert rate.is_unused((SAMPLE_COUNT + 1) * SAMPLE_MS)


def test_what_is_taken_back_leaves_nothing() -> None:
    rate = SampledRate()
    rate.record(3_000, 10)
    rate.record(-3_000, 10)
    assert rate.is_unused(10) and rate.throttle_ms(1, 10) == 0


def test_a_client_that_pauses_as_told_has_its_quota() -> None:
    """Over 60 s a client that always sends at once gets at most 10 % more, and no less."""
    rate = SampledRate()
    now_ms = sent = 0
    while now_ms < 60_000:
        rate.record(700, now_ms)
        sent += 700
        now_ms += max(rate.throttle_ms(1_000, now_ms), 1)
    # The first window's burst of ten seconds comes once.
    assert 60_000 <= sent <= 71_000
