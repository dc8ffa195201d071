"""Windows that begin by the clock of a place: local days of 23, 24 or 25 hours, and local hours.

Floor: ground of `sinks`. A `LocalZone` is a table of offsets, made from the system's time zone
database once. Python's rows and the JVM's blocks (`stream/java/LocalZone.java`) read the same
table, so that a window has one start, whichever way its cells take.
"""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

DAY_S = 86_400
HOUR_S = 3_600

# 2100-01-01; the last offset before it holds for ever.
_TABLE_END_S = 4_102_444_800


@dataclass(frozen=True, slots=True)
class LocalZone:
    """Offsets from UTC in seconds, each from its moment in `begins` on; the first begins at 0."""

    name: str
    begins: tuple[int, ...]
    offsets: tuple[int, ...]

    def window_start(self, at_s: int, size_s: int) -> int:
        """The start of the window of a size, which divides a day, that holds a moment.

        A window of more than an hour goes from one time of the clock to another: where clocks are
        set, it is longer or shorter. A window of at most an hour is never longer: an hour that
        occurs twice is two windows, and a window that a change of clocks cuts begins with the
        change.
        """
        place = bisect_right(self.begins, at_s) - 1
        local_s = at_s + self.offsets[place]
        floor_s = local_s - local_s % size_s
        if size_s > HOUR_S:
            # The first moment of that local time, which may lie before the last change of clocks.
            while place > 0 and floor_s < self.begins[place] + self.offsets[place - 1]:
                place -= 1
        return max(floor_s - self.offsets[place], self.begins[place])

    def moves(self, size_s: int) -> bool:
        """Whether windows of a size begin at other moments than those of UTC."""
        return size_s > 0 and any(offset % size_s for offset in self.offsets)


@cache
def local_zone(name: str) -> LocalZone:
    """The table of a zone such as ``Europe/Berlin`` or ``+05:30``; ZoneInfo's errors for others."""
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
    """The moment between two at which the offset becomes that of the later one."""
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
