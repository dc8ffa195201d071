"""Count metrics directly from the drawn lines, and compare the result cell by cell.

This module is pure. A metric gives every line a key and a value. A key is an index into a list of
names. A value is a whole number, or -1 for none. All cells of one window size are counted at once.
Counts, sums, minima and maxima must be equal. Distinct values and percentiles must be equal if the
cell is small enough to be exact. A mean or a share may be off by its rounding. An estimate may be
off by the largest error that its sketch shows among many thousand cells.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np

from bench.traffic import PATHS, STATUSES, Array, Drawn, path_of
from sinks.estimates import KLL_K, UNIQUE_EXACT_MAX
from sinks.values import ARITHMETIC

ALL_S = 0
NO_VALUE = -1
NO_KEY = "*"
# The largest relative rounding error of a quotient: twelve digits are exact.
QUOTIENT_ERROR = Decimal("1e-12")
UNIQUE_ERROR = 0.1
RANK_ERROR = 0.05

Measure = Literal["count", "sum", "mean", "share", "unique", "percentile"]
Column = Callable[[Drawn], Array]
Row = Sequence[Any]
"""A row of the table of cells: the start of the window in epoch seconds, key, count, sum, min, max,
value."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric over drawn lines: the names of its keys, and the key and value of each line."""

    name: str
    measure: Measure
    keys: Sequence[str]
    key: Column
    value: Column | None = None


def no_key(drawn: Drawn) -> Array:
    """Return key 0 for every line, for a metric without a key."""
    return np.zeros(len(drawn), np.int64)


def shipped(file: str) -> list[Metric]:
    """Return the shipped metrics over the lines of one access log."""
    paths = [path_of(place) for place in range(PATHS)]
    return [
        Metric("requests_by_status", "count", STATUSES, lambda drawn: drawn.status),
        Metric("top_paths", "count", paths, lambda drawn: drawn.path),
        Metric("bytes_by_status", "sum", STATUSES, lambda d: d.status, lambda d: d.size),
        Metric("visitors", "unique", [NO_KEY], no_key, lambda drawn: drawn.address),
        Metric("lines_by_file", "count", [file], no_key),
    ]


@dataclass(frozen=True, slots=True)
class Cells:
    """All cells of a metric and a window size. Each table has a row per window and a column per
    key."""

    metric: Metric
    starts_s: list[int]
    counts: Array
    sums: Array
    least: Array
    most: Array
    groups: Array
    """For each cell, the index in `values` at which its values end."""
    values: Array
    """The measured values of all cells one after the other, in ascending order within each cell."""


def cells_of(metric: Metric, drawn: Drawn, size_s: int) -> Cells:
    """Count a metric in all windows of one size in seconds. Size 0 is the window `all`."""
    window = np.zeros(len(drawn), np.int64) if size_s == ALL_S else drawn.second // size_s * size_s
    key = metric.key(drawn).astype(np.int64)
    measured = metric.value is not None
    value = metric.value(drawn).astype(np.int64) if metric.value else np.zeros(len(drawn), np.int64)
    there = value != NO_VALUE
    starts, place = np.unique(window[there], return_inverse=True)
    shape = (len(starts), len(metric.keys))
    cell = place * shape[1] + key[there]
    value = value[there]
    if measured:
        order = np.lexsort((value, cell))
        cell, value = cell[order], value[order]
    counts = np.bincount(cell, minlength=shape[0] * shape[1])
    ends = np.cumsum(counts)
    held = counts > 0
    first, last = np.where(held, ends - counts, 0), np.where(held, ends - 1, 0)
    # Whole numbers below 2^53 are exact in the doubles that bincount adds.
    sums = np.bincount(cell, weights=value, minlength=len(counts)).astype(np.int64)
    least, most = (value[at] if len(value) else at for at in (first, last))
    return Cells(
        metric,
        [int(start) for start in starts],
        counts.reshape(shape),
        sums.reshape(shape),
        least.reshape(shape),
        most.reshape(shape),
        ends.reshape(shape),
        value,
    )


def differences(cells: Cells, rows: Iterable[Row]) -> Iterator[str]:
    """Return a sentence for each difference between the rows and the count; none if all rows are
    right."""
    window_of = {start: place for place, start in enumerate(cells.starts_s)}
    key_of = {key: place for place, key in enumerate(cells.metric.keys)}
    seen = np.zeros(cells.counts.shape, bool)
    for start_s, key, *found in rows:
        at = (window_of.get(int(start_s), -1), key_of.get(key, -1))
        name = f"{cells.metric.name} at {start_s}, {key}"
        if -1 in at or cells.counts[at] == 0:
            yield f"{name}: a cell that nothing counts to: {found}"
        elif seen[at]:
            yield f"{name}: there twice"
        else:
            seen[at] = True
            if said := _wrong(cells, at, found):
                yield f"{name}: {said}"
    for window, place in zip(*np.nonzero((cells.counts > 0) & ~seen), strict=True):
        start_s, key = cells.starts_s[window], cells.metric.keys[place]
        yield f"{cells.metric.name} at {start_s}, {key}: missing"


def _wrong(cells: Cells, at: tuple[int, int], found: Sequence[Any]) -> str:
    """Return a sentence that says what is wrong with a cell; empty if the cell is right."""
    count, total, least, most, value = found
    measure = cells.metric.measure
    expected: list[int] = [int(cells.counts[at])]
    told: list[Any] = [count]
    if measure in ("sum", "mean", "share"):
        expected += [int(table[at]) for table in (cells.sums, cells.least, cells.most)]
        told += [total, least, most]
    if told != expected:
        return f"{told}, expected {expected}"
    if is_near(cells, at, value):
        return ""
    return f"shows {value} of {expected}"


def is_near(cells: Cells, at: tuple[int, int], value: Any) -> bool:
    """Return whether the shown value of a cell is within the error that its measure may have."""
    count, total = int(cells.counts[at]), int(cells.sums[at])
    match cells.metric.measure:
        case "count":
            return bool(value == count)
        case "sum":
            return bool(value == total)
        case "mean" | "share":
            right = ARITHMETIC.divide(Decimal(total), Decimal(count))
            return abs(Decimal(value) - right) <= QUOTIENT_ERROR * abs(right)
        case "unique":
            distinct = len(np.unique(_values(cells, at)))
            off = abs(int(value) - distinct)
            return off == 0 if distinct <= UNIQUE_EXACT_MAX else off <= UNIQUE_ERROR * distinct
        case "percentile":
            values = _values(cells, at)
            if count <= KLL_K:
                return bool(Decimal(value) == int(values[(count + 1) // 2 - 1]))
            low, high = (np.searchsorted(values, float(value), side) for side in ("left", "right"))
            return bool(low / count - RANK_ERROR <= 0.5 <= high / count + RANK_ERROR)


def _values(cells: Cells, at: tuple[int, int]) -> Array:
    end = int(cells.groups[at])
    return cells.values[end - int(cells.counts[at]) : end]
