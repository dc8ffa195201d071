"""One timer of the loop for all deadlines of the broker.

Floor: real. A `call_later` per parked request would cost more than the request; here whoever has
a deadline says so by `wake_by`, and the timer is only moved when that is earlier than all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter_ns

from broker.clock import Clock


class LoopTimer:
    """Calls `on_time(now_ms)` at the earliest deadline; it returns the next one, or None."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        on_time: Callable[[int], int | None],
        on_late: Callable[[int], None] = lambda late_ns: None,
    ) -> None:
        """`on_late` hears by how many nanoseconds the loop was late each time."""
        self._loop = loop
        self._clock = clock
        self._on_time = on_time
        self._handle: asyncio.TimerHandle | None = None
        self._deadline_ms = 0
        self._due_ns = 0
        self._on_late = on_late

    def wake_by(self, deadline_ms: int) -> None:
        """Make sure that `on_time` is called at this deadline (monotonic milliseconds)."""
        if self._handle is not None:
            if self._deadline_ms <= deadline_ms:
                return
            self._handle.cancel()
        self._deadline_ms = deadline_ms
        # One more, for the loop's clock and ours are cut to milliseconds at different places.
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0) + 1
        self._due_ns = perf_counter_ns() + delay_ms * 1_000_000
        self._handle = self._loop.call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._handle = None
        self._on_late(max(perf_counter_ns() - self._due_ns, 0))
        next_ms = self._on_time(self._clock.monotonic_ms())
        if next_ms is not None:
            self.wake_by(next_ms)

    def stop(self) -> None:
        """No more calls."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
