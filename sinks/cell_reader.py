"""The queries by which the live view (Redis) reads the truth (MySQL) to catch up or be refilled."""

from collections.abc import Sequence
from typing import Protocol

from sinks.cells.merge import Cell, CellId, WindowId
from sinks.keys import Key
from sinks.number_text import Number

Ranking = Sequence[tuple[Key, Number]]


class CellReader(Protocol):
    """Reads cells and windows from the truth (MySQL). Every method raises SinkUnavailable."""

    def check_ours(self) -> None:
        """Raise FencedWriter or LedgerMismatch unless the writer row still names this driver."""
        ...

    def cells_after(self, seq: int, cells_max: int) -> list[tuple[CellId, Cell]] | None:
        """Return the cells written by merges after `seq`, sorted by window.

        Return None if there are more than `cells_max`, or if `seq` is so old that they cannot be
        found.
        """
        ...

    def windows_from(self, metric: str, size_s: int, oldest_s: int) -> list[tuple[int, int]]:
        """Return start and key count of the windows from `oldest_s` on, the newest first."""
        ...

    def windows_before(
        self, metric: str, size_s: int, oldest_s: int, before_s: int | None, windows_max: int
    ) -> list[tuple[int, int]]:
        """Return the newest `windows_max` of the windows that `windows_from` returns.

        With `before_s`, only windows that start before that time.
        """
        ...

    def cells_page(
        self, window: WindowId, after: bytes, cells_max: int
    ) -> list[tuple[CellId, Cell]]:
        """Return the window's next cells in the order of their identities (`keys.key_id`).

        The first one is the cell that follows the identity `after`.
        """
        ...

    def cells_between(
        self, metric: str, size_s: int, first_s: int, last_s: int
    ) -> list[tuple[CellId, Cell]]:
        """Return the cells of all windows that start from `first_s` to `last_s`, both included."""
        ...

    def ranking(self, window: WindowId, top: int) -> Ranking:
        """Return the `top` keys with the highest values; keys with equal values are sorted by name.

        The overflow key is not in a ranking.
        """
        ...
