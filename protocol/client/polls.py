"""Detects a consumer that is not polled any more, so that other members get its partitions.

This module is pure: time is an argument.
"""


class Polls:
    """The polls of one consumer. Several polls can wait at the same time."""

    def __init__(self, interval_ms_max: int, now_ms: int) -> None:
        self._interval_ms_max = interval_ms_max
        self._polled_at_ms = now_ms
        self._waiting = 0

    def note(self, now_ms: int) -> None:
        """Record a poll that was answered at once."""
        self._polled_at_ms = now_ms

    def begin(self, now_ms: int) -> None:
        """Record the start of a poll that waits."""
        self._waiting += 1
        self._polled_at_ms = now_ms

    def end(self, now_ms: int) -> None:
        """Record the end of a poll; its caller now processes the records."""
        self._waiting -= 1
        self._polled_at_ms = now_ms

    @property
    def overdue_at_ms(self) -> int | None:
        """The time at which the last poll is too long ago; None while a poll waits."""
        return None if self._waiting else self._polled_at_ms + self._interval_ms_max

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether the last poll is too long ago."""
        overdue_at_ms = self.overdue_at_ms
        return overdue_at_ms is not None and now_ms >= overdue_at_ms
