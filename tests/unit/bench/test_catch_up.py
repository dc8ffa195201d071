"""The figures of a producer's acknowledgements while a broker copies."""

from __future__ import annotations

import pytest

from bench.catch_up import LINES_MIN, Line, figures
from bench.librdkafka import Lost


def lines(count: int, took_s: float, longest_s: float) -> list[Line]:
    """Return lines that all took `took_s`, except for a last line that took `longest_s`."""
    return [Line(0.0, took_s)] * (count - 1) + [Line(0.0, longest_s)]


def test_the_times_beside_a_copy_are_compared_with_those_alone() -> None:
    found = figures(lines(1_000, 0.002, 0.1), lines(LINES_MIN, 0.003, 0.2), 4_000_000, 2.0)
    assert found == pytest.approx(
        {
            "alone_p50_ms": 2, "alone_p99_ms": 2, "alone_max_ms": 100,
            "beside_p50_ms": 3, "beside_p99_ms": 3, "beside_max_ms": 200,
            "p99_ratio": 1.5, "copied_mb_per_s": 2,
        }
    )  # fmt: skip


def test_a_copy_that_is_over_too_soon_measures_nothing() -> None:
    with pytest.raises(
        Lost,
        match=r"only 99 lines were sent during the copy, which took 0.05 s: use a larger --size",
    ):
        figures(lines(1_000, 0.002, 0.1), lines(LINES_MIN - 1, 0.003, 0.2), 4_000_000, 0.05)
