"""Durations and sizes as people write them: "100ms", "7d", "1MiB".

This module is pure. All packages use it for their settings, so the notation is the same everywhere.
"""

import re
from datetime import UTC, datetime

from protocol.types import INT64_MAX

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]*)\s*\Z")

_MILLISECONDS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}

_BYTES = {
    "": 1,
    "B": 1,
    "kB": 1_000,
    "KB": 1_000,
    "MB": 1_000_000,
    "GB": 1_000_000_000,
    "TB": 1_000_000_000_000,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}

# Both patterns are in the syntax that JSON Schema, Python and JavaScript have in common.
DURATION_PATTERN = rf"^\s*[0-9]+(\.[0-9]+)?\s*({'|'.join(_MILLISECONDS)})\s*$"
SIZE_PATTERN = rf"^\s*[0-9]+(\.[0-9]+)?\s*({'|'.join(unit for unit in _BYTES if unit)})?\s*$"


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of "100ms", "2s", "1m", "1h", "7d", "2w". A number needs a unit.

    A fraction is allowed if it gives whole milliseconds ("0.5s", "1.5h").
    """
    return _parse(text, _MILLISECONDS, 'a duration such as "100ms", "30s", "1h" or "7d"')


def parse_size_bytes(text: str) -> int:
    """Return the bytes of "512", "64KiB", "1MiB", "2GB"; a number without a unit means bytes."""
    return _parse(text, _BYTES, 'a size such as "512", "64KiB" or "1MiB"')


def parse_moment_ms(text: str, now_ms: int) -> int:
    """Return the Unix milliseconds of "1h" (ago), "2026-08-01T10:00Z" (UTC by default) or a number.

    Times before 1970 become 0, because brokers interpret a negative timestamp as an end of the log.
    Raises ValueError for other texts, and for a number that does not fit into Kafka's int64.
    """
    expected = (
        f"found {text!r}, expected a duration ago such as 1h, a time such as"
        " 2026-08-01T10:00Z, or Unix ms"
    )
    if text.isdecimal():
        if int(text) > INT64_MAX:
            raise ValueError(expected)
        return int(text)
    try:
        return max(0, now_ms - parse_duration_ms(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(expected) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))


def format_moment_ms(moment_ms: int) -> str:
    """Return the time as RFC 3339 in UTC, to the second."""
    return f"{datetime.fromtimestamp(moment_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def format_duration_ms(duration_ms: int) -> str:
    """Return the shortest exact text that `parse_duration_ms` can read."""
    if duration_ms:
        for unit in ("d", "h", "m", "s"):
            if duration_ms % _MILLISECONDS[unit] == 0:
                return f"{duration_ms // _MILLISECONDS[unit]}{unit}"
    return f"{duration_ms}ms"


def format_size_bytes(size_bytes: int) -> str:
    """Return the shortest exact text that `parse_size_bytes` can read."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % _BYTES[unit] == 0:
            return f"{size_bytes // _BYTES[unit]}{unit}"
    return str(size_bytes)


def _parse(text: str, units: dict[str, int], expected: str) -> int:
    match = _NUMBER_AND_UNIT.match(text) if isinstance(text, str) else None
    scale = units.get(match[2]) if match else None
    if match is None or scale is None:
        raise ValueError(f"found {text!r}, expected {expected}")
    whole, _, fraction = match[1].partition(".")
    scaled = int(whole + fraction) * scale
    value, rest = divmod(scaled, int("1" + "0" * len(fraction)))
    if rest:
        raise ValueError(
            f"found {text!r}, which is not a whole number of units, expected {expected}"
        )
    return value
