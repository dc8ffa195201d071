"""Computes the age of a wall-clock date, even if the wall clock was set in the meantime.

This module is pure. A change of the system clock must not make any date older. So the difference
between the wall clock and the monotonic clock is checked regularly. If the difference has jumped,
all dates from before the jump are moved by the same amount. Jumps before the start of the process
are unknown.
"""

from __future__ import annotations

SET_MS_MIN = 60_000
"""The smallest change of the difference between two checks that is treated as a change of the
system clock.

A smaller change is an adjustment.
"""

LEAPS_MAX = 100
"""The largest number of jumps to remember.

Beyond this number the two oldest jumps are merged. If the clock was set ahead, a date between these
two jumps then gets a smaller age than it has.
"""


class Ages:
    """Remembers when the wall clock was set, and by how much."""

    __slots__ = ("_lead_ms", "_leaps")

    def __init__(self, now_ms: int = 0, monotonic_ms: int = 0) -> None:
        self._lead_ms = now_ms - monotonic_ms
        self._leaps: list[tuple[int, int]] = []
        """The jumps of the wall clock, oldest first: (date without the jump, size of the jump)."""

    def look(self, now_ms: int, monotonic_ms: int) -> None:
        """Check whether the wall clock was set since the last check.

        `now_ms` is its present time.
        """
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
