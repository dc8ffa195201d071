"""The measures whose values can be estimates: from which size on, and with which error.

This module is pure. Decision 0115 has the measurements. `docs/measures.md` gives users the same
facts.
"""

from decimal import Decimal

# `unique` is exact up to this number of distinct values in a cell.
UNIQUE_EXACT_MAX = 1_024
# 19 of 20 estimates of `unique` are within this share of the true number.
UNIQUE_ERROR = 0.033
# The size of a percentile's sketch. The percentiles of a cell are exact up to this many values.
KLL_K = 200
# 99 of 100 estimated percentiles have a rank within this distance of the requested one: p50 is
# then a value between the 48.3rd and the 51.7th percentile.
RANK_ERROR = 0.017

# The first octet of a sketch that is an exact set of distinct values (`distinct`).
EXACT_MARK = b"E"

# SQL that is true for a cell whose value is an estimate, over the columns of `window_cells`.
UNIQUE_IS_ESTIMATE_SQL = f"hll IS NOT NULL AND ASCII(hll) <> {EXACT_MARK[0]}"
PERCENTILE_IS_ESTIMATE_SQL = f"kll IS NOT NULL AND `count` > {KLL_K}"

_ERRORS = {"unique": UNIQUE_ERROR, "percentile": RANK_ERROR}
_NOTES = {
    "unique": (
        f"exact up to {UNIQUE_EXACT_MAX:,} distinct values in a cell; "
        f"above that an estimate, within {UNIQUE_ERROR:.1%} in 19 of 20 cells"
    ),
    "percentile": (
        f"exact up to {KLL_K} values in a cell; above that an estimate, "
        f"whose rank is within {RANK_ERROR:.1%} in 99 of 100 cells"
    ),
}


def is_estimated(measure: str, value: Decimal, count: int | None) -> bool:
    """Tell from a cell's value and count whether the value is an estimate.

    The result can be false for a cell that an older version began: its value is always an estimate,
    but value and count do not show that.
    """
    if measure == "percentile":
        return count is None or count > KLL_K
    return measure == "unique" and value > UNIQUE_EXACT_MAX


def can_estimate(measure: str) -> bool:
    """Tell whether the value of a cell with this measure can be an estimate."""
    return measure in _ERRORS


def error_of(measure: str) -> float | None:
    """Return the error of an estimate; None if the measure is always exact.

    For `unique` it is a share of the value, for `percentile` a distance in rank.
    """
    return _ERRORS.get(measure)


def note_of(measure: str) -> str:
    """Return one line about how exact a measure is; empty if the measure is always exact."""
    return _NOTES.get(measure, "")
