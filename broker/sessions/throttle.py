"""The pause of a connection whose client is over a quota (KIP-219).

This module is pure. While the pause lasts, the session starts no request and reads nothing. Answers
of requests that were started before are sent. The time of the pause is neither part of the client's
silence nor of the lifetime of its login.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.sessions.pipeline import Pipeline
from broker.world import Cancel, Clock, Later


class Throttle:
    """The pauses of one session. At any time the session pauses or does not."""

    __slots__ = ("_clock", "_later", "_over", "_pipeline", "_since_ms", "_timer", "_until_ms")

    def __init__(
        self, clock: Clock, later: Later, pipeline: Pipeline, over: Callable[[int], None]
    ) -> None:
        """`over` is called at the end of each pause, with its length in milliseconds."""
        self._clock = clock
        self._later = later
        self._pipeline = pipeline
        self._over = over
        self._timer: Cancel | None = None
        self._since_ms = 0
        self._until_ms = 0

    @property
    def is_on(self) -> bool:
        """True while the session pauses."""
        return self._timer is not None

    def begin(self, pause_ms: int) -> None:
        """Pause for this time. If the present pause ends later, it stays as it is."""
        now_ms = self._clock.monotonic_ms()
        if self._timer is None:
            self._since_ms = now_ms
            self._pipeline.throttle()
        elif now_ms + pause_ms <= self._until_ms:
            return
        else:
            self._timer.cancel()
        self._until_ms = now_ms + pause_ms
        self._timer = self._later(pause_ms, self.end)

    def end(self) -> None:
        """Continue, because the time is over, the quotas have changed, or the broker stops."""
        if self._timer is not None:
            self.forget()
            self._pipeline.resume()
            self._over(self._clock.monotonic_ms() - self._since_ms)

    def forget(self) -> None:
        """Stop the timer, because the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
