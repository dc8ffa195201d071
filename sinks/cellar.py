"""What the live view asks of the truth: the rows it is caught up and refilled from."""

from collections.abc import Sequence
from typing import Protocol

from sinks.cells.merge import Cell, CellId, WindowId
from sinks.keys import Key
from sinks.number_text import Number

Ranking = Sequence[tuple[Key, Number]]


class Cellar(Protocol):
    """The truth as the live view reads it; every method raises SinkUnavailable."""

    def check_ours(self) -> None:
        """Raise Fenced or LedgerMismatch unless the writer row is still this driver's."""
        ...

    def cells_after(self, seq: int, cells_max: int) -> list[tuple[CellId, Cell]] | None:
        """Cells that merges after `seq` wrote, window by window; None if more than `cells_max`."""
        ...

    def windows_from(self, metric: str, size_s: int, oldest_s: int) -> list[tuple[int, int]]:
        """Start and number of keys of the windows from `oldest_s` on, newest first."""
        ...

    def windows_before(
        self, metric: str, size_s: int, oldest_s: int, before_s: int | None, windows_max: int
    ) -> list[tuple[int, int]]:
        """As `windows_from`, but at most so many, and of those that start before `before_s`."""
        ...

    def cells_page(
        self, window: WindowId, after: bytes, cells_max: int
    ) -> list[tuple[CellId, Cell]]:
        """The window's next cells behind the identity `after` (`keys.key_id`), in their order."""
        ...

    def cells_between(
        self, metric: str, size_s: int, first_s: int, last_s: int
    ) -> list[tuple[CellId, Cell]]:
        """Cells of the windows that start from `first_s` to `last_s`, both included."""
        ...

    def ranking(self, window: WindowId, top: int) -> Ranking:
        """The window's highest values, the overflow key apart; among equals by name."""
        ...
