"""Times as people write them, for offsets. Pure but for the clock that is passed in."""

import time
from datetime import UTC, datetime

from appliance.cli.output import CommandError, Exit
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from protocol.units import parse_duration_ms

ENDS = {"start": EARLIEST_TIMESTAMP, "end": LATEST_TIMESTAMP, "max": MAX_TIMESTAMP}
EXPECTED = "expected a duration ago such as 1h, a time such as 2026-08-01T10:00Z, or Unix ms"


def moment_ms(text: str, now_ms: int | None = None) -> int:
    """Unix milliseconds of `1h` (ago), `2026-08-01T10:00Z` or a number. Raises CommandError."""
    if text.isdecimal():
        return int(text)
    try:
        duration_ms = parse_duration_ms(text)
    except ValueError:
        pass
    else:
        return (round(time.time() * 1000) if now_ms is None else now_ms) - duration_ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandError(f"found {text!r}, {EXPECTED}", Exit.USAGE) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def offset_time(text: str) -> int:
    """What a broker is asked: one of the ends of a log, or a moment. Raises CommandError."""
    return ENDS[text] if text in ENDS else moment_ms(text)
