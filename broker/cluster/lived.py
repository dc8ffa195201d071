"""The time a node has lived: monotonic, less the time in which its process stood still.

Floor: cluster. Pure. A node that was frozen must not take everyone else for dead when it wakes
(the stall rule): who waits for a turn by a certain time says so, and what that turn is late by,
beyond half a second, has not been lived.
"""

from __future__ import annotations

STALL_MS = 500
"""A turn of the loop that comes later than this was held up by more than work."""


class LivedTime:
    """Reads the node's life off the monotonic clock."""

    def __init__(self) -> None:
        self.stall_count = 0
        self._stood_ms = 0
        self._due_ms: int | None = None

    def expect(self, due_ms: int | None) -> None:
        """A turn is wanted at this monotonic time; None: nothing is."""
        self._due_ms = due_ms

    def at(self, monotonic_ms: int) -> int:
        """Milliseconds lived, at this reading of the monotonic clock."""
        if self._due_ms is not None and monotonic_ms - self._due_ms > STALL_MS:
            self._stood_ms += monotonic_ms - self._due_ms
            self._due_ms = monotonic_ms
            self.stall_count += 1
        return monotonic_ms - self._stood_ms
