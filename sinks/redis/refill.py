"""The order in which the live view is refilled: totals, then the newest windows.

This module is pure.
"""

from collections.abc import Iterable
from typing import NamedTuple

from sinks.rows import ALL_WINDOW_S

CELLS_PER_PART = 1_000


class RefillPart(NamedTuple):
    """Windows of one metric and size that are read and written together."""

    metric: str
    size_s: int
    first_s: int
    last_s: int

    @property
    def rank(self) -> tuple[bool, int]:
        """The sort key for the order of refilling."""
        return self.size_s != ALL_WINDOW_S, -(self.last_s + self.size_s)


def parts_of(
    metric: str, size_s: int, windows: Iterable[tuple[int, int]], cells_max: int = CELLS_PER_PART
) -> list[RefillPart]:
    """Group windows (start, key count; newest first) into parts of about `cells_max` cells."""
    parts: list[RefillPart] = []
    cells = 0
    for start_s, n_keys in windows:
        if parts and cells + n_keys <= cells_max:
            parts[-1] = parts[-1]._replace(first_s=start_s)
            cells += n_keys
        else:
            parts.append(RefillPart(metric, size_s, start_s, start_s))
            cells = n_keys
    return parts
