"""How old a fact is whose date was taken by a wall clock, though that clock was set meanwhile.

Floor: coordinators. Pure. A machine that slept, or whose clock was wrong and has been set, has made
nothing old. How far the wall clock is ahead of one that nobody sets is looked at from time to time;
where that has leapt, all that is older than the leap counts as later by as much. A start knows of
no leaps before it.
"""

from __future__ import annotations

SET_MS_MIN = 60_000
"""A wall clock that gains or loses as much between two looks has been set, not adjusted."""

LEAPS_MAX = 100
"""Of more, the oldest two count as one: what lies between them is taken for younger than it is,
if the clock was set ahead."""


class Ages:
    """Knows by how much the wall clock was set, and when."""

    __slots__ = ("_lead_ms", "_leaps")

    def __init__(self, now_ms: int = 0, monotonic_ms: int = 0) -> None:
        self._lead_ms = now_ms - monotonic_ms
        self._leaps: list[tuple[int, int]] = []
        """(the date as it would be without the leap, how far ahead it went), oldest first."""

    def look(self, now_ms: int, monotonic_ms: int) -> None:
        """Note whether the wall clock, which says `now_ms`, was set since the last look."""
        lead_ms, self._lead_ms = self._lead_ms, now_ms - monotonic_ms
        ahead_ms = self._lead_ms - lead_ms
        if abs(ahead_ms) < SET_MS_MIN:
            return
        self._leaps.append((now_ms - ahead_ms, ahead_ms))
        if len(self._leaps) > LEAPS_MAX:
            (_, first_ms), (date_ms, second_ms), *self._leaps = self._leaps
            self._leaps.insert(0, (date_ms, first_ms + second_ms))

    def of(self, date_ms: int, now_ms: int) -> int:
        """How old something is, in milliseconds, that has this date."""
        leapt_ms = sum(ahead_ms for before_ms, ahead_ms in self._leaps if date_ms <= before_ms)
        return now_ms - date_ms - leapt_ms
