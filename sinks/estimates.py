"""Which values are estimates, above which size, and how large their error is. Pure, no libraries.

Decision 0115 has the measurements. `docs/measures.md` gives users the same facts.
"""

from decimal import Decimal

# `unique` is exact up to this number of distinct values in a cell.
UNIQUE_EXACT_MAX = 1_024
# 19 of 20 estimates of `unique` are within this share of the true number.
UNIQUE_ERROR = 0.033
# The size of a percentile's sketch; percentiles of a cell are exact up to this many values.
KLL_K = 200
# 99 of 100 estimated percentiles have a rank within this distance of the requested one: p50 is
# then a value between the 48.3rd and the 51.7th percentile.
RANK_ERROR = 0.017

# The first octet of a sketch that is the set of distinct values itself (`distinct`).
EXACT_MARK = b"E"

# The same rules in SQL, over the columns of `window_cells`.
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
    """Tell whether a value is an estimate, judging by it and the cell's count.

    A cell that an older version began is always an estimate; its numbers do not show that.
    """
    if measure == "percentile":
        return count is None or count > KLL_K
    return measure == "unique" and value > UNIQUE_EXACT_MAX


def can_estimate(measure: str) -> bool:
    """Tell whether a cell of this measure can hold an estimate."""
    return measure in _ERRORS


def error_of(measure: str) -> float | None:
    """Return the error of an estimate: a share for `unique`, of the rank for `percentile`."""
    return _ERRORS.get(measure)


def note_of(measure: str) -> str:
    """Return one line about how exact a measure is; empty if it always is."""
    return _NOTES.get(measure, "")
