"""The cells that a driver wrote last, so that a merge reads only unknown ones. Pure.

While the guard accepts a driver's epoch, no other process writes, so the database holds what this
driver wrote. Everything is forgotten when that becomes doubtful: after a transaction whose commit
is uncertain, after a purge, and for windows whose cells the server added.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sinks.cells.merge import Cell, CellId, Cells, WindowId

# A cell without sketches takes about a kilobyte of the driver's memory.
RECENT_CELLS_MAX = 30_000
# This many octets of sketches count as much as one cell.
SKETCH_OCTETS_A_CELL = 512


class StoredWindow(NamedTuple):
    """A window's row in the database: its number and how many keys it holds."""

    number: int
    n_keys: int


@dataclass(slots=True)
class KnownWindow:
    """What is known about a window: its key count, and cells by hash (None: no such cell).

    `number` is None while the window does not exist. If `is_whole`, a cell that is missing in
    `cells` is also missing in the window.
    """

    number: int | None
    n_keys: int
    is_whole: bool
    cells: dict[bytes, Cell | None] = field(default_factory=dict)
    weight: int = 1


class RecentCells:
    """Windows by the time of their last merge, up to about `cells_max` cells in total."""

    def __init__(self, cells_max: int = RECENT_CELLS_MAX) -> None:
        self._cells_max = cells_max
        self._windows: OrderedDict[WindowId, KnownWindow] = OrderedDict()
        self._weight = 0
        self._seq: int | None = None

    @property
    def weight(self) -> int:
        """How much room is used, in cells."""
        return self._weight

    def begin(self, seq: int) -> None:
        """Begin a merge at this `seq` of the truth; forget everything if it is another."""
        if seq != self._seq:
            self.forget_all()

    def unknown(self, windows: Iterable[WindowId]) -> list[WindowId]:
        """Return the windows whose key count is unknown."""
        return [window for window in windows if window not in self._windows]

    def learn_windows(
        self, windows: Iterable[WindowId], found: Mapping[WindowId, StoredWindow]
    ) -> None:
        """Note the result of reading windows; a window without a row has no cells."""
        for window in windows:
            row = found.get(window)
            known = KnownWindow(None, 0, True) if row is None else KnownWindow(*row, False)
            self._windows[window] = known
            self._weight += known.weight

    def learn_numbers(self, numbers: Mapping[WindowId, int]) -> None:
        """Note the numbers of windows that were just created."""
        for window, number in numbers.items():
            self._windows[window].number = number

    def numbers(self, windows: Iterable[WindowId]) -> dict[WindowId, int]:
        """Return the numbers of the windows that exist."""
        known = ((window, self._windows[window].number) for window in windows)
        return {window: number for window, number in known if number is not None}

    def missing(self, cells: Iterable[CellId]) -> list[CellId]:
        """Return the cells that must be read, of windows with known key counts."""
        return [
            cell_id
            for cell_id in cells
            if not (known := self._windows[cell_id.window]).is_whole
            and cell_id.k_hash not in known.cells
        ]

    def learn_cells(self, asked: Iterable[CellId], found: Cells) -> None:
        """Note the result of reading cells."""
        for cell_id in asked:
            self._put(self._windows[cell_id.window], cell_id.k_hash, found.get(cell_id))

    def stored(self, cells: Iterable[CellId]) -> Cells:
        """Return those cells that exist; none of them may be `missing`."""
        return {
            cell_id: cell
            for cell_id in cells
            if (cell := self._windows[cell_id.window].cells.get(cell_id.k_hash)) is not None
        }

    def key_counts(self, windows: Iterable[WindowId]) -> dict[WindowId, int]:
        """Return how many keys the windows have."""
        return {window: self._windows[window].n_keys for window in windows}

    def commit(self, seq: int, cells: Cells, key_counts: Mapping[WindowId, int]) -> None:
        """Note a committed merge: what it wrote to known windows, and its `seq`."""
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
        """Forget these windows, because the server changes them."""
        for window in windows:
            self._forget(window)

    def forget_all(self) -> None:
        """Forget everything."""
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
