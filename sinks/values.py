"""Merges aggregates, and computes the value of each measure from them.

This module is pure. Numbers are added, extremes compared, sketches united. No result depends on the
order of merging.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

import datasketches

from sinks import distinct
from sinks.number_text import Number

# Values and sums have at most this many decimal places.
PLACES = 12
# A quotient below 1 has more places, in steps of six, so that its first 13 significant digits are
# kept, down to 10^-18. Below that, the 30 places of MySQL's DECIMAL end.
PLACES_STEP, PLACES_MAX = 6, 30
# Python's default of 28 digits is less than the columns hold. With this many digits a quotient is
# never rounded to an exact half by mistake. Halves are rounded up, as MySQL's ROUND does.
ARITHMETIC = Context(prec=80, rounding=ROUND_HALF_UP)
# The limit of DECIMAL(47,12), the column of sums. A sum that reaches the limit stays there.
SUM_MAX = Decimal("9" * 35 + "." + "9" * PLACES)
# The limit of DECIMAL(38,12), the columns of values. A double can be larger, or infinite.
VALUE_MAX = Decimal("9" * 26 + "." + "9" * PLACES)
RANKS = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
# Cache the values of sketches. Reading a sketch is the most expensive part of a cell, and both
# sinks need its value.
SKETCHES_REMEMBERED_MAX = 1_024


class Measure(StrEnum):
    """The measure of a metric.

    Values of `unique` and `percentile` can be estimates (`estimates`).
    """

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"
    SHARE = "share"
    UNIQUE = "unique"
    PERCENTILE = "percentile"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The mergeable parts of one cell.

    `hll` is a sketch of `distinct`, `kll` a KLL sketch of doubles of Apache DataSketches.
    """

    count: int
    sum: Decimal | None = None
    min: Decimal | None = None
    max: Decimal | None = None
    hll: bytes | None = None
    kll: bytes | None = None


def combined(parts: Sequence[Aggregate]) -> Aggregate:
    """Merge one or more aggregates; sketches are read and written only once."""
    if len(parts) == 1:
        return parts[0]
    count = 0
    total: Decimal | None = None
    least: Decimal | None = None
    most: Decimal | None = None
    for part in parts:
        count += part.count
        if part.sum is not None:
            total = part.sum if total is None else _add(total, part.sum)
        if part.min is not None and (least is None or part.min < least):
            least = part.min
        if part.max is not None and (most is None or part.max > most):
            most = part.max
    return Aggregate(
        count,
        total,
        least,
        most,
        distinct.unite([part.hll for part in parts if part.hll is not None]),
        unite_kll([part.kll for part in parts if part.kll is not None]),
    )


def _add(left: Decimal, right: Decimal) -> Decimal:
    """Add two sums. A sum at the limit stays there, because its true value is unknown."""
    # Use copy_abs, because abs would round to the default context's 28 digits.
    if left.copy_abs() >= SUM_MAX:
        return left
    total = ARITHMETIC.add(left, right)
    if total.copy_abs() > SUM_MAX:
        return SUM_MAX.copy_sign(total)
    return total


def unite_kll(sketches: Sequence[bytes]) -> bytes | None:
    """Return one KLL sketch of all values."""
    if len(sketches) < 2:
        return sketches[0] if sketches else None
    union = datasketches.kll_doubles_sketch.deserialize(sketches[0])
    for sketch in sketches[1:]:
        union.merge(datasketches.kll_doubles_sketch.deserialize(sketch))
    return bytes(union.serialize())


def value_of(measure: str, aggregate: Aggregate) -> Number | None:
    """Return the value of a cell (for percentiles the median), or None if it has no values."""
    match measure:
        case Measure.COUNT:
            return aggregate.count
        case Measure.SUM:
            return aggregate.sum
        case Measure.MIN:
            return aggregate.min
        case Measure.MAX:
            return aggregate.max
        case Measure.MEAN | Measure.SHARE:
            if aggregate.sum is None or aggregate.count == 0:
                return None
            return _quotient(aggregate.sum, aggregate.count)
        case Measure.UNIQUE:
            if aggregate.hll is None:
                return None
            return _number_of(aggregate.hll)
        case Measure.PERCENTILE:
            quantiles = quantiles_of(aggregate)
            return quantiles["p50"] if quantiles else None
        case _:
            raise ValueError(f"found {measure!r}, expected a measure")


def quantiles_of(aggregate: Aggregate) -> Mapping[str, Decimal] | None:
    """Return p50, p95 and p99 by the inclusive nearest rank, or None if there are no values."""
    return None if aggregate.kll is None else _quantiles(aggregate.kll)


def _quotient(total: Decimal, count: int) -> Decimal:
    """Return sum divided by count, with the same places as in `mysql.views`."""
    places, size = PLACES, total.copy_abs()
    while places < PLACES_MAX and size < count:
        size = ARITHMETIC.scaleb(size, PLACES_STEP)
        places += PLACES_STEP
    quotient = ARITHMETIC.divide(total, Decimal(count))
    return quotient.quantize(Decimal(1).scaleb(-places), context=ARITHMETIC)


_number_of = lru_cache(SKETCHES_REMEMBERED_MAX)(distinct.number_of)


@lru_cache(SKETCHES_REMEMBERED_MAX)
def _quantiles(kll: bytes) -> Mapping[str, Decimal] | None:
    sketch = datasketches.kll_doubles_sketch.deserialize(kll)
    if sketch.is_empty():
        return None
    return MappingProxyType(
        {
            name: _within_column(Decimal(repr(sketch.get_quantile(rank, True))))
            for name, rank in RANKS.items()
        }
    )


def _within_column(value: Decimal) -> Decimal:
    """Return a double as the column holds it; larger values and infinity become the limit."""
    # Use copy_negate, because a minus sign would round to the default context's 28 digits.
    limited = max(VALUE_MAX.copy_negate(), min(VALUE_MAX, value))
    return limited.quantize(Decimal(1).scaleb(-PLACES), context=ARITHMETIC)
