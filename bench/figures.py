"""Figures over several runs: their spread, percentiles, and how they are formatted.

This module is pure. A figure's name ends in its unit (`records_per_s`, `p99_ms`,
`broker_cpu_s_per_gb`). MB and GB are 10^6 and 10^9 bytes, MiB is 2^20 bytes.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

SIGNIFICANT_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, median and maximum of several runs."""

    minimum: float
    median: float
    maximum: float
    runs: int

    def to_json(self) -> dict[str, float]:
        """Return the spread for a JSON line."""
        return {
            "min": rounded(self.minimum),
            "median": rounded(self.median),
            "max": rounded(self.maximum),
            "runs": self.runs,
        }


def spread(values: Sequence[float]) -> Spread:
    """Return minimum, median and maximum of the values. There must be at least one value."""
    return Spread(min(values), statistics.median(values), max(values), len(values))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of the values such that at least `share` of all values are not larger.

    The values must be in ascending order. Raises ValueError if there are none.
    """
    if not ordered:
        raise ValueError("expected at least one value for a percentile, found none")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def rounded(value: float) -> float:
    """Round to four significant digits. From 1,000 on, round to a whole number."""
    if value == 0 or not math.isfinite(value):
        return value
    digits = SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(value)))
    return round(value, digits) if digits > 0 else round(value)


def text_of(value: float) -> str:
    """Format the value for people: 1,234,567 or 0.01234."""
    short = rounded(value)
    return f"{short:,}"
