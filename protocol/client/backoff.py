"""Waits between retries: exponential, bounded, with jitter.

This module is pure: the random source is passed in.
"""

import random

JITTER = 0.2


class Backoff:
    """The waits after failures of one thing: from `base_ms`, doubled each time, up to `max_ms`.

    Each wait varies by up to a fifth, so that clients that failed together do not retry together.
    """

    def __init__(self, base_ms: int, max_ms: int, rng: random.Random) -> None:
        self.base_ms = base_ms
        self.max_ms = max_ms
        self.failures = 0
        self._rng = rng

    def next_ms(self) -> int:
        """Count a failure, and return the wait that follows it."""
        # The shift is bounded, or the number would grow forever.
        wait_ms = min(self.max_ms, self.base_ms << min(self.failures, 30))
        self.failures += 1
        return max(1, round(wait_ms * self._rng.uniform(1 - JITTER, 1 + JITTER)))

    def reset(self) -> None:
        """Forget the failures, after a success."""
        self.failures = 0
