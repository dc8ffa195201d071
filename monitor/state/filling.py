"""The pace at which a disk fills, from its free bytes over the last week.

This module is pure. The pace is the median of the slopes between any two hours (the Theil-Sen
estimator). So neither a file that existed for a few hours nor the first and last hours change it
much. Bytes that retention deletes reduce the pace. If a person frees a large part of the disk, the
pace is measured from that moment on.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from monitor.state.levels import DAY_MS

HOUR_MS = DAY_MS // 24
REACH_MS = 7 * DAY_MS
# Measurements of less than a day give no daily pace, because most traffic is lower at night.
REACH_MS_MIN = DAY_MS
HOURS_MIN = 12
# If the last measurement is older, the pace is unknown, because it can have changed since.
AGE_MS_MAX = 2 * HOUR_MS
# If more than this share of the disk becomes free within an hour, a person has cleaned up, because
# retention does not free so much.
CLEANED_SHARE = 0.05
DAYS_WARNING = 30.0

Room = tuple[int, float]
"""A moment in milliseconds, and the bytes that were free then."""


@dataclass(frozen=True, slots=True)
class Filling:
    """The bytes by which the free space of a disk shrinks each day, measured over `reach_ms`.

    The number is negative if the free space grows.
    """

    bytes_a_day: float
    reach_ms: int

    def days_left(self, free_bytes: int) -> float | None:
        """Return in how many days the disk is full at this pace; None if the free space does not
        shrink.
        """
        return free_bytes / self.bytes_a_day if self.bytes_a_day > 0 else None


def filling_of(rooms: Iterable[Room], size_bytes: int, now_ms: int) -> Filling | None:
    """Return the pace of a disk; None if there are too few measurements or the last one is too old.

    `rooms` has pairs of time and free bytes in the order of time. There are gaps in which the
    monitor did not run.
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
    """Return the last measurement of each hour of the last week."""
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
