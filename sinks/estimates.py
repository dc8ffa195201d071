"""Which shown values are estimates, from where on, and how far off they are. Pure, no libraries.

Decision 0115 has the measurements. `docs/measures.md` says the same to users.
"""

from decimal import Decimal

# The number of distinct values of one cell up to which `unique` is exact.
UNIQUE_EXACT_MAX = 1_024
# 19 of 20 estimates of `unique` are within this share of the true number.
UNIQUE_ERROR = 0.033
# The size of a percentile's sketch. A cell of at most so many values has exact percentiles.
KLL_K = 200
# 99 of 100 estimated percentiles have a rank within this of the one asked for: p50 is then a value
# between the 48.3rd and the 51.7th percentile.
RANK_ERROR = 0.017

# The first octet of a sketch of distinct values that is the set itself (`distinct`).
EXACT_MARK = b"E"

# The same decisions in SQL, over the columns of `window_cells`.
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
    """Whether a shown value is an estimate, as far as it and the cell's count tell.

    A cell that an older version began is an estimate from the beginning on; its numbers alone do
    not say so.
    """
    if measure == "percentile":
        return count is None or count > KLL_K
    return measure == "unique" and value > UNIQUE_EXACT_MAX


def can_estimate(measure: str) -> bool:
    """Whether a cell of this measure can hold an estimate."""
    return measure in _ERRORS


def error_of(measure: str) -> float | None:
    """The error of an estimate: a share for `unique`, of the rank for `percentile`."""
    return _ERRORS.get(measure)


def note_of(measure: str) -> str:
    """One line for people about how exact a measure is; empty where it always is."""
    return _NOTES.get(measure, "")
