"""Chooses the type of a column by the texts in it.

This module is pure. The type fits every text in the column. If the texts are of several kinds, the
type is wider; the widest type is `string`. An absent value (`null`, `-` or an empty text) fits each
type, because the stream reads it as null.
"""

import re
from collections import Counter
from collections.abc import Mapping

from appliance.detect.moments import is_moment

INT_MAX = 999_999
"""The largest number for which a column is an `int`.

Larger numbers are probably counters or sizes, which can exceed 31 bits in later lines.
"""
BIGINT_MAX = (1 << 63) - 1
PLACES_MAX = 12
"""The largest number of digits after the decimal point that a metric's value may have."""
COUNTED_MAX = 1_000
"""The largest number of distinct values of a column whose frequencies are counted."""

_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,18})\Z")
# A number with leading zeros is an id or a code, so it must not become a numeric type.
_DECIMAL = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]{0,30})?\.[0-9]{1,40}|(?:0|[1-9][0-9]{0,30})\.?)"
                      r"(?:[eE][+-]?[0-9]{1,3})?\Z")  # fmt: skip
_ABSENT = ("", "-")


class SeenColumn:
    """The values of one column: the number of values of each kind, and the frequency of each
    value."""

    __slots__ = ("characters", "counts", "is_fine", "kinds", "present")

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.present = 0
        self.characters = 0
        self.is_fine = False
        """True if a number has more digits after the decimal point than a metric's value may
        have."""

    def add(self, text: str | None) -> None:
        """Add one value of the column."""
        if text is None or text in _ABSENT:
            return
        self.present += 1
        self.characters += len(text)
        if len(self.counts) < COUNTED_MAX or text in self.counts:
            if text in self.counts:
                self.counts[text] += 1
                return
            self.counts[text] = 1
        if "string" not in self.kinds:
            kind = kind_of(text)
            self.kinds.add(kind)
            if kind == "double" and not self.is_fine:
                self.is_fine = "e" in text.lower() or len(text.partition(".")[2]) > PLACES_MAX

    @property
    def type(self) -> str:
        """The narrowest type that fits every value."""
        kinds = self.kinds
        if len(kinds) == 1:
            return min(kinds)
        if kinds and kinds <= {"int", "bigint"}:
            return "bigint"
        if kinds and kinds <= {"int", "bigint", "double"}:
            return "double"
        return "string"

    @property
    def distinct(self) -> int:
        """The number of distinct values, up to COUNTED_MAX."""
        return len(self.counts)

    @property
    def characters_mean(self) -> float:
        """The mean length of a value in characters."""
        return self.characters / self.present if self.present else 0.0


def kind_of(text: str) -> str:
    """Return the type of one text."""
    if _INTEGER.match(text):
        size = abs(int(text))
        return "int" if size <= INT_MAX else "bigint" if size <= BIGINT_MAX else "string"
    if _DECIMAL.match(text):
        return "double"
    if text in ("true", "false"):
        return "boolean"
    return "timestamp" if is_moment(text) else "string"


def as_text(value: object) -> str | None:
    """Return a JSON value as the text that the stream would read for a column."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list):
        return "{…}" if isinstance(value, Mapping) else "[…]"
    return str(value)
