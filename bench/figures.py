"""Numbers of several runs: their spread, percentiles, and how they are written.

Pure. A figure's name ends in its unit (`records_per_s`, `p99_ms`, `broker_cpu_s_per_gb`); MB and GB
are 10^6 and 10^9 bytes, MiB is 2^20.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

SIGNIFICANT_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Spread:
    """What several runs gave."""

    minimum: float
    median: float
    maximum: float
    runs: int

    def to_json(self) -> dict[str, float]:
        """The spread as it stands in a line."""
        return {
            "min": rounded(self.minimum),
            "median": rounded(self.median),
            "max": rounded(self.maximum),
            "runs": self.runs,
        }


def spread(values: Sequence[float]) -> Spread:
    """The spread of at least one value."""
    return Spread(min(values), statistics.median(values), max(values), len(values))


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the ascending values do not exceed."""
    if not ordered:
        raise ValueError("a percentile of nothing")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def rounded(value: float) -> float:
    """The value with four significant digits; whole numbers from 1,000 on stay whole."""
    if value == 0 or not math.isfinite(value):
        return value
    digits = SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(value)))
    return round(value, digits) if digits > 0 else round(value)


def text_of(value: float) -> str:
    """The value for a person: 1,234,567 or 0.01234."""
    short = rounded(value)
    return f"{short:,}"
