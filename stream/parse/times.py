"""Converts texts to times by SQL: in the common formats, or in layouts that the user writes.

Room: pure except for the time zone database that `stream/config/zones.py` reads. `java/Times.java`
does the work: it reads a text once, from left to right, which keeps generated code small.

A number is seconds, milliseconds, microseconds or nanoseconds since 1970, depending on its size. A
text without a zone is in the input's `tz`. When clocks go back, a local time that occurs twice
means the first one; when they go forward, a skipped time is moved forward by the length of the gap.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from stream.config.expression import quote_text
from stream.config.times import TimeSection, compile_layout
from stream.config.zones import zone_names

# Times outside of these are unreadable: MySQL's DATETIME ends there, and no log is older.
_TIME_MAX_S = 253_402_300_800

# A record without a time stamp has no arrival; a date without a year is then unreadable.
_ARRIVAL = "coalesce(arrival, timestamp_micros(0))"


# The reason for a line that is not counted in its windows, if there is no better one.
TIME_REASON = "time"


@dataclass(frozen=True, slots=True)
class TimeSql:
    """A line's time, and the reason if it is NULL."""

    value: str
    fault: str = quote_text(TIME_REASON)


def line_time(texts: Sequence[str], tz: str, section: TimeSection | None) -> TimeSql:
    """Return the time of a line: of the first text that is a time, else by the fallback."""
    given = section or TimeSection()
    # If several fields are tried, none was chosen for this log, so a name may mislead.
    is_picky = len(texts) > 1 and not given.layout
    values = [parse_time(text, tz, given.layout, is_picky=is_picky) for text in texts]
    faults = [time_fault(text, tz, given.layout, is_picky=is_picky) for text in texts]
    if given.fallback == "arrival":
        values = [*map(plausible_time, values), "arrival"]
    value = values[0] if len(values) == 1 else f"coalesce({', '.join(values)})"
    return TimeSql(value, f"coalesce({', '.join([*faults, quote_text(TIME_REASON)])})")


def parse_time(text: str, tz: str, layout: Sequence[str] = (), *, is_picky: bool = False) -> str:
    """Return the time of a text, NULL if it is none or its meaning is not certain.

    `is_picky` is for a field found by its name among several. Then a number below 100,000,000
    is taken for a duration, and a date without a time of day is not a time.
    """
    return f"millrace_time({text}, {_spec(tz, layout, is_picky)}, {_ARRIVAL})"


def time_fault(text: str, tz: str, layout: Sequence[str] = (), *, is_picky: bool = False) -> str:
    """Return why `parse_time` gives NULL, such as ``time:zone BST``; NULL for no reason."""
    return f"millrace_time_fault({text}, {_spec(tz, layout, is_picky)})"


def plausible_time(time: str) -> str:
    """Return a time if it can be stored, else NULL."""
    return f"CASE WHEN unix_seconds({time}) BETWEEN 0 AND {_TIME_MAX_S - 1} THEN {time} END"


def _spec(tz: str, layout: Sequence[str], is_picky: bool) -> str:
    """Return the specification for `java/Times.java`, as a literal."""
    return quote_text(
        json.dumps(
            {
                "tz": tz,
                "zones": dict(sorted(zone_names(tz).items())),
                "layouts": [compile_layout(one) for one in layout],
                "picky": is_picky,
            },
            separators=(",", ":"),
        )
    )
