"""The views for readers of MySQL: `windows`, and one view per metric.

This module is pure. The views add what is not stored in a row of `window_cells`: its window, the
text of its key, and a value that is computed from other columns. In the view of a metric, the
columns of the key have the names from the configuration.
"""

from decimal import Decimal

from sinks.estimates import (
    PERCENTILE_IS_ESTIMATE_SQL,
    UNIQUE_IS_ESTIMATE_SQL,
    can_estimate,
)
from sinks.keys import TEXT_MARK
from sinks.rows import MetricDefinition
from sinks.values import PLACES, PLACES_MAX, PLACES_STEP, Measure

# Cells store the lowest 32 bits of the merge's `seq`; `seq_is_after` compares them.
SEQ_MODULUS = 1 << 32
# These bits show which of two merges is newer if at most this many merges are between them.
SEQ_DISTANCE_MAX = SEQ_MODULUS // 2 - 1

_IS_TEXT = f"ASCII(k_id) = {TEXT_MARK[0]}"
_TEXT = "SUBSTRING(k_id, 2)"
# The first column of a key as text, and the hash that `keys.key_hash` computes.
K1_SQL = f"IF({_IS_TEXT}, CONVERT({_TEXT} USING utf8mb4) COLLATE utf8mb4_bin, k1)"
K_HASH_SQL = (
    f"IF({_IS_TEXT}, UNHEX(LEFT(SHA2(CONCAT(LENGTH(k_id) - 1, ':', {_TEXT}), 256), 32)), {_TEXT})"
)


def _quotient_sql() -> str:
    """Return the SQL of sum divided by count, with as many decimal places as the column of values.

    For a quotient below 1, the sum is first multiplied by a power of ten for the additional places,
    because the server's division has fewer places than the column.
    """
    cases = []
    for more in range(0, PLACES_MAX - PLACES + 1, PLACES_STEP):
        larger = f"`sum` * {10**more}" if more else "`sum`"
        rounded = f"ROUND({larger} / `count`, {PLACES})"
        shifted = f"{rounded} * {Decimal(1).scaleb(-more):f}" if more else rounded
        is_last = more == PLACES_MAX - PLACES
        cases.append(
            f"ELSE {shifted}" if is_last else f"WHEN ABS({larger}) >= `count` THEN {shifted}"
        )
    return f"CAST(CASE {' '.join(cases)} END AS DECIMAL(65,{PLACES_MAX}))"


# Values that are computed from a cell's other columns, and so are not stored.
DERIVED_SQL = {
    Measure.COUNT: "CAST(`count` AS DECIMAL(38,12))",
    Measure.SUM: "`sum`",
    Measure.MIN: "CAST(`min` AS DECIMAL(38,12))",
    Measure.MAX: "CAST(`max` AS DECIMAL(38,12))",
    Measure.MEAN: _quotient_sql(),
    Measure.SHARE: _quotient_sql(),
}
_ANY_VALUE = " ".join(f"WHEN '{measure}' THEN {sql}" for measure, sql in DERIVED_SQL.items())

# If the measure of a metric is no longer known, the view shows the value stored in its cells.
WINDOWS_VIEW = (
    "CREATE OR REPLACE SQL SECURITY INVOKER VIEW windows AS SELECT window_keys.metric, size_s, "
    f"start_at, {K_HASH_SQL} AS k_hash, {K1_SQL} AS k1, k2, k3, `count`, `sum`, `min`, `max`, "
    f"CASE measure {_ANY_VALUE} ELSE value END AS value, quantiles, hll, kll, window_cells.seq, "
    f"({UNIQUE_IS_ESTIMATE_SQL}) OR ({PERCENTILE_IS_ESTIMATE_SQL}) AS estimate "
    "FROM window_keys JOIN window_cells USING (window_number) "
    "LEFT JOIN metrics ON metrics.name = window_keys.metric"
)

_VALUE_COLUMNS = ("count", "sum", "min", "max", "value", "quantiles")
_TAKEN = {"size", "start_at", *_VALUE_COLUMNS}
_IS_ESTIMATE_SQL = {
    Measure.UNIQUE: UNIQUE_IS_ESTIMATE_SQL,
    Measure.PERCENTILE: PERCENTILE_IS_ESTIMATE_SQL,
}


def key_column_names(definition: MetricDefinition) -> tuple[str, ...]:
    """Return the view's key columns: the key's own names, with `key_` before a reserved one."""
    reserved = _TAKEN | {"estimate"} if can_estimate(definition.measure) else _TAKEN
    taken = reserved | {name.lower() for name in definition.key_columns}
    names: list[str] = []
    for name in definition.key_columns:
        shown = name
        while shown.lower() in (reserved if shown == name else taken):
            shown = f"key_{shown}"
        taken.add(shown.lower())
        names.append(shown)
    return tuple(names)


def view(definition: MetricDefinition) -> str:
    """Return the statement that creates a metric's view."""
    places = (K1_SQL if len(definition.key_columns) == 1 else "k1", "k2", "k3")
    keys = [
        f"{place} AS `{name.replace('`', '``')}`"
        for place, name in zip(places, key_column_names(definition), strict=False)
    ]
    columns = ", ".join(
        [
            "size",
            "start_at",
            *keys,
            "`count`, `sum`, `min`, `max`",
            f"{value_sql(definition.measure)} AS value",
            "quantiles",
            *_estimate_columns(definition.measure),
        ]
    )
    return (
        f"CREATE OR REPLACE SQL SECURITY INVOKER VIEW `{definition.name}` AS SELECT {columns} "
        "FROM window_sizes JOIN window_keys USING (size_s) JOIN window_cells USING (window_number) "
        f"WHERE metric = '{definition.name}'"
    )


def _estimate_columns(measure: str) -> list[str]:
    """Return the column that marks estimates, for measures that can have them."""
    is_estimate = _IS_ESTIMATE_SQL.get(Measure(measure))
    return [] if is_estimate is None else [f"{is_estimate} AS estimate"]


def value_sql(measure: str) -> str:
    """Return the SQL of a measure's value, from the columns of `window_cells`."""
    return DERIVED_SQL.get(Measure(measure), "value")


def seq_is_after(seq: int) -> tuple[str, int]:
    """Return the condition for cells written by merges after `seq`, and its argument.

    It holds for cells that are newer by at most SEQ_DISTANCE_MAX merges.
    """
    newer = f"(CAST(window_cells.seq AS SIGNED) - %s) & {SEQ_MODULUS - 1}"
    return f"({newer}) BETWEEN 1 AND {SEQ_DISTANCE_MAX}", seq % SEQ_MODULUS
