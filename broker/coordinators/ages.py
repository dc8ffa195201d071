"""Computes the age of a wall-clock date, even if the wall clock was set in the meantime.

This module is pure. A clock that was set must not make anything older. So the lead of the wall
clock over the monotonic clock is checked regularly. If it has jumped, all dates from before the
jump are moved by the same amount. Jumps before the start of the process are unknown.
"""

from __future__ import annotations

SET_MS_MIN = 60_000
"""If the wall clock gains or loses this much between two checks, it was set, not adjusted."""

LEAPS_MAX = 100
"""The most jumps to remember. Beyond that the oldest two are merged. If the clock was set ahead,
dates between them then count as younger than they are.
"""


class Ages:
    """Knows when the wall clock was set, and by how much."""

    __slots__ = ("_lead_ms", "_leaps")

    def __init__(self, now_ms: int = 0, monotonic_ms: int = 0) -> None:
        self._lead_ms = now_ms - monotonic_ms
        self._leaps: list[tuple[int, int]] = []
        """(date without the jump, size of the jump), oldest first."""

    def look(self, now_ms: int, monotonic_ms: int) -> None:
        """Check whether the wall clock, which reads `now_ms`, was set since the last check."""
        lead_ms, self._lead_ms = self._lead_ms, now_ms - monotonic_ms
        ahead_ms = self._lead_ms - lead_ms
        if abs(ahead_ms) < SET_MS_MIN:
            return
        self._leaps.append((now_ms - ahead_ms, ahead_ms))
        if len(self._leaps) > LEAPS_MAX:
            (_, first_ms), (date_ms, second_ms), *self._leaps = self._leaps
            self._leaps.insert(0, (date_ms, first_ms + second_ms))

    def of(self, date_ms: int, now_ms: int) -> int:
        """Return the age of this date, in milliseconds."""
        leapt_ms = sum(ahead_ms for before_ms, ahead_ms in self._leaps if date_ms <= before_ms)
        return now_ms - date_ms - leapt_ms
