"""The abbreviations of time zones that lines can have, and their meaning.

The module reads the system's time zone database. An abbreviation that several regions use (BST,
IST, AST) is known only if the zone in the input's `tz` uses it. Java's own short ids are ignored,
because in Java BST means Bangladesh and ART means Cairo.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sinks.local_time import DAY_S, LocalZone, local_zone
from stream.config.windows import fault

# Offsets from UTC. MSK is a region here and not an offset, because Moscow's offset was an hour
# larger from 2011 to 2014.
UNAMBIGUOUS: Mapping[str, str] = {
    "Z": "Z", "UTC": "Z", "GMT": "Z", "UT": "Z", "WET": "Z",
    "WEST": "+01:00", "CET": "+01:00", "MET": "+01:00", "MEZ": "+01:00", "WAT": "+01:00",
    "CEST": "+02:00", "MEST": "+02:00", "MESZ": "+02:00", "EET": "+02:00", "CAT": "+02:00",
    "SAST": "+02:00", "EEST": "+03:00", "EAT": "+03:00", "IDT": "+03:00",
    "MSK": "Europe/Moscow", "MSD": "+04:00", "PKT": "+05:00", "WIB": "+07:00", "WITA": "+08:00",
    "WIT": "+09:00", "HKT": "+08:00", "AWST": "+08:00", "JST": "+09:00", "KST": "+09:00",
    "ACST": "+09:30", "ACDT": "+10:30", "AEST": "+10:00", "AEDT": "+11:00", "CHST": "+10:00",
    "NZST": "+12:00", "NZDT": "+13:00", "EST": "-05:00", "EDT": "-04:00", "CST": "-06:00",
    "CDT": "-05:00", "MST": "-07:00", "MDT": "-06:00", "PST": "-08:00", "PDT": "-07:00",
    "AKST": "-09:00", "AKDT": "-08:00", "HST": "-10:00", "BRT": "-03:00", "BRST": "-02:00",
}  # fmt: skip

# Abbreviations that meant local time in Australia until 2014. Programs there still write them, so
# with an Australian `tz` their American meaning is ignored.
_AUSTRALIAN = ("EST", "EDT", "CST", "CDT")

# The names of UTC; windows in such a zone are the same as without a zone.
_UTC = ("UTC", "GMT", "Etc/UTC", "Etc/GMT", "Z", "Zulu", "+00:00", "-00:00")

_FIXED = re.compile(r"[+-](0[0-9]|1[0-7]):[0-5][0-9]\Z")

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_STEP = timedelta(days=14)
_STEPS = 68 * 26


def check_zone(value: str) -> str:
    """Return the name of a time zone unchanged. Raises ValueError if there is no such zone."""
    if not _FIXED.match(value):
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise fault(repr(value), "a time zone such as UTC, Europe/Berlin or +02:00") from None
    return value


def window_zone(tz: str, windows_s: Sequence[int]) -> LocalZone | None:
    """Return the zone by whose local time windows begin; None if they begin by UTC.

    Windows begin by UTC too if the size of one does not divide a day, because such windows cannot
    begin with a local day.
    """
    if tz in _UTC or any(size and DAY_S % size for size in windows_s):
        return None
    zone = local_zone(tz)
    return zone if any(map(zone.moves, windows_s)) else None


@cache
def zone_names(tz: str) -> Mapping[str, str]:
    """Return the meaning of each abbreviation in an input with this `tz`: an offset or a region."""
    known = dict(UNAMBIGUOUS)
    if tz.startswith("Australia/"):
        for name in _AUSTRALIAN:
            del known[name]
    for name, offsets in _own_names(tz).items():
        known[name] = offset_text(next(iter(offsets))) if len(offsets) == 1 else tz
    return known


def offset_text(offset: timedelta) -> str:
    """Return an offset as ``+05:30``, or ``-00:44:30`` if it has seconds."""
    seconds = round(offset.total_seconds())
    hours, rest = divmod(abs(seconds), 3_600)
    text = f"{'-' if seconds < 0 else '+'}{hours:02}:{rest // 60:02}"
    return text if rest % 60 == 0 else f"{text}:{rest % 60:02}"


def _own_names(tz: str) -> dict[str, set[timedelta]]:
    """Return the abbreviations that a zone has used since 1970, each with its offsets."""
    try:
        zone = ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return {}
    found: dict[str, set[timedelta]] = {}
    for step in range(_STEPS):
        local = (_FIRST + step * _STEP).astimezone(zone)
        name, offset = local.tzname(), local.utcoffset()
        # Zones without their own abbreviation are named by their offset.
        if name is not None and offset is not None and name.isalpha():
            found.setdefault(name.upper(), set()).add(offset)
    return found
