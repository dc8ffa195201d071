"""Computes windows that begin by local time: days of 23, 24 or 25 hours, and local hours.

A `LocalZone` is a table of UTC offsets, made once from the system's time zone database. Python uses
the table for rows, and the JVM for blocks (`stream/java/LocalZone.java`). So a window has the same
start in both.
"""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

DAY_S = 86_400
HOUR_S = 3_600

# 2100-01-01, the end of the table. From then on the last offset before it is used.
_TABLE_END_S = 4_102_444_800


@dataclass(frozen=True, slots=True)
class LocalZone:
    """The offsets of a zone from UTC, in seconds.

    Each of `offsets` is valid from the epoch second at the same position in `begins` on.
    """

    name: str
    begins: tuple[int, ...]
    offsets: tuple[int, ...]

    def window_start(self, at_s: int, size_s: int) -> int:
        """Return the start of the window that contains a moment; `size_s` must divide a day.

        A window of more than an hour lasts from one local time to another, so it is longer or
        shorter when the clock changes. A window of up to an hour is never longer: a change of the
        clock starts a new window, so a repeated hour is two windows.
        """
        place = bisect_right(self.begins, at_s) - 1
        local_s = at_s + self.offsets[place]
        floor_s = local_s - local_s % size_s
        if size_s > HOUR_S:
            # Find the first moment with that local time, which can be before the last clock change.
            while place > 0 and floor_s < self.begins[place] + self.offsets[place - 1]:
                place -= 1
        return max(floor_s - self.offsets[place], self.begins[place])

    def moves(self, size_s: int) -> bool:
        """Tell whether windows of a size begin at other moments than by UTC."""
        return size_s > 0 and any(offset % size_s for offset in self.offsets)


@cache
def local_zone(name: str) -> LocalZone:
    """Return the table of a zone such as ``Europe/Berlin`` or ``+05:30``.

    Raises what ZoneInfo raises if there is no such zone.
    """
    zone: tzinfo
    if name[:1] in "+-":
        minutes = int(name[1:3]) * 60 + int(name[4:6])
        zone = timezone(timedelta(minutes=-minutes if name[0] == "-" else minutes))
    else:
        zone = ZoneInfo(name)
    begins, offsets = [0], [_offset_s(zone, 0)]
    for day_s in range(0, _TABLE_END_S, DAY_S):
        after = _offset_s(zone, day_s + DAY_S)
        if after != offsets[-1]:
            begins.append(_change(zone, day_s, day_s + DAY_S))
            offsets.append(after)
    return LocalZone(name, tuple(begins), tuple(offsets))


def _change(zone: tzinfo, before_s: int, after_s: int) -> int:
    """Return the first moment between two moments at which the later offset applies."""
    wanted = _offset_s(zone, after_s)
    while after_s - before_s > 1:
        middle_s = (before_s + after_s) // 2
        if _offset_s(zone, middle_s) == wanted:
            after_s = middle_s
        else:
            before_s = middle_s
    return after_s


def _offset_s(zone: tzinfo, at_s: int) -> int:
    offset = datetime.fromtimestamp(at_s, zone).utcoffset()
    return 0 if offset is None else round(offset.total_seconds())
