"""Lived time: monotonic time without the periods in which this process stood still.

Room: cluster. Pure. A node that was frozen must not take all other nodes for dead when it wakes. So
the owner of a timer declares when it expects a turn of the event loop. If that turn is more than
half a second late, the delay is not lived time.
"""

from __future__ import annotations

STALL_MS = 500
"""A turn of the event loop that is later than this was delayed by a stall, not only by work."""


class LivedTime:
    """Converts monotonic time to lived time."""

    def __init__(self) -> None:
        self.stall_count = 0
        self._stood_ms = 0
        self._due_ms: int | None = None

    def expect(self, due_ms: int | None) -> None:
        """Declare that a turn is expected at this monotonic time, or none (None)."""
        self._due_ms = due_ms

    def at(self, monotonic_ms: int) -> int:
        """Return the lived milliseconds at this monotonic time."""
        if self._due_ms is not None and monotonic_ms - self._due_ms > STALL_MS:
            self._stood_ms += monotonic_ms - self._due_ms
            self._due_ms = monotonic_ms
            self.stall_count += 1
        return monotonic_ms - self._stood_ms
