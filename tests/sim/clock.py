"""A clock that only the test advances."""

from __future__ import annotations


class SimClock:
    """A clock with two readings, wall time and monotonic time. `advance` moves both."""

    def __init__(self, now_ms: int = 0, monotonic_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        assert by_ms >= 0, "deadlines would move away"
        self._now_ms += by_ms
        self._monotonic_ms += by_ms

    def set_wall_clock(self, now_ms: int) -> None:
        """Set the wall clock forward or back. Deadlines use the other reading, so they do not
        move."""
        self._now_ms = now_ms


class SkewedClock(SimClock):
    """A node's clock whose wall time differs from the other nodes' clocks."""

    def __init__(self, clock: SimClock, skew_ms: int) -> None:
        super().__init__()
        self._clock = clock
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._skew_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()
