"""Declares, parses and checks settings, for the tables of `broker/config.py`.

This module is pure. A table is a frozen dataclass whose fields are made by `setting(...)`. Each
field is a row: its name is the attribute, and its metadata is the definition of the setting. So the
class that code reads, the answers of DescribeConfigs and the documentation always agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

VALUE_LENGTH_MAX = 1_000
"""The largest number of characters of a value. Useful values have a few dozen at most."""

LIST_LENGTH_MAX = 32_767
"""The largest number of characters of a list of replicas. Requests and answers of older versions
cannot contain a longer text, so a longer value could be set but not shown."""

Value = bool | int | float | str

Fault = tuple[str, object, str]
"""A wrong setting: the key, the value found, and the expected value."""

# Python accepts more forms of numbers than Kafka, such as underscores and the digits of all
# scripts.
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,19}\s*", re.ASCII)
_DECIMAL = re.compile(r"\s*[+-]?[0-9]{0,19}\.?[0-9]{0,19}([eE][+-]?[0-9]{1,3})?\s*", re.ASCII)


class ConfigType(IntEnum):
    """The type of a value. The numbers are Kafka's in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker key that sets the default of a topic setting, in its own unit."""

    key: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: Kafka's dotted key with type, default, limits and reason."""

    key: str
    kind: ConfigType
    default: Value
    unit: str
    why: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    synonyms: tuple[Synonym, ...]
    is_dynamic: bool = False
    """True if the setting can be changed while the broker runs."""
    pattern: str = ""
    """A regular expression that the whole text must match; empty if the value is not checked by a
    pattern."""
    form: str = ""
    """A description of the pattern, for error messages."""
    length_max: int = VALUE_LENGTH_MAX
    """The largest number of characters of a value."""

    @property
    def expected(self) -> str:
        """A description of valid values, for the error message about a wrong value."""
        if self.pattern:
            return self.form
        if len(self.choices) == 1:
            return f"{self.choices[0]}: {self.why}"
        if self.kind is ConfigType.BOOLEAN and not self.choices:
            return "true or false"
        if self.choices:
            words = ", ".join(self.choices)
            return f"a list of: {words}" if self.kind is ConfigType.LIST else f"one of: {words}"
        if self.kind is ConfigType.STRING:
            return "a text"
        number = "a number" if self.kind is ConfigType.DOUBLE else "a whole number"
        unit = f" of {self.unit}" if self.unit else ""
        if self.high is not None and self.low is not None:
            return f"{number}{unit} from {self.low:g} to {_digits(self.high)}"
        return f"{number}{unit}, at least {self.low:g}" if self.low is not None else number + unit


class WrongValue(ValueError):
    """The value does not fit its row. The text describes the expected value."""


class ConfigError(Exception):
    """The configuration is wrong, and nothing has been started. The message has all faults."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = faults
        super().__init__(
            "; ".join(f"{key}: found {found!r}, expected {want}" for key, found, want in faults)
        )


def setting(
    key: str,
    kind: ConfigType,
    default: Value,
    unit: str = "",
    *,
    why: str,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    synonyms: tuple[Synonym, ...] = (),
    is_dynamic: bool = False,
    pattern: str = "",
    form: str = "",
    length_max: int = VALUE_LENGTH_MAX,
) -> Any:
    """Return a dataclass field that is also a row of the table."""
    if kind is ConfigType.INT and high is None:
        high = INT_MAX
    if kind is ConfigType.LONG and high is None:
        high = LONG_MAX
    row = Setting(
        key, kind, default, unit, why, low, high, choices, synonyms, is_dynamic,
        pattern, form, length_max,
    )  # fmt: skip
    return field(default=default, metadata={"setting": row})


def rows(table: type) -> Iterator[tuple[str, Setting]]:
    """Yield the attribute and the row of every setting of a table, in the order of declaration."""
    for item in fields(table):
        if (row := item.metadata.get("setting")) is not None:
            yield item.name, row


def parse(row: Setting, given: object) -> Value:
    """Convert a value from a configuration file or a request to the type of its row. Raises
    WrongValue."""
    if isinstance(given, str) and len(given) > row.length_max:
        raise WrongValue(f"at most {row.length_max} characters")
    if row.kind is ConfigType.BOOLEAN:
        return _parse_boolean(row, given)
    if row.pattern:
        return _parse_form(row, given)
    if row.kind is ConfigType.LIST:
        return _parse_list(row, given)
    if row.kind is ConfigType.STRING:
        if not isinstance(given, str) or (row.choices and given not in row.choices):
            raise WrongValue(row.expected)
        return given
    return _parse_number(row, given)


def text(value: Value) -> str:
    """Return the value as Kafka spells it in requests."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def scaled(value: Value, synonym: Synonym) -> Value:
    """Convert a synonym's value to the unit of the setting. -1 stays -1, which means no limit."""
    if synonym.factor != 1 and isinstance(value, int) and value > 0:
        return value * synonym.factor
    return value


def nearest(key: str, known: Mapping[str, object]) -> str:
    """Return `; did you mean …?` if a known key resembles the unknown one, else an empty string."""
    # Import difflib here, because only a wrong configuration needs it.
    from difflib import get_close_matches

    close = get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _parse_boolean(row: Setting, given: object) -> bool:
    if isinstance(given, str) and given.strip().lower() in ("true", "false"):
        given = given.strip().lower() == "true"
    if not isinstance(given, bool) or (row.choices and text(given) not in row.choices):
        raise WrongValue(row.expected)
    return given


def _parse_list(row: Setting, given: object) -> str:
    items = given.split(",") if isinstance(given, str) else given
    if not isinstance(items, (list, tuple)) or not items:
        raise WrongValue(row.expected)
    words = [item.strip() if isinstance(item, str) else "" for item in items]
    if any(word not in row.choices for word in words) or len(set(words)) != len(words):
        raise WrongValue(row.expected)
    return ",".join(sorted(words))


def _parse_form(row: Setting, given: object) -> str:
    """Return a text that matches the row's pattern. The items of a list can have spaces around
    them. Raises WrongValue."""
    if not isinstance(given, str):
        raise WrongValue(row.expected)
    value = ",".join(part.strip() for part in given.split(","))
    if re.fullmatch(row.pattern, value, re.ASCII) is None:
        raise WrongValue(row.expected)
    return value


def _parse_number(row: Setting, given: object) -> int | float:
    if isinstance(given, bool) or not isinstance(given, (int, float, str)):
        raise WrongValue(row.expected)
    if isinstance(given, str):
        spelling = _DECIMAL if row.kind is ConfigType.DOUBLE else _WHOLE
        if spelling.fullmatch(given) is None:
            raise WrongValue(row.expected)
    try:
        value = float(given) if row.kind is ConfigType.DOUBLE else int(given)
    except (ValueError, OverflowError):
        raise WrongValue(row.expected) from None
    if isinstance(given, float) and value != given:
        raise WrongValue(row.expected)
    if (row.low is not None and value < row.low) or (row.high is not None and value > row.high):
        raise WrongValue(row.expected)
    # NaN compares false with everything, including the limits.
    if value != value or (row.choices and text(value) not in row.choices):
        raise WrongValue(row.expected)
    return value


def _digits(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"
