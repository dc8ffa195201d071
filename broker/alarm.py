"""One timer for all deadlines of the broker.

This module is pure. A timer of the event loop for each parked request would cost more than the
request. So there is one timer. The owner of a deadline calls `wake_by`, which moves the timer only
if this deadline is earlier than all others.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.world import Cancel, World


class Alarm:
    """Calls `on_time(now_ms)` at the earliest deadline. `on_time` returns the next deadline, or
    None."""

    def __init__(
        self,
        world: World,
        on_time: Callable[[int], int | None],
        on_late: Callable[[int], None] = lambda late_ns: None,
    ) -> None:
        """`on_late` is called each time with the delay of the loop in nanoseconds."""
        self._world = world
        self._on_time = on_time
        self._on_late = on_late
        self._call: Cancel | None = None
        self._deadline_ms = 0
        self._due_ns = 0

    def wake_by(self, deadline_ms: int) -> None:
        """Make sure that `on_time` is called at this deadline (monotonic milliseconds) or
        before."""
        if self._call is not None:
            if self._deadline_ms <= deadline_ms:
                return
            self._call.cancel()
        self._deadline_ms = deadline_ms
        # Add one millisecond, because the loop's clock and this clock round to milliseconds at
        # different moments.
        delay_ms = max(deadline_ms - self._world.clock.monotonic_ms(), 0) + 1
        self._due_ns = self._world.turn_ns() + delay_ms * 1_000_000
        self._call = self._world.later(delay_ms, self._ring)

    def _ring(self) -> None:
        self._call = None
        self._on_late(max(self._world.turn_ns() - self._due_ns, 0))
        next_ms = self._on_time(self._world.clock.monotonic_ms())
        if next_ms is not None:
            self.wake_by(next_ms)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._call is not None:
            self._call.cancel()
            self._call = None
