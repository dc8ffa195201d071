"""Headers of tables that an input declares: one text each, as it appears in the file.

This module is pure and needs no JVM.
"""

import csv
from collections.abc import Mapping, Sequence
from typing import Protocol

from stream.config.windows import fault


class DelimiterKeys(Protocol):
    """The keys of an input that define how fields are separated."""

    @property
    def line_reader(self) -> str: ...
    @property
    def delimiter(self) -> str | None: ...
    @property
    def quote(self) -> str | None: ...


class HeaderKeys:
    """The keys of an input that pydantic has validated so far."""

    def __init__(self, data: Mapping[str, object]) -> None:
        self.delimiter, self.quote = (
            None if data.get(key) is None else str(data[key]) for key in ("delimiter", "quote")
        )
        self.line_reader = str(data.get("reader") or data.get("format"))
        header = data.get("header")
        self.header: tuple[str, ...] = header if isinstance(header, tuple) else ()


def check_headers(headers: Sequence[str], section: DelimiterKeys) -> None:
    """Refuse a header that names a field twice, and two csv headers with equally many fields.

    The header of a csv line is the one with as many names as the line has fields. So two headers of
    the same length are ambiguous.
    """
    sizes: list[int] = []
    for text in headers:
        names = header_names(text, section)
        if len(set(names)) != len(names) or not names or not all(names):
            raise fault(f"header {text!r}", "names that differ from each other")
        if section.line_reader == "csv" and len(names) in sizes:
            raise fault(f"two headers of {len(names)} names", "headers of different lengths")
        sizes.append(len(names))


def header_fields(given: HeaderKeys) -> list[str]:
    """Return the names in all headers of an input, each once."""
    names = (name for text in given.header for name in header_names(text, given))
    return list(dict.fromkeys(names))


def field_fault(name: str, given: HeaderKeys) -> ValueError | None:
    """Return the fault of a name that must be in a header; None if it is there."""
    fields = header_fields(given)
    if not fields:
        return fault(f"position {name!r}", "a number from 1 on, or a name of the key header")
    if name not in fields:
        return fault(f"field {name!r}", f"one of the header's: {', '.join(fields)}")
    return None


def header_names(header: str, section: DelimiterKeys) -> list[str]:
    """Return the names of a header, in the order of the fields."""
    if section.line_reader == "w3c":
        return header.removeprefix("#Fields:").split()
    delimiter = section.delimiter or ","
    if section.quote == "none":
        return [name.strip() for name in header.split(delimiter)]
    quote = section.quote or '"'
    rows = csv.reader([header], delimiter=delimiter, quotechar=quote, skipinitialspace=True)
    return [name.strip() for name in next(rows, [])]


def column_name(field: str) -> str:
    """Return a field's name as a column: `cs(User-Agent)` becomes `cs_user_agent`."""
    letters = [c.lower() if c.isascii() and c.isalnum() else " " for c in field]
    name = "_".join("".join(letters).split())
    return f"_{name}" if name[:1].isdigit() else name
