"""Waits between retries: exponential, bounded, with jitter.

This module is pure: the random source is passed in.
"""

import random

JITTER = 0.2


class Backoff:
    """The waiting times after repeated failures: `base_ms` first, then doubled, up to `max_ms`.

    Each waiting time varies by up to a fifth, so that clients that failed together do not retry
    together.
    """

    def __init__(self, base_ms: int, max_ms: int, rng: random.Random) -> None:
        self.base_ms = base_ms
        self.max_ms = max_ms
        self.failures = 0
        self.rng = rng

    def next_ms(self) -> int:
        """Count a failure, and return how long to wait after it."""
        # Limit the shift, so that the number stays small after many failures.
        wait_ms = min(self.max_ms, self.base_ms << min(self.failures, 30))
        self.failures += 1
        return max(1, round(wait_ms * self.rng.uniform(1 - JITTER, 1 + JITTER)))

    def reset(self) -> None:
        """Set the number of failures to zero, after a success."""
        self.failures = 0
