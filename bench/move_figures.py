"""The figures of a topic that gets more replicas while producers write.

All functions are pure. Times are in seconds of `time.perf_counter`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.catch_up import LINES_MIN, Line
from bench.figures import percentile
from bench.librdkafka import Lost
from bench.measurement import Figures, Goal

MARKS_PERCENT = (10, 50, 90)
"""The percentages of the bytes to copy at which the estimate of the remaining time is judged."""

ETA_ERROR_MAX = 0.2

GOALS = (
    Goal("throttled_p99_ratio", at_most=1.05),
    Goal("beside_p99_ratio", at_most=1.2),
    Goal("throttled_write_max_of_copy", at_most=0.1),
    Goal("beside_write_max_of_copy", at_most=0.1),
    Goal("good_etas", at_least=len(MARKS_PERCENT)),
)
"""`beside_write_max_of_copy` is the longest acknowledgement of a write to the copied topic, divided
by the duration of the copy. The first write is sent when the copy begins. So the figure would be
near 1 if writes waited for the copy."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What was measured in one span of time."""

    name: str
    lines: Sequence[Line]
    """The records to the topic that is not copied."""
    writes: Sequence[Line]
    """The records to the copied topic."""
    seconds: float
    cpu_s: float
    """The CPU seconds of all brokers."""
    pss_mib: float
    """The largest memory of all brokers together."""


@dataclass(frozen=True, slots=True)
class EtaSample:
    """An estimate of the copies, as `millrace reassign execute` shows it."""

    at_s: float
    to_go: int
    """The bytes that all copies still lack."""
    eta_s: float | None
    """The remaining seconds; None while the command shows none."""


def acknowledgement_figures(alone: Phase, *beside: Phase) -> dict[str, float]:
    """Return the times of both producers, and the 99th percentiles compared with those alone.

    Raises Lost if too few lines were sent in a phase.
    """
    found: dict[str, float] = {}
    for phase in (alone, *beside):
        if len(phase.lines) < LINES_MIN:
            raise Lost(
                f"{phase.name}: only {len(phase.lines)} lines were sent in {phase.seconds:.2f} s, "
                f"expected at least {LINES_MIN}: use a larger --size"
            )
        if not phase.writes:
            raise Lost(f"{phase.name}: no record was written to the copied topic")
        took_s = sorted(one.took_s for one in phase.lines)
        found[f"{phase.name}_p50_ms"] = percentile(took_s, 0.5) * 1e3
        found[f"{phase.name}_p99_ms"] = percentile(took_s, 0.99) * 1e3
        found[f"{phase.name}_max_ms"] = took_s[-1] * 1e3
        found[f"{phase.name}_write_max_ms"] = max(one.took_s for one in phase.writes) * 1e3
    for phase in beside:
        found[f"{phase.name}_p99_ratio"] = (
            found[f"{phase.name}_p99_ms"] / found[f"{alone.name}_p99_ms"]
        )
        found[f"{phase.name}_write_max_of_copy"] = (
            found[f"{phase.name}_write_max_ms"] / 1e3 / phase.seconds
        )
    return found


def copy_figures(alone: Phase, beside: Phase, copied_bytes: int) -> Figures:
    """Return the speed and the cost of a copy.

    `copied_bytes` counts each added replica. `brokers_cpu_s_per_gb` includes the CPU time for the
    producers' records. `beyond_alone_cpu_s_per_gb` is without the CPU time that the brokers take in
    the same time alone. It is too small when the producers' requests are fewer and larger beside
    the copy.
    """
    alone_s = alone.cpu_s / alone.seconds * beside.seconds
    return {
        "copy_s": beside.seconds,
        "copied_gb": copied_bytes / 1e9,
        "copied_mb_per_s": copied_bytes / beside.seconds / 1e6,
        "brokers_cpu_s_per_gb": beside.cpu_s / (copied_bytes / 1e9),
        "beyond_alone_cpu_s_per_gb": (beside.cpu_s - alone_s) / (copied_bytes / 1e9),
        "alone_brokers_cpu_percent": alone.cpu_s / alone.seconds * 100,
        "beside_brokers_cpu_percent": beside.cpu_s / beside.seconds * 100,
        "alone_brokers_pss_mib": alone.pss_mib,
        "beside_brokers_pss_mib": beside.pss_mib,
    }


def eta_figures(samples: Sequence[EtaSample], copied_bytes: int, ended_s: float) -> Figures:
    """Return how far the estimates of the remaining time were from the truth.

    For each mark, the first estimate with a time counts that was made after the mark and before the
    next one. `eta_10_at_percent` is the percentage of the bytes that were copied then. `good_etas`
    is the number of marks with an estimate that was wrong by at most a fifth.
    """
    found: dict[str, float] = {}
    good = 0
    for mark, following in pairwise((*MARKS_PERCENT, 100)):
        for one in samples:
            percent = (copied_bytes - one.to_go) * 100 / copied_bytes
            truth_s = ended_s - one.at_s
            if mark <= percent < following and one.eta_s is not None and truth_s > 0:
                error = one.eta_s / truth_s - 1
                found[f"eta_{mark}_at_percent"] = percent
                found[f"eta_{mark}_truth_s"] = truth_s
                found[f"eta_{mark}_error_percent"] = error * 100
                good += abs(error) <= ETA_ERROR_MAX
                break
    return found | {"good_etas": good}
