"""Parses times as people write them, for the search of offsets. This module is pure, except for the
clock that is passed in."""

import time

from appliance.output import CommandError, Exit
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from protocol.units import parse_moment_ms

ENDS = {"start": EARLIEST_TIMESTAMP, "end": LATEST_TIMESTAMP, "max": MAX_TIMESTAMP}


def moment_ms(text: str, now_ms: int | None = None) -> int:
    """Return the Unix milliseconds of `1h` (ago), `2026-08-01T10:00Z` or a number. Raises
    CommandError."""
    try:
        return parse_moment_ms(text, round(time.time() * 1000) if now_ms is None else now_ms)
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error


def offset_time(text: str) -> int:
    """Return the timestamp to ask a broker for: an end of the log, or a time. Raises
    CommandError."""
    return ENDS[text] if text in ENDS else moment_ms(text)
