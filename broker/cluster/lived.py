"""Lived time: monotonic time without the periods in which this process was stopped; and its timer.

A node that was frozen must not take all other nodes for dead when it continues. So a timer declares
when it expects the event loop to call it. If the call is more than `STALL_MS` late, the process was
stopped, and the delay is not added to the lived time.

While a deadline is set, the event loop calls the timer every `TURN_MS`, because only a late call
shows that the process was stopped. After a stall the timer waits for the next call. In the meantime
the event loop reads the sockets, so that no node is wrongly taken for dead.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.world import Cancel, World

STALL_MS = 500
"""The delay of a call, in milliseconds, above which the process is assumed to have been stopped.
Smaller delays come from other work of the event loop."""

TURN_MS = 250
"""The interval in milliseconds of the calls while a deadline is set."""


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


class LivedAlarm:
    """Calls `on_time` when the deadline that was set last has passed in lived time.

    It never does so right after a stall.
    """

    def __init__(self, world: World, on_time: Callable[[], None]) -> None:
        """`on_time` must set the next deadline."""
        self._world = world
        self._on_time = on_time
        self._lived = LivedTime()
        self._deadline_ms: int | None = None
        self._timer: Cancel | None = None
        self._timer_ms = 0

    @property
    def now_ms(self) -> int:
        """The lived time in milliseconds."""
        return self._lived.at(self._world.clock.monotonic_ms())

    @property
    def stall_count(self) -> int:
        """The number of stalls of the process that were detected."""
        return self._lived.stall_count

    def set(self, deadline_ms: int | None) -> None:
        """Replace the deadline (lived milliseconds). None cancels it."""
        self._deadline_ms = deadline_ms
        if deadline_ms is None:
            self._cancel()
            self._lived.expect(None)
            return
        monotonic_ms = self._world.clock.monotonic_ms()
        left_ms = max(deadline_ms - self._lived.at(monotonic_ms), 0)
        due_ms = monotonic_ms + min(left_ms, TURN_MS)
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._cancel()
        self._timer_ms = due_ms
        self._lived.expect(due_ms)
        self._timer = self._world.later(due_ms - monotonic_ms, self._ring)

    def stop(self) -> None:
        """Cancel the timer."""
        self._deadline_ms = None
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        stall_count = self._lived.stall_count
        now_ms = self.now_ms
        deadline_ms = self._deadline_ms
        assert deadline_ms is not None, "a timer goes with its deadline"
        if self._lived.stall_count == stall_count and deadline_ms <= now_ms:
            self._on_time()
        else:
            self.set(deadline_ms)
