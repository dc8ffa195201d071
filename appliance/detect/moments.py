"""Times in lines of unknown logs: how they are spelled, and where they stand.

Pure. All spellings are among those that the stream reads without a layout, except for days whose
order only a layout can say. Each is a pattern that Java and Python read alike.
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
    """One way to write a time. `orders` are the layouts between which only values can decide."""

    name: str
    pattern: str
    orders: tuple[str, ...] = ()


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
        ("%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S"),
    ),
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
    """Whether a text is a time with a day, and nothing else; numbers are none."""
    if not 15 <= len(text) <= 40 or text.isdigit():
        return False
    return any(pattern.match(text) for pattern in _WHOLE)


def is_epoch(text: str) -> bool:
    """Whether a number can be a time since 1970 of the years 2001 to 2033."""
    return _EPOCH_S.match(text) is not None or _EPOCH_MORE.match(text) is not None


def order_of(spelling: Spelling, texts: Sequence[str]) -> tuple[str, ...]:
    """The layouts that all of some texts can have; one where the values decide."""
    possible = []
    for layout in spelling.orders:
        month_first = layout.startswith("%m")
        months = [int(text[0:2] if month_first else text[3:5]) for text in texts]
        if all(1 <= month <= 12 for month in months):
            possible.append(layout)
    return tuple(possible)
