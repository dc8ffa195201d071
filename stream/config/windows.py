"""Sizes of windows, and how long they are kept, in the configuration file.

This module is pure. Each `ValueError` says what was found and what was expected.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from protocol.units import DURATION_PATTERN, parse_duration_ms

SLICE_S = 10  # the smallest slice; every window is a multiple of it
WINDOW_S_MAX = 86_400
ALL_WINDOW = "all"
FOREVER = "forever"

# The times for which windows are kept by default. A size that is not listed is kept like the next
# smaller one. MySQL's windows are the history, so only the sizes that fill a disk are ever deleted,
# and the user gets a notice before (decision 0098).
KEEP_REDIS = {"10s": "1h", "1m": "1d", "1h": "30d"}
KEEP_MYSQL = {"1m": "90d", "5m": "forever"}


def fault(found: object, expected: str) -> ValueError:
    return ValueError(f"found {found}, expected {expected}")


def window_s(text: str) -> int:
    """Return the size of a window in seconds, 0 for `all`; raises ValueError for other texts."""
    if text == ALL_WINDOW:
        return 0
    try:
        duration_ms = parse_duration_ms(text)
    except ValueError:
        duration_ms = 0
    if duration_ms <= 0 or duration_ms % (SLICE_S * 1000) or duration_ms > WINDOW_S_MAX * 1000:
        raise fault(repr(text), "a multiple of 10s up to 1d, such as 10s, 1m, 1h, or all")
    return duration_ms // 1000


def keep_s(text: str) -> int | None:
    """Return for how many seconds a sink keeps a window after its end; None means forever."""
    if text == FOREVER:
        return None
    duration_ms = parse_duration_ms(text)
    if duration_ms < 1000:
        raise fault(repr(text), "at least 1s, or forever")
    return duration_ms // 1000


def check_windows(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise fault("no window", "at least one, such as 1m, 1h, all")
    seen: set[int] = set()
    for text in value:
        size_s = window_s(text)
        if size_s in seen:
            raise fault(f"{text!r} twice", "each window once")
        seen.add(size_s)
    return value


def _checked(value: object) -> object:
    """Validate one duration for all window sizes, or one per size; report the first fault only."""
    for size, keep in value.items() if isinstance(value, dict) else (("1m", value),):
        if window_s(str(size)) == 0:
            raise fault("all", "window sizes: totals since the beginning stay forever")
        if not isinstance(keep, str):
            raise fault(repr(keep), "a duration such as 30d, or forever")
        keep_s(keep)
    return value


_KEEP_TIME = {"anyOf": [{"const": FOREVER}, {"type": "string", "pattern": DURATION_PATTERN}]}
Keep = Annotated[
    str | dict[str, str],
    BeforeValidator(_checked),
    WithJsonSchema(
        {
            "anyOf": [
                *_KEEP_TIME["anyOf"],
                {
                    "type": "object",
                    "propertyNames": {"pattern": DURATION_PATTERN},
                    "additionalProperties": _KEEP_TIME,
                },
            ]
        }
    ),
]


def over(preset: Mapping[str, str], said: Keep | None) -> Keep:
    """Return the file's values, with presets for the sizes that the file leaves out."""
    return said if isinstance(said, str) else {**preset, **(said or {})}


def kept_s(
    preset: Mapping[str, str], said: Sequence[Keep | None], windows_s: Sequence[int]
) -> dict[int, int | None]:
    """Return for how many seconds each window size is kept; None means forever.

    The values are those of `preset`, overridden by each entry of `said` in turn.

    A size without a value is kept like the next smaller size with a value. A single duration
    replaces all values. A mapping replaces only the values of its sizes.
    """
    table = {window_s(size): keep_s(text) for size, text in preset.items()}
    for keep in said:
        if isinstance(keep, str):
            table = dict.fromkeys(table, keep_s(keep))
        elif keep is not None:
            table |= {window_s(size): keep_s(text) for size, text in keep.items()}
    kept: dict[int, int | None] = {}
    for size in windows_s:
        nearest = max((s for s in table if s <= size), default=min(table))
        kept[size] = table[nearest] if size else None
    return kept
