"""A clock that stands still until it is moved."""

from __future__ import annotations


class SimClock:
    """Both readings begin where the test says; `advance` moves them together."""

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
        """Someone sets the machine's clock, forward or back; deadlines do not notice."""
        self._now_ms = now_ms


class SkewedClock(SimClock):
    """A node's own clock, whose wall time differs from that of the others."""

    def __init__(self, clock: SimClock, skew_ms: int) -> None:
        super().__init__()
        self._clock = clock
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._skew_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()
