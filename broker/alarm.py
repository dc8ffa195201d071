"""One timer for all deadlines of the broker.

Ground floor. Pure. A call of the world's per parked request would cost more than the request; here
whoever has a deadline says so by `wake_by`, and the timer is only moved when that is earlier than
all others.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.world import Cancel, World


class Alarm:
    """Calls `on_time(now_ms)` at the earliest deadline; it returns the next one, or None."""

    def __init__(
        self,
        world: World,
        on_time: Callable[[int], int | None],
        on_late: Callable[[int], None] = lambda late_ns: None,
    ) -> None:
        """`on_late` hears by how many nanoseconds the loop was late each time."""
        self._world = world
        self._on_time = on_time
        self._on_late = on_late
        self._call: Cancel | None = None
        self._deadline_ms = 0
        self._due_ns = 0

    def wake_by(self, deadline_ms: int) -> None:
        """Make sure that `on_time` is called at this deadline (monotonic milliseconds)."""
        if self._call is not None:
            if self._deadline_ms <= deadline_ms:
                return
            self._call.cancel()
        self._deadline_ms = deadline_ms
        # One more, for the loop's clock and ours are cut to milliseconds at different places.
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
        """No more calls."""
        if self._call is not None:
            self._call.cancel()
            self._call = None
