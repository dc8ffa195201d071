"""How values are shown: lag is never negative, an unknown value is never 0, and a sum says how many
values it covers."""

import pytest

from monitor.lag.rules import Bound, LagSum, TimeLag
from monitor.views import render


@pytest.mark.parametrize(
    ("total", "text"),
    [
        (LagSum(1204, 3, 3), "1,204"),
        (LagSum(1204, 2, 3), "≥ 1,204 (2 of 3 known)"),
        (LagSum(0, 0, 3), "unknown"),
        (LagSum(0, 0, 0), "0"),
    ],
)
def test_a_sum_says_what_it_covers(total: LagSum, text: str) -> None:
    assert render.lag_sum(total) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 µs"), (85, "85 µs"), (1_240, "1.2 ms"), (3_000_000, "3 s"), (None, "unknown")],
)
def test_short_times_keep_their_unit(value: object, text: str) -> None:
    assert render.micros(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (TimeLag(0, Bound.EXACT), "0 s"),
        (TimeLag(3_240, Bound.EXACT), "3.2 s"),
        (TimeLag(1_800_000, Bound.AT_LEAST), "> 30 min"),
        (TimeLag(None, Bound.MEASURING), "measuring"),
        (TimeLag(None, Bound.UNKNOWN), "unknown"),
    ],
)
def test_an_age_shows_its_bound(value: TimeLag, text: str) -> None:
    assert render.age(value) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "unknown"),
        (3_240, "3.2 s"),
        (9_960, "10 s"),
        (12_000, "12 s"),
        (59_400, "59 s"),
        (59_960, "1 min"),
        (60_400, "1 min"),
        (250_000, "4 min 10 s"),
        (3_600_000, "1 h"),
        (183_600_000, "2 d 3 h"),
    ],
)
def test_durations(milliseconds: float | None, text: str) -> None:
    assert render.duration(milliseconds) == text


def test_sizes_numbers_and_rates_are_never_made_up() -> None:
    assert render.size(None) == "unknown"
    assert render.size(0) == "0 B"
    assert render.size(3 * 1024 * 1024) == "3.0 MiB"
    assert render.number(None) == "unknown"
    assert render.number(float("nan")) == "unknown"
    assert render.rate(None) == "measuring"
    assert render.rate(2.5) == "2.5/s"
    assert render.clock(0) == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (1_200, "1,200 files")]
)
def test_one_is_no_plural(count: int, text: str) -> None:
    assert render.counted(count, "file") == text
