"""How fast a disk fills, from what its room was over the last week. Pure.

The pace is the median of the slopes between any two hours: neither a file that lay there for a
while nor where the hours begin and end has much to say in it, and the room that retention gives
back all the time counts against what is written. A disk that was cleaned is looked at from then on.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from monitor.state.levels import DAY_MS

HOUR_MS = DAY_MS // 24
REACH_MS = 7 * DAY_MS
# Less than a day says nothing of days: most traffic has nights.
REACH_MS_MIN = DAY_MS
HOURS_MIN = 12
# An older last look says nothing of today.
AGE_MS_MAX = 2 * HOUR_MS
# So much of the disk at once is given back by a person, and not by retention.
CLEANED_SHARE = 0.05
DAYS_WARNING = 30.0

Room = tuple[int, float]
"""A moment, in milliseconds, and the bytes that were free at it."""


@dataclass(frozen=True, slots=True)
class Filling:
    """How much less room there is each day (below 0: more), as seen over `reach_ms`."""

    bytes_a_day: float
    reach_ms: int

    def days_left(self, free_bytes: int) -> float | None:
        """For how many days like these there is room; None where it does not become less."""
        return free_bytes / self.bytes_a_day if self.bytes_a_day > 0 else None


def filling_of(rooms: Iterable[Room], size_bytes: int, now_ms: int) -> Filling | None:
    """How a disk fills; None where too little was seen of it to say so.

    `rooms` are in the order of time, with gaps where nobody looked.
    """
    hours = _since_cleaned(_by_hour(rooms, now_ms), size_bytes)
    if len(hours) < HOURS_MIN or now_ms - hours[-1][0] > AGE_MS_MAX:
        return None
    reach_ms = hours[-1][0] - hours[0][0]
    if reach_ms < REACH_MS_MIN:
        return None
    slopes = [
        (before - after) / (until_ms - from_ms)
        for (from_ms, before), (until_ms, after) in combinations(hours, 2)
    ]
    return Filling(statistics.median(slopes) * DAY_MS, reach_ms)


def _by_hour(rooms: Iterable[Room], now_ms: int) -> list[Room]:
    """The last look in each hour of the last week."""
    hours: dict[int, Room] = {}
    for at_ms, free in rooms:
        if now_ms - REACH_MS <= at_ms <= now_ms:
            hours[at_ms // HOUR_MS] = (at_ms, free)
    return list(hours.values())


def _since_cleaned(hours: Sequence[Room], size_bytes: int) -> Sequence[Room]:
    for place in range(len(hours) - 1, 0, -1):
        if hours[place][1] - hours[place - 1][1] >= CLEANED_SHARE * size_bytes:
            return hours[place:]
    return hours
