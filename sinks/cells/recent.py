"""A cache of the cells that a driver wrote last, so that a merge reads only the others.

This module is pure. While the guard accepts a driver's epoch, no other process writes, so the
database has exactly what this driver wrote. The cache is emptied when that is no longer certain:
after a transaction whose commit is uncertain, and after a purge. Windows that the server changes by
adding blocks are removed from the cache.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sinks.cells.merge import Cell, CellId, Cells, WindowId

# A cell without sketches takes about a kilobyte of the driver's memory.
RECENT_CELLS_MAX = 30_000
# In the size of the cache, this many octets of sketches count as one cell.
SKETCH_OCTETS_A_CELL = 512


class StoredWindow(NamedTuple):
    """A window's row in the database: its id (`window_number`), and its number of keys."""

    number: int
    n_keys: int


@dataclass(slots=True)
class KnownWindow:
    """A window in the cache: its key count, and its cells by the hash of their key.

    A cell is None if the database has no such cell. `number` is the window's id, None while the
    database has no such window. If `is_whole`, all of the window's cells are in `cells`.
    """

    number: int | None
    n_keys: int
    is_whole: bool
    cells: dict[bytes, Cell | None] = field(default_factory=dict)
    weight: int = 1


class RecentCells:
    """The cached windows, in the order of their last merge, with about `cells_max` cells."""

    def __init__(self, cells_max: int = RECENT_CELLS_MAX) -> None:
        self._cells_max = cells_max
        self._windows: OrderedDict[WindowId, KnownWindow] = OrderedDict()
        self._weight = 0
        self._seq: int | None = None

    @property
    def weight(self) -> int:
        """The size of the cache, in cells."""
        return self._weight

    def begin(self, seq: int) -> None:
        """Begin a merge. Empty the cache if the `seq` in MySQL is not the `seq` of our last
        merge."""
        if seq != self._seq:
            self.forget_all()

    def unknown(self, windows: Iterable[WindowId]) -> list[WindowId]:
        """Return the windows that are not in the cache."""
        return [window for window in windows if window not in self._windows]

    def learn_windows(
        self, windows: Iterable[WindowId], found: Mapping[WindowId, StoredWindow]
    ) -> None:
        """Add windows that were read from the database. A window not in `found` has no cells."""
        for window in windows:
            row = found.get(window)
            known = KnownWindow(None, 0, True) if row is None else KnownWindow(*row, False)
            self._windows[window] = known
            self._weight += known.weight

    def learn_numbers(self, numbers: Mapping[WindowId, int]) -> None:
        """Set the ids of windows that were just created."""
        for window, number in numbers.items():
            self._windows[window].number = number

    def numbers(self, windows: Iterable[WindowId]) -> dict[WindowId, int]:
        """Return the ids of those windows that exist in the database."""
        known = ((window, self._windows[window].number) for window in windows)
        return {window: number for window, number in known if number is not None}

    def missing(self, cells: Iterable[CellId]) -> list[CellId]:
        """Return the cells that must be read from the database. Their windows must be cached."""
        return [
            cell_id
            for cell_id in cells
            if not (known := self._windows[cell_id.window]).is_whole
            and cell_id.k_hash not in known.cells
        ]

    def learn_cells(self, asked: Iterable[CellId], found: Cells) -> None:
        """Add cells that were read. A cell that is in `asked` but not in `found` does not exist."""
        for cell_id in asked:
            self._put(self._windows[cell_id.window], cell_id.k_hash, found.get(cell_id))

    def stored(self, cells: Iterable[CellId]) -> Cells:
        """Return those cells that exist. Call `learn_cells` first for all that are `missing`."""
        return {
            cell_id: cell
            for cell_id in cells
            if (cell := self._windows[cell_id.window].cells.get(cell_id.k_hash)) is not None
        }

    def key_counts(self, windows: Iterable[WindowId]) -> dict[WindowId, int]:
        """Return the number of keys of each window."""
        return {window: self._windows[window].n_keys for window in windows}

    def commit(self, seq: int, cells: Cells, key_counts: Mapping[WindowId, int]) -> None:
        """Update the cache after a committed merge; drop the oldest windows if it is too large."""
        self._seq = seq
        for cell_id, cell in cells.items():
            known = self._windows.get(cell_id.window)
            if known is not None:
                self._put(known, cell_id.k_hash, cell)
        for window, n_keys in key_counts.items():
            if window in self._windows:
                self._windows[window].n_keys = n_keys
                self._windows.move_to_end(window)
        while self._weight > self._cells_max:
            self._forget(next(iter(self._windows)))

    def forget(self, windows: Iterable[WindowId]) -> None:
        """Remove windows from the cache, because the server will change them."""
        for window in windows:
            self._forget(window)

    def forget_all(self) -> None:
        """Empty the cache."""
        self._windows.clear()
        self._weight = 0
        self._seq = None

    def _put(self, known: KnownWindow, k_hash: bytes, cell: Cell | None) -> None:
        change = _weight(cell)
        if k_hash in known.cells:
            change -= _weight(known.cells[k_hash])
        known.cells[k_hash] = cell
        known.weight += change
        self._weight += change

    def _forget(self, window: WindowId) -> None:
        known = self._windows.pop(window, None)
        if known is not None:
            self._weight -= known.weight


def _weight(cell: Cell | None) -> int:
    if cell is None or cell.aggregate.hll is cell.aggregate.kll is None:
        return 1
    sketches = len(cell.aggregate.hll or b"") + len(cell.aggregate.kll or b"")
    return 1 + sketches // SKETCH_OCTETS_A_CELL
