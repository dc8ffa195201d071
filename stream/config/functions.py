"""The functions that users' expressions may call, and the messages about others.

It reads `functions.txt`, which is the only list of these functions; `docs/reference/functions.md`
is generated from it. A function is in the list if its result depends only on its arguments, and can
be computed from a single line.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LIST = Path(__file__).with_name("functions.txt")
PAGE = "docs/reference/functions.md"

# Spark's aggregate functions, each with the measure of a metric that computes the same.
_MEASURES = {
    "approx_count_distinct": "unique",
    "approx_percentile": "percentile",
    "avg": "mean",
    "count": "count",
    "count_if": "share",
    "max": "max",
    "mean": "mean",
    "median": "percentile",
    "min": "min",
    "percentile": "percentile",
    "percentile_approx": "percentile",
    "sum": "sum",
}


def words(text: str) -> frozenset[str]:
    """Return the words of a text, for tables that are easier to read without quotes."""
    return frozenset(text.split())


# Functions whose result can differ when the same line is counted again, so they are refused.
_UNSTEADY = words(
    """
    curdate current_catalog current_database current_date current_schema current_time
    current_timestamp current_timezone current_user getdate input_file_name java_method
    localtimestamp monotonically_increasing_id now rand randn random randstr reflect session_user
    shuffle spark_partition_id try_reflect uniform user uuid version
    """
)


@dataclass(frozen=True, slots=True)
class Function:
    """One function: its name, a call with its arguments, and an example with its result.

    `group` is the heading under which it is documented. `returns` is its type.
    """

    group: str
    name: str
    call: str
    returns: str
    example: str
    result: str


@cache
def known_functions() -> Mapping[str, Function]:
    """Return all functions by name, in the order of the file."""
    found: dict[str, Function] = {}
    group = ""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            group = line[2:]
        elif group and line:
            call, returns, example, result = line.split(" | ")
            name = call.partition("(")[0]
            found[name] = Function(group, name, call, returns, example, result)
    return found


def fault_of_call(name: str, *, has_arguments: bool) -> tuple[str, str] | None:
    """Return what is wrong with a function call, as (found, expected); None if it is allowed."""
    lowered = name.lower()
    if lowered in _UNSTEADY or (lowered == "unix_timestamp" and not has_arguments):
        return f"{name}()", "functions that depend on nothing but the line"
    if lowered in known_functions():
        return None
    if lowered in _MEASURES:
        measure = _MEASURES[lowered]
        return (
            f"{name}(), which is over many lines",
            f"an expression over the columns of one line; the metric's `measure: {measure}` counts"
            " over many",
        )
    close = difflib.get_close_matches(lowered, known_functions(), n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"unknown function {name}()", f"a function of {PAGE}{hint}"
