"""The rate of a client over the last seconds, and the pause that brings it back to its quota.

This module is pure. The formulas are those of Kafka's Rate and ClientQuotaManager. A window has 11
samples of one second, and the sum is divided by at least ten seconds. So a client can use the quota
of ten seconds at once, and then pauses until the average of the window is the quota.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

K = TypeVar("K")

SAMPLE_MS = 1_000
SAMPLE_COUNT = 11
"""Kafka's defaults: `quota.window.size.seconds` is 1, and `quota.window.num` is 11."""

FULL_SAMPLES_MIN = SAMPLE_COUNT - 1
RATES_MAX = 10_000
"""The most rates of one kind that are kept. Above it, unused rates are forgotten, then the
oldest."""

WINDOW_MS_MIN = FULL_SAMPLES_MIN * SAMPLE_MS
"""The shortest time in milliseconds over which a rate is computed."""


class SampledRate:
    """The amount that one client has used in the last seconds, in samples of one second."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()
        """The start in monotonic milliseconds and the sum of each sample, the oldest first."""

    def record(self, value: float, now_ms: int) -> None:
        """Add an amount at this time. A negative amount takes back an earlier one."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= SAMPLE_MS:
            samples.append([now_ms, 0.0])
        samples[-1][1] += value

    def per_second(self, now_ms: int) -> float:
        """Return the average rate in the window, per second."""
        window_ms = self._window_ms(now_ms)
        return sum(value for _, value in self._samples) * 1_000 / window_ms

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """Return the pause in milliseconds after which the average falls to the quota; 0 if it is
        not above the quota."""
        rate = self.per_second(now_ms)
        if rate <= quota:
            return 0
        return round((rate - quota) / quota * self._window_ms(now_ms))

    def is_unused(self, now_ms: int) -> bool:
        """Return True if nothing was used in the window. The object can then be dropped, because a
        new one gives the same rates."""
        self._drop_old(now_ms)
        return not any(value for _, value in self._samples)

    def _drop_old(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= SAMPLE_COUNT * SAMPLE_MS:
            samples.popleft()

    def _window_ms(self, now_ms: int) -> int:
        """Return the time since the start of the oldest sample in milliseconds, at least ten
        seconds."""
        self._drop_old(now_ms)
        elapsed_ms = now_ms - int(self._samples[0][0]) if self._samples else 0
        missing = FULL_SAMPLES_MIN - elapsed_ms // SAMPLE_MS
        return elapsed_ms + max(missing, 0) * SAMPLE_MS


class TokenBucket:
    """The number of changes, called tokens, that one client may still make.

    A change is allowed while the number is not negative, and can make it negative. Then the client
    must wait. This is Kafka's TokenBucket (KIP-599). The bucket holds at most the tokens that the
    quota gives in a whole window.
    """

    __slots__ = ("_at_ms", "_quota", "_tokens")

    def __init__(self) -> None:
        self._tokens = math.inf
        self._quota = 0.0
        self._at_ms = 0

    def pause_ms(self, quota: float, now_ms: int) -> int:
        """Return the time in milliseconds until there are no tokens missing; 0 if none are."""
        self._refill(quota, now_ms)
        # As in Kafka, less than half a millisecond is none.
        return max(round(-self._tokens / quota * 1_000), 0)

    def take(self, count: float, quota: float, now_ms: int) -> None:
        """Take tokens. A negative number gives them back."""
        self._refill(quota, now_ms)
        self._tokens = min(self._tokens - count, _burst(quota))

    def is_unused(self, now_ms: int) -> bool:
        """Return True if the bucket is full. It can then be dropped, because a new one is full
        too."""
        self._refill(self._quota, now_ms)
        return self._tokens >= _burst(self._quota)

    def _refill(self, quota: float, now_ms: int) -> None:
        # The time before a change of the quota counts with the quota before it.
        added = (now_ms - self._at_ms) * self._quota / 1_000
        self._tokens = min(self._tokens + added, _burst(quota))
        self._at_ms, self._quota = now_ms, quota


def _burst(quota: float) -> float:
    return quota * SAMPLE_COUNT * SAMPLE_MS / 1_000


class Forgettable(Protocol):
    """The use of a quota by one client."""

    def is_unused(self, now_ms: int) -> bool:
        """Return True if this object can be dropped, because a new one would do the same."""


R = TypeVar("R", bound=Forgettable)


class KeptRates(dict[K, R]):
    """The rates of many clients. Unused rates are forgotten, so that clients that always use new
    ids take no memory."""

    def __init__(self, make: Callable[[], R]) -> None:
        super().__init__()
        self._make = make

    def of(self, key: K, now_ms: int) -> R:
        """Return the rate of a client, which is new if it is not known."""
        rate = self.get(key)
        if rate is None:
            if len(self) >= RATES_MAX:
                self._forget(now_ms)
            rate = self[key] = self._make()
        return rate

    def _forget(self, now_ms: int) -> None:
        for key in [key for key, rate in self.items() if rate.is_unused(now_ms)]:
            del self[key]
        while len(self) >= RATES_MAX:
            del self[next(iter(self))]
