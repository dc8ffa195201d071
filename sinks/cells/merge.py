"""Adds a batch's slices to the configured windows, and combines these with stored cells.

This module is pure. A window older than its `keep` is not written, so that a purged window never
comes back with only a part of its counts. `all` is never purged. Keys beyond `max_keys` go to the
overflow key. New keys are accepted in the order of their hash, so a replay sends the same keys to
the overflow key.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sinks.keys import Key, is_other, key_hash, other_key
from sinks.local_time import LocalZone
from sinks.rows import ALL_WINDOW_S, NO_TIME_S, FoldRow, MetricDefinition
from sinks.values import Aggregate, Measure, combined, value_of

MAX_KEYS = 10_000
MAX_KEYS_ALL = 100_000


class WindowId(NamedTuple):
    """One window of one metric; `start_s` is epoch seconds, 0 for the window `all`."""

    metric: str
    size_s: int
    start_s: int


class CellId(NamedTuple):
    """One cell: a window and the hash of a key. Cells are written in sorted order."""

    metric: str
    size_s: int
    start_s: int
    k_hash: bytes

    @property
    def window(self) -> WindowId:
        """The window of the cell."""
        return WindowId(self.metric, self.size_s, self.start_s)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's key and aggregates."""

    key: Key
    aggregate: Aggregate


@dataclass(frozen=True, slots=True)
class Gathered:
    """A batch's data for one cell: the key, and aggregates that are not combined yet."""

    key: Key
    parts: list[Aggregate] = field(default_factory=list)


Cells = dict[CellId, Cell]
GatheredCells = dict[CellId, Gathered]
KeepRule = Callable[[MetricDefinition, int], int | None]


def window_start(slice_start_s: int, size_s: int, zone: LocalZone | None = None) -> int:
    """Return the start of the window that contains a slice; 0 for the window `all`.

    Windows begin by the clock of `zone`; None means UTC.
    """
    if size_s == ALL_WINDOW_S:
        return 0
    if zone is not None:
        return zone.window_start(slice_start_s, size_s)
    return slice_start_s // size_s * size_s


def is_kept(start_s: int, size_s: int, keep_s: int | None, now_s: int) -> bool:
    """Tell whether a window is still kept: its end is at most `keep_s` ago (None: forever)."""
    return size_s == ALL_WINDOW_S or keep_s is None or start_s + size_s + keep_s > now_s


def keep_in_mysql_s(definition: MetricDefinition, size_s: int) -> int | None:
    """Return for how many seconds MySQL keeps a window after its end; None means forever."""
    return None if size_s == ALL_WINDOW_S else definition.keep_mysql_s.get(size_s)


def keep_in_redis_s(definition: MetricDefinition, size_s: int) -> int | None:
    """Return for how many seconds Redis keeps a window after its end; None means forever."""
    return None if size_s == ALL_WINDOW_S else definition.keep_redis_s.get(size_s)


def fold_to_windows(
    rows: Iterable[FoldRow],
    definitions: Mapping[str, MetricDefinition],
    now_s: int,
    keep_s: KeepRule = keep_in_mysql_s,
    *,
    left_out: set[CellId],
) -> GatheredCells:
    """Return the cells to which a batch's rows contribute, in all windows that are still kept.

    The ids of cells whose windows are no longer kept are added to `left_out`.
    """
    cells: GatheredCells = {}
    for row in rows:
        definition = definitions[row.metric]
        k_hash = key_hash(row.key)
        aggregate = Aggregate(row.count, row.sum, row.min, row.max, row.hll, row.kll)
        for size_s in definition.windows_s:
            if row.slice_start_s == NO_TIME_S and size_s != ALL_WINDOW_S:
                continue
            start_s = window_start(row.slice_start_s, size_s, definition.zone)
            cell_id = CellId(row.metric, size_s, start_s, k_hash)
            if is_kept(start_s, size_s, keep_s(definition, size_s), now_s):
                gather(cells, cell_id, row.key, aggregate)
            else:
                left_out.add(cell_id)
    return cells


def gather(cells: GatheredCells, cell_id: CellId, key: Key, aggregate: Aggregate) -> None:
    """Add an aggregate to the parts of a cell."""
    present = cells.get(cell_id)
    if present is None:
        cells[cell_id] = Gathered(key, [aggregate])
    else:
        present.parts.append(aggregate)


def key_limit(definition: MetricDefinition, size_s: int) -> int:
    """Return the most keys of a window; further keys go to the overflow key."""
    if definition.max_keys is not None:
        return definition.max_keys
    return MAX_KEYS_ALL if size_s == ALL_WINDOW_S else MAX_KEYS


def overflow_candidates(
    cells: Iterable[CellId], definitions: Mapping[str, MetricDefinition]
) -> set[CellId]:
    """Return the overflow cells that this merge can change, so that they are read before it."""
    return {
        CellId(*window, key_hash(other_key(len(definitions[window.metric].key_columns))))
        for window in {cell_id.window for cell_id in cells}
        if definitions[window.metric].key_columns
    }


def merge_with_stored(
    batch: GatheredCells,
    stored: Cells,
    key_counts: Mapping[WindowId, int],
    definitions: Mapping[str, MetricDefinition],
) -> tuple[Cells, dict[WindowId, int]]:
    """Combine a batch with the stored cells.

    Returns the complete new cells, sorted, and the key counts of windows with new keys.
    """
    gathered: GatheredCells = {}
    counts: dict[WindowId, int] = {}
    for cell_id in sorted(batch):
        more = batch[cell_id]
        target, key = cell_id, more.key
        if cell_id not in stored and not is_other(key):
            definition = definitions[cell_id.metric]
            window = cell_id.window
            known = counts.get(window, key_counts.get(window, 0))
            if definition.key_columns and known >= key_limit(definition, cell_id.size_s):
                key = other_key(len(definition.key_columns))
                target = CellId(*window, key_hash(key))
            else:
                counts[window] = known + 1
        present = gathered.get(target)
        if present is None:
            before = stored.get(target)
            parts = more.parts if before is None else [before.aggregate, *more.parts]
            # Copy the list, because parts of other keys can be added to it.
            gathered[target] = Gathered(key if before is None else before.key, list(parts))
        else:
            present.parts.extend(more.parts)
    return {i: Cell(gathered[i].key, combined(gathered[i].parts)) for i in sorted(gathered)}, counts


def fallen_windows(
    written: Cells, stored: Cells, definitions: Mapping[str, MetricDefinition]
) -> frozenset[WindowId]:
    """Return the windows with a ranking in which a value fell, so another key can move up."""
    fallen: set[WindowId] = set()
    for cell_id, cell in written.items():
        before = stored.get(cell_id)
        definition = definitions[cell_id.metric]
        if before is None or definition.top is None or definition.measure == Measure.COUNT:
            continue
        was = value_of(definition.measure, before.aggregate)
        value = value_of(definition.measure, cell.aggregate)
        if was is not None and (value is None or value < was):
            fallen.add(cell_id.window)
    return frozenset(fallen)
