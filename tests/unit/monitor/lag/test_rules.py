"""The rules for lag, one by one: never negative, never 0 for unknown, no sum if values are
missing."""

import pytest

from monitor.lag.offset_series import Series
from monitor.lag.rules import (
    CLOCK_SKEW_MS,
    PLAUSIBLE_SINCE_MS,
    Bound,
    CellState,
    Lag,
    LagSum,
    Measured,
    TimeLag,
    add_up,
    judge,
    time_lag,
    worst_time_lag,
)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (Measured(7, 0, 10), Lag(CellState.OK, lag=3)),
        (Measured(10, 0, 10), Lag(CellState.OK, lag=0)),
        (Measured(0, 0, 0), Lag(CellState.OK, lag=0)),
        (Measured(2, 5, 10), Lag(CellState.LOST, lag=5, lost=3)),
        # Retention has deleted all records. The deleted records count as lost, not as lag.
        (Measured(2, 10, 10), Lag(CellState.LOST, lag=0, lost=8)),
        (Measured(12, 0, 10), Lag(CellState.PAST_END, past_end=2)),
        (Measured(None, 4, 10), Lag(CellState.NO_COMMIT, backlog=6)),
        (Measured(7, 0, None), Lag(CellState.END_UNKNOWN)),
        (Measured(7, None, 10), Lag(CellState.END_UNKNOWN)),
        (Measured(7, None, None, topic_exists=False), Lag(CellState.DELETED)),
    ],
)
def test_judges_each_state(measured: Measured, expected: Lag) -> None:
    assert judge(measured) == expected


def test_a_sum_counts_the_known_and_says_how_many() -> None:
    total = add_up(
        [judge(Measured(7, 0, 10)), judge(Measured(None, 0, 10)), judge(Measured(12, 0, 9))]
    )
    assert total == LagSum(lag=3, known=1, total=3)
    assert not total.complete
    assert add_up([]).complete


NOW_MS = 1_800_000_000_000
SAMPLES = Series(
    [(NOW_MS - 9_000, 100), (NOW_MS - 7_000, 200), (NOW_MS - 5_000, 200), (NOW_MS - 4_000, 300)]
)


@pytest.mark.parametrize(
    ("committed", "end", "timestamp", "expected"),
    [
        (300, 300, None, TimeLag(0, Bound.EXACT)),
        # The record's own timestamp takes precedence over interpolation.
        (150, 300, NOW_MS - 6_000, TimeLag(6_000, Bound.EXACT)),
        (150, 300, NOW_MS, TimeLag(0, Bound.EXACT)),
        # The clocks of two machines differ by a little. Such an age is 0, but only approximately.
        (150, 300, NOW_MS + CLOCK_SKEW_MS, TimeLag(0, Bound.ABOUT)),
        # A timestamp in the future, or of a producer without a clock, does not give an age.
        (150, 300, NOW_MS + CLOCK_SKEW_MS + 1, TimeLag(None, Bound.UNKNOWN)),
        (150, 300, NOW_MS + 3_600_000, TimeLag(None, Bound.UNKNOWN)),
        (150, 300, (1 << 63) - 1, TimeLag(None, Bound.UNKNOWN)),
        (150, 300, PLAUSIBLE_SINCE_MS, TimeLag(NOW_MS - PLAUSIBLE_SINCE_MS, Bound.EXACT)),
        (150, 300, PLAUSIBLE_SINCE_MS - 1, TimeLag(None, Bound.UNKNOWN)),
        (150, 300, 1_000, TimeLag(None, Bound.UNKNOWN)),
        (150, 300, NOW_MS // 1_000, TimeLag(None, Bound.UNKNOWN)),
        (150, 300, 0, TimeLag(None, Bound.UNKNOWN)),
        (150, 300, -1, TimeLag(None, Bound.UNKNOWN)),
        (150, 300, None, TimeLag(8_000, Bound.ABOUT)),
        # The log end offset stayed at 200 until 5 s ago.
        (200, 300, None, TimeLag(5_000, Bound.ABOUT)),
        (50, 300, None, TimeLag(9_000, Bound.AT_LEAST)),
    ],
)
def test_time_lag(committed: int, end: int, timestamp: int | None, expected: TimeLag) -> None:
    lag = judge(Measured(committed, 0, end))
    found = time_lag(lag, committed, record_timestamp_ms=timestamp, samples=SAMPLES, now_ms=NOW_MS)
    assert found == expected


def test_a_reader_before_markers_only_has_no_time_lag() -> None:
    lag = judge(Measured(50, 0, 300))
    found = time_lag(
        lag, 50, record_timestamp_ms=None, samples=SAMPLES, now_ms=NOW_MS, only_markers=True
    )
    assert found == TimeLag(0, Bound.EXACT)


def test_time_lag_is_measuring_while_there_is_one_sample_and_unknown_without_a_lag() -> None:
    behind = judge(Measured(5, 0, 10))
    one = Series([(1_000, 10)])
    assert time_lag(behind, 5, record_timestamp_ms=None, samples=one, now_ms=2_000) == TimeLag(
        None, Bound.MEASURING
    )
    unknown = judge(Measured(None, 0, 10))
    found = time_lag(unknown, None, record_timestamp_ms=1, samples=SAMPLES, now_ms=NOW_MS)
    assert found == TimeLag(None, Bound.UNKNOWN)


def test_a_groups_age_is_its_oldest_partitions() -> None:
    exact = TimeLag(5_000, Bound.EXACT)
    assert worst_time_lag([exact, TimeLag(9_000, Bound.EXACT)]) == TimeLag(9_000, Bound.EXACT)
    assert worst_time_lag([exact, TimeLag(None, Bound.UNKNOWN)]) == TimeLag(5_000, Bound.AT_LEAST)
    assert worst_time_lag([TimeLag(None, Bound.MEASURING)]) == TimeLag(None, Bound.MEASURING)
    assert worst_time_lag([]) == TimeLag(None, Bound.UNKNOWN)
