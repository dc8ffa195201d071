"""What the live view reads from the truth in order to catch up or to be refilled."""

from collections.abc import Sequence
from typing import Protocol

from sinks.cells.merge import Cell, CellId, WindowId
from sinks.keys import Key
from sinks.number_text import Number

Ranking = Sequence[tuple[Key, Number]]


class CellReader(Protocol):
    """The truth as the live view reads it. Every method raises SinkUnavailable."""

    def check_ours(self) -> None:
        """Raise FencedWriter or LedgerMismatch unless the writer row is still this driver's."""
        ...

    def cells_after(self, seq: int, cells_max: int) -> list[tuple[CellId, Cell]] | None:
        """Return cells written by merges after `seq`, by window; None if more than `cells_max`."""
        ...

    def windows_from(self, metric: str, size_s: int, oldest_s: int) -> list[tuple[int, int]]:
        """Return start and key count of the windows from `oldest_s` on, newest first."""
        ...

    def windows_before(
        self, metric: str, size_s: int, oldest_s: int, before_s: int | None, windows_max: int
    ) -> list[tuple[int, int]]:
        """Return at most `windows_max` of those windows that start before `before_s`."""
        ...

    def cells_page(
        self, window: WindowId, after: bytes, cells_max: int
    ) -> list[tuple[CellId, Cell]]:
        """Return the window's next cells behind the identity `after` (`keys.key_id`), in order."""
        ...

    def cells_between(
        self, metric: str, size_s: int, first_s: int, last_s: int
    ) -> list[tuple[CellId, Cell]]:
        """Return cells of the windows that start from `first_s` to `last_s`, both included."""
        ...

    def ranking(self, window: WindowId, top: int) -> Ranking:
        """Return the window's highest values without the overflow key; equal ones by name."""
        ...
