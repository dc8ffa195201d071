"""The spellings of times in lines of unknown logs.

This module is pure. The stream parses all these spellings without a configured layout. The
exception is a date in which only the layout says which number is the month. Each pattern means the
same in Java and Python.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_CLOCK = r"\d\d:\d\d:\d\d"
_FRACTION = r"(?:[.,]\d{1,9})?"
_ZONE = r"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
_DAY_NAME = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"


@dataclass(frozen=True, slots=True)
class Spelling:
    """One way to write a time.

    `orders` has the possible layouts, each with the position of the month in it. If there are
    several, the texts in the log decide which one is right.
    """

    name: str
    pattern: str
    orders: tuple[tuple[str, int], ...] = ()


SPELLINGS = (
    Spelling("ISO 8601", rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}{_FRACTION}{_ZONE}"),
    Spelling("Go", rf"\d{{4}}/\d\d/\d\d {_CLOCK}{_FRACTION}{_ZONE}"),
    Spelling("access log", rf"\d\d/{_MONTH}/\d{{4}}:{_CLOCK}{_FRACTION}(?: [+-]\d{{4}})?"),
    Spelling("RFC 1123", rf"{_DAY_NAME}, \d\d {_MONTH} \d{{4}} {_CLOCK}(?: (?:GMT|[+-]\d{{4}}))?"),
    Spelling("asctime", rf"{_DAY_NAME} {_MONTH} [ \d]\d {_CLOCK}{_FRACTION} \d{{4}}"),
    Spelling("day, month, year", rf"\d\d[ -]{_MONTH}[ -]\d{{4}} {_CLOCK}{_FRACTION}"),
    Spelling("Java", rf"{_MONTH} \d{{1,2}}, \d{{4}} \d{{1,2}}:\d\d:\d\d [AP]M"),
    Spelling("days with dots", rf"\d\d\.\d\d\.\d{{4}} {_CLOCK}{_FRACTION}"),
    Spelling(
        "days with slashes",
        rf"\d\d/\d\d/\d{{4}} {_CLOCK}",
        (("%d/%m/%Y %H:%M:%S", 3), ("%m/%d/%Y %H:%M:%S", 0)),
    ),
    Spelling("Spark", rf"\d\d/\d\d/\d\d {_CLOCK}", (("%y/%m/%d %H:%M:%S", 3),)),
    Spelling("Android", rf"\d\d-\d\d {_CLOCK}\.\d{{3}}", (("%m-%d %H:%M:%S.%f", 0),)),
    Spelling("Hadoop", r"\d{6} \d{6}", (("%y%m%d %H%M%S", 2),)),
    Spelling("MySQL", r"\d{6} +\d?\d:\d\d:\d\d"),
    Spelling("compact", r"20\d{6}T\d{6}Z?"),
    Spelling("seconds since 1970", r"1\d{9}(?:\.\d{1,9})?"),
    Spelling("milliseconds since 1970", r"1\d{12}"),
)

_WHOLE = tuple(
    re.compile(rf"(?:{one.pattern})\Z", re.ASCII)
    for one in SPELLINGS
    if not one.orders and "1970" not in one.name
)
_EPOCH_S = re.compile(r"1\d{9}(?:\.\d{1,9})?\Z", re.ASCII)
_EPOCH_MORE = re.compile(r"1(?:\d{12}|\d{15}|\d{18})\Z", re.ASCII)


def is_moment(text: str) -> bool:
    """Return whether a text is only a time with a date. A number is not."""
    if not 15 <= len(text) <= 40 or text.isdigit():
        return False
    return any(pattern.match(text) for pattern in _WHOLE)


def is_epoch(text: str) -> bool:
    """Return whether a number can be an epoch time from the years 2001 to 2033."""
    return _EPOCH_S.match(text) is not None or _EPOCH_MORE.match(text) is not None


def order_of(spelling: Spelling, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the layouts that fit all texts. If the texts decide, the result has a single
    layout."""
    return tuple(
        layout
        for layout, place in spelling.orders
        if all(1 <= int(text[place : place + 2]) <= 12 for text in texts)
    )
