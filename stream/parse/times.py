"""SQL that converts texts to times, in the common formats or in layouts that the user writes.

This module is pure except for the time zone database that `stream/config/zones.py` reads. The SQL
calls `java/Times.java`, which reads a text once from left to right. A function keeps the code that
Spark generates small.

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

# A time before 1970, or not before this one, is unreadable, because MySQL's DATETIME ends with the
# year 9999.
_TIME_MAX_S = 253_402_300_800

# SQL for the arrival of a line. A date without a year gets its year from the arrival. A record
# without a time stamp has no arrival, so such a date in it is unreadable.
_ARRIVAL = "coalesce(arrival, timestamp_micros(0))"


# The reason for a line without a usable time, if no more precise reason is known.
TIME_REASON = "time"


@dataclass(frozen=True, slots=True)
class TimeSql:
    """The SQL for a line's time, and for the reason if the time is NULL."""

    value: str
    fault: str = quote_text(TIME_REASON)


def line_time(texts: Sequence[str], tz: str, section: TimeSection | None) -> TimeSql:
    """Return SQL for the time of a line: the first of these texts that is a time, else the
    fallback.
    """
    given = section or TimeSection()
    # If the user names several fields, one of them can have a number that is no time. So the texts
    # are checked more strictly.
    is_picky = len(texts) > 1 and not given.layout
    values = [parse_time(text, tz, given.layout, is_picky=is_picky) for text in texts]
    faults = [time_fault(text, tz, given.layout, is_picky=is_picky) for text in texts]
    if given.fallback == "arrival":
        values = [*map(plausible_time, values), "arrival"]
    value = values[0] if len(values) == 1 else f"coalesce({', '.join(values)})"
    return TimeSql(value, f"coalesce({', '.join([*faults, quote_text(TIME_REASON)])})")


def parse_time(text: str, tz: str, layout: Sequence[str] = (), *, is_picky: bool = False) -> str:
    """Return SQL for the time in a text; NULL if the text is not a time, or is ambiguous.

    With `is_picky`, a number below 100,000,000 is taken for a duration, and a date without a time
    of day is not accepted. Use it for a field that was found by its name among several.
    """
    return f"millrace_time({text}, {_spec(tz, layout, is_picky)}, {_ARRIVAL})"


def time_fault(text: str, tz: str, layout: Sequence[str] = (), *, is_picky: bool = False) -> str:
    """Return SQL for the reason why `parse_time` gives NULL, such as ``time:zone BST``.

    NULL if there is no particular reason.
    """
    return f"millrace_time_fault({text}, {_spec(tz, layout, is_picky)})"


def plausible_time(time: str) -> str:
    """Return SQL for a time if MySQL can store it, else NULL."""
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
