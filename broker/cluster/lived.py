"""Lived time: monotonic time without the periods in which this process was stopped.

This module is pure. A node that was frozen must not take all other nodes for dead when it
continues. So the owner of a timer declares when it expects the event loop to call it. If the call
is more than `STALL_MS` late, the process was stopped, and the delay is not added to the lived time.
"""

from __future__ import annotations

STALL_MS = 500
"""The delay of a call, in milliseconds, above which the process is assumed to have been stopped.
Smaller delays come from other work of the event loop."""


class LivedTime:
    """Converts monotonic time to lived time."""

    def __init__(self) -> None:
        self.stall_count = 0
        self._stood_ms = 0
        self._due_ms: int | None = None

    def expect(self, due_ms: int | None) -> None:
        """Set the monotonic time at which the event loop should make its next call; None if no call
        is due."""
        self._due_ms = due_ms

    def at(self, monotonic_ms: int) -> int:
        """Return the lived time in milliseconds at this monotonic time."""
        if self._due_ms is not None and monotonic_ms - self._due_ms > STALL_MS:
            self._stood_ms += monotonic_ms - self._due_ms
            self._due_ms = monotonic_ms
            self.stall_count += 1
        return monotonic_ms - self._stood_ms
