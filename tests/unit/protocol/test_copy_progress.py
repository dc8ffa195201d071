"""Rates and remaining times of copies, estimated from measured sizes."""

from __future__ import annotations

import pytest

from protocol.copy_progress import (
    NEVER_AFTER_S,
    SAMPLES_MIN,
    SHORT_S,
    CopyEstimate,
    CopyProgress,
    CopySample,
)

MB = 1_000_000


def steady(count: int, copied: int, written: int, *, to_go: int = 1_000 * MB) -> CopyEstimate:
    """Return the estimate after `count` seconds in which these bytes per second were copied and
    written."""
    progress = CopyProgress()
    for second in range(count):
        sample = CopySample(float(second), to_go + second * (written - copied), second * written)
        found = progress.add(sample)
    return found


def test_the_time_is_unknown_at_first() -> None:
    assert steady(1, 10 * MB, 0).rate is None
    found = steady(SAMPLES_MIN - 1, 10 * MB, 0)
    assert (found.rate, found.eta_s) == (10 * MB, None)


def test_the_time_is_what_is_to_go_by_the_rate_without_the_writes() -> None:
    found = steady(11, 30 * MB, 10 * MB)
    assert (found.rate, found.writes) == (30 * MB, 10 * MB)
    assert found.to_go == 800 * MB
    assert found.eta_s == pytest.approx(40)
    assert not found.is_endless


def test_writes_that_are_faster_than_the_copy_for_a_minute_are_endless() -> None:
    assert not steady(int(NEVER_AFTER_S), 5 * MB, 10 * MB).is_endless
    found = steady(int(NEVER_AFTER_S) + 2, 5 * MB, 10 * MB)
    assert found.is_endless
    assert found.eta_s is None
    assert found.writes == 10 * MB


def test_a_copy_that_stands_without_writes_is_not_called_endless() -> None:
    """The copy makes no progress because its broker is down or its disk is full. A higher rate
    would not help, so the copy must not count as endless."""
    found = steady(200, 0, 0)
    assert (found.rate, found.eta_s, found.is_endless) == (0, None, False)


def test_only_the_last_half_minute_counts() -> None:
    progress = CopyProgress()
    to_go = 1_000 * MB
    for second in range(200):
        to_go -= MB if second < 100 else 4 * MB
        found = progress.add(CopySample(float(second), to_go, 0))
    assert found.rate == 4 * MB
    assert SHORT_S < 100


def test_retention_makes_no_negative_rate() -> None:
    progress = CopyProgress()
    progress.add(CopySample(0.0, 100 * MB, 500 * MB))
    found = progress.add(CopySample(10.0, 100 * MB, 400 * MB))
    assert (found.rate, found.writes) == (0, 0)


def test_at_the_end_nothing_is_left() -> None:
    progress = CopyProgress()
    for second in range(10):
        found = progress.add(CopySample(float(second), (9 - second) * MB, 0))
    assert (found.to_go, found.eta_s) == (0, 0)


def test_a_complete_copy_does_not_begin_the_samples_again() -> None:
    """Two copies of logs that grow by 1 MB/s are made at 10 MB/s each. The second has 60 MB less
    to copy."""
    progress = CopyProgress()
    for second in range(11):
        to_go = (160 - 9 * second) + (100 - 9 * second)
        progress.add(CopySample(float(second), to_go * MB, 2 * (500 + second) * MB))
    progress.complete(510 * MB)
    found = progress.add(CopySample(11.0, (160 - 9 * 11) * MB, 511 * MB))
    assert found.to_go == 61 * MB
    assert found.writes == pytest.approx((2 * 10 + 1) * MB / 11)
    copied = 260 * MB - 61 * MB
    assert found.eta_s == pytest.approx(61 * MB / (copied / 11))
