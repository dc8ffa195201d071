"""The number of lines per second over the last ten seconds."""

from collections import deque

RATE_SAMPLES = 40  # the agent adds one sample per tick


class Rate:
    """The rate at which a counter grows."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=RATE_SAMPLES)

    def note(self, now_ms: int, count: int) -> None:
        """Add the present value of the counter as a sample."""
        self._samples.append((now_ms, count))

    def per_second(self) -> float:
        """Return the growth per second between the oldest and the newest sample."""
        if len(self._samples) < 2:
            return 0.0
        (first_ms, first), (last_ms, last) = self._samples[0], self._samples[-1]
        return (last - first) * 1000 / max(1, last_ms - first_ms)
