"""The figures of a topic that gets more replicas while producers write."""

from __future__ import annotations

import pytest

from bench.catch_up import LINES_MIN, Line, between
from bench.librdkafka import Lost
from bench.measurement import Measurement, Run
from bench.move_figures import (
    GOALS,
    EtaSample,
    Phase,
    acknowledgement_figures,
    copy_figures,
    eta_figures,
)

GB = 1_000_000_000


def phase(
    name: str,
    took_s: float,
    *,
    write_s: float = 0.002,
    count: int = LINES_MIN,
    seconds: float = 10.0,
    cpu_s: float = 2.0,
) -> Phase:
    """Return a phase in which all lines took equally long, and one write took `write_s`."""
    writes = [Line(0.0, 0.001), Line(0.0, write_s)]
    return Phase(name, [Line(0.0, took_s)] * count, writes, seconds, cpu_s, 100.0)


def halves(*, eta_s: float | None) -> list[EtaSample]:
    """Return the samples of a copy of 1 GB that takes 100 s; all name the same remaining time."""
    return [EtaSample(float(s), GB - s * GB // 100, eta_s) for s in range(0, 100, 5)]


def test_the_times_beside_copies_are_compared_with_those_alone() -> None:
    found = acknowledgement_figures(
        phase("alone", 0.002), phase("throttled", 0.003, write_s=1.0), phase("beside", 0.004)
    )
    assert found == pytest.approx(
        {
            "alone_p50_ms": 2, "alone_p99_ms": 2, "alone_max_ms": 2, "alone_write_max_ms": 2,
            "throttled_p50_ms": 3, "throttled_p99_ms": 3, "throttled_max_ms": 3,
            "throttled_write_max_ms": 1_000,
            "beside_p50_ms": 4, "beside_p99_ms": 4, "beside_max_ms": 4, "beside_write_max_ms": 2,
            "throttled_p99_ratio": 1.5, "throttled_write_max_of_copy": 0.1,
            "beside_p99_ratio": 2, "beside_write_max_of_copy": 0.0002,
        }
    )  # fmt: skip


def test_a_copy_that_is_over_too_soon_measures_nothing() -> None:
    with pytest.raises(
        Lost, match=r"beside: only 99 lines were sent in 0.05 s, expected .* --size"
    ):
        acknowledgement_figures(
            phase("alone", 0.002), phase("beside", 0.002, count=LINES_MIN - 1, seconds=0.05)
        )


def test_a_phase_without_writes_to_the_copied_topic_shows_nothing() -> None:
    silent = Phase("beside", [Line(0.0, 0.002)] * LINES_MIN, [], 10.0, 2.0, 100.0)
    with pytest.raises(Lost, match="beside: no record was written to the copied topic"):
        acknowledgement_figures(phase("alone", 0.002), silent)


def test_only_records_of_the_span_count() -> None:
    lines = [Line(sent_s, 0.002) for sent_s in (0.9, 1.0, 2.0, 2.1)]
    assert [one.sent_s for one in between(lines, 1.0, 2.0)] == [1.0, 2.0]


def test_the_cpu_time_of_the_producers_is_not_that_of_the_copy() -> None:
    alone = phase("alone", 0.002, seconds=10.0, cpu_s=2.0)
    found = copy_figures(alone, phase("beside", 0.002, seconds=50.0, cpu_s=15.0), 2 * GB)
    assert found == pytest.approx(
        {
            "copy_s": 50, "copied_gb": 2, "copied_mb_per_s": 40,
            "brokers_cpu_s_per_gb": 7.5, "beyond_alone_cpu_s_per_gb": 2.5,
            "alone_brokers_cpu_percent": 20, "beside_brokers_cpu_percent": 30,
            "alone_brokers_pss_mib": 100, "beside_brokers_pss_mib": 100,
        }
    )  # fmt: skip


def test_an_estimate_is_judged_at_each_mark() -> None:
    found = eta_figures(halves(eta_s=60.0), GB, 100.0)
    assert found == pytest.approx(
        {
            "eta_10_at_percent": 10, "eta_10_truth_s": 90, "eta_10_error_percent": -100 / 3,
            "eta_50_at_percent": 50, "eta_50_truth_s": 50, "eta_50_error_percent": 20,
            "eta_90_at_percent": 90, "eta_90_truth_s": 10, "eta_90_error_percent": 500,
            "good_etas": 1,
        }
    )  # fmt: skip


def test_the_first_time_after_a_mark_counts() -> None:
    unknown = EtaSample(10.0, GB * 9 // 10, None)
    known = EtaSample(15.0, GB * 8 // 10, 85.0)
    found = eta_figures([unknown, known], GB, 100.0)
    assert found == pytest.approx(
        {
            "eta_10_at_percent": 20, "eta_10_truth_s": 85, "eta_10_error_percent": 0,
            "good_etas": 1,
        }
    )  # fmt: skip


@pytest.mark.parametrize("samples", [[], halves(eta_s=None)])
def test_a_goal_is_missed_when_no_time_is_shown(samples: list[EtaSample]) -> None:
    found = eta_figures(samples, GB, 100.0)
    assert found == {"good_etas": 0}
    judged = Measurement("moves", "case", [Run(found, 0.0)], goals=GOALS).judged()
    assert [(goal.figure, is_met) for goal, _, is_met in judged] == [("good_etas", False)]


def test_every_goal_names_a_figure() -> None:
    alone, throttled, beside = (phase(name, 0.002) for name in ("alone", "throttled", "beside"))
    found = {
        **acknowledgement_figures(alone, throttled, beside),
        **copy_figures(alone, beside, GB),
        **eta_figures([], GB, 100.0),
    }
    judged = Measurement("moves", "case", [Run(found, 0.0)], goals=GOALS).judged()
    assert [goal for goal, _, _ in judged] == list(GOALS)
