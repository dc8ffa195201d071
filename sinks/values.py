"""Aggregates that merge, and the value that each measure makes of them. Pure.

Numbers add, extremes compare, sketches unite; nothing here depends on the order of merging.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from enum import StrEnum

import datasketches

PLACES = Decimal("0.000001")
# Python's own 28 digits are fewer than DECIMAL(38,6) holds.
ARITHMETIC = Context(prec=60, rounding=ROUND_HALF_EVEN)
HLL_LG_K = 12
# What a DECIMAL(38,6) column holds; a double of a log line may be larger, or infinite.
VALUE_MAX = Decimal("9" * 32 + ".999999")
RANKS = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


class Measure(StrEnum):
    """What a metric shows; all but the last two are exact."""

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
    """The mergeable parts of one cell; sketches are the binaries of Apache DataSketches."""

    count: int
    sum: Decimal | None = None
    min: Decimal | None = None
    max: Decimal | None = None
    hll: bytes | None = None
    kll: bytes | None = None

    def merged(self, other: "Aggregate") -> "Aggregate":
        """Both together."""
        return Aggregate(
            self.count + other.count,
            _both(self.sum, other.sum, _add),
            _both(self.min, other.min, min),
            _both(self.max, other.max, max),
            unite_hll([s for s in (self.hll, other.hll) if s is not None]),
            unite_kll([s for s in (self.kll, other.kll) if s is not None]),
        )


def _add(left: Decimal, right: Decimal) -> Decimal:
    return ARITHMETIC.add(left, right)


def _both(
    left: Decimal | None, right: Decimal | None, join: Callable[[Decimal, Decimal], Decimal]
) -> Decimal | None:
    if left is None:
        return right
    return left if right is None else join(left, right)


def unite_hll(sketches: Sequence[bytes]) -> bytes | None:
    """One HLL sketch of all; eight bits a bucket, as Spark writes them."""
    if len(sketches) < 2:
        return sketches[0] if sketches else None
    union = datasketches.hll_union(HLL_LG_K)
    for sketch in sketches:
        union.update(datasketches.hll_sketch.deserialize(sketch))
    return bytes(union.get_result(datasketches.tgt_hll_type.HLL_8).serialize_compact())


def unite_kll(sketches: Sequence[bytes]) -> bytes | None:
    """One KLL sketch of all."""
    if len(sketches) < 2:
        return sketches[0] if sketches else None
    union = datasketches.kll_doubles_sketch.deserialize(sketches[0])
    for sketch in sketches[1:]:
        union.merge(datasketches.kll_doubles_sketch.deserialize(sketch))
    return bytes(union.serialize())


def value_of(measure: str, aggregate: Aggregate) -> Decimal | None:
    """The number a metric shows for a cell, for percentiles the median; None without values."""
    match Measure(measure):
        case Measure.COUNT:
            return Decimal(aggregate.count)
        case Measure.SUM:
            return aggregate.sum
        case Measure.MIN:
            return aggregate.min
        case Measure.MAX:
            return aggregate.max
        case Measure.MEAN | Measure.SHARE:
            if aggregate.sum is None or aggregate.count == 0:
                return None
            quotient = ARITHMETIC.divide(aggregate.sum, Decimal(aggregate.count))
            return quotient.quantize(PLACES, context=ARITHMETIC)
        case Measure.UNIQUE:
            if aggregate.hll is None:
                return None
            sketch = datasketches.hll_sketch.deserialize(aggregate.hll)
            return Decimal(round(sketch.get_estimate()))
        case Measure.PERCENTILE:
            quantiles = quantiles_of(aggregate)
            return quantiles["p50"] if quantiles else None


def quantiles_of(aggregate: Aggregate) -> dict[str, Decimal] | None:
    """p50, p95 and p99 by the inclusive nearest rank; None without a sketch or without values."""
    if aggregate.kll is None:
        return None
    sketch = datasketches.kll_doubles_sketch.deserialize(aggregate.kll)
    if sketch.is_empty():
        return None
    return {
        name: _within_column(Decimal(repr(sketch.get_quantile(rank, True))))
        for name, rank in RANKS.items()
    }


def _within_column(value: Decimal) -> Decimal:
    """A double as the column can hold it; what lies beyond, infinity too, becomes its limit."""
    # copy_negate, for a minus sign would round to the default context's 28 digits.
    limited = max(VALUE_MAX.copy_negate(), min(VALUE_MAX, value))
    return limited.quantize(PLACES, context=ARITHMETIC)


def plain(value: Decimal | int) -> str:
    """A number as people write it: no exponent, no trailing zeros."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
