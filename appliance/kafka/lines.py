"""Splits lines of text into headers, key and value of a record.

This module is pure. The rules and the error messages are those of Kafka's console producer.
"""

from dataclasses import dataclass

Headers = tuple[tuple[str, bytes | None], ...]


class LineFault(ValueError):
    """Raised for a line that does not have the expected format."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The format of a line: `headers⇥key⇥value`. Each part can be left out."""

    parse_key: bool = False
    key_separator: str = "\t"
    parse_headers: bool = False
    headers_delimiter: str = "\t"
    headers_separator: str = ","
    headers_key_separator: str = ":"
    null_marker: str | None = None
    ignore_error: bool = False

    def __post_init__(self) -> None:
        separators = {
            "key.separator": self.key_separator,
            "headers.delimiter": self.headers_delimiter,
            "headers.separator": self.headers_separator,
            "headers.key.separator": self.headers_key_separator,
        }
        for name, value in separators.items():
            if not value:
                raise ValueError(f"{name} may not be empty")
            if value == self.null_marker:
                raise ValueError(f"null.marker and {name} may not be equal")
        names = list(separators)
        for place, name in enumerate(names[1:], start=1):
            for other in names[1:place]:
                if separators[name] == separators[other]:
                    raise ValueError(f"{other} and {name} may not be equal")


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """One record to send."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def parse_line(line: bytes, number: int, form: LineFormat) -> ParsedLine:
    """Split one line without its line end. Lines are numbered from 1. Raises LineFault."""
    rest = line
    headers: bytes | None = None
    key: bytes | None = None
    if form.parse_headers:
        headers, rest = _cut(rest, form.headers_delimiter, "headers delimiter", number, form, line)
    if form.parse_key:
        key, rest = _cut(rest, form.key_separator, "key separator", number, form, line)
    return ParsedLine(
        _or_null(key, form), _or_null(rest, form), _headers(_or_null(headers, form), number, form)
    )


def _cut(
    rest: bytes, separator: str, what: str, number: int, form: LineFormat, line: bytes
) -> tuple[bytes | None, bytes]:
    head, found, tail = rest.partition(separator.encode())
    if found:
        return head, tail
    if form.ignore_error:
        return None, rest
    shown = line.decode(errors="replace")
    raise LineFault(f"No {what} found on line number {number}: '{shown}'")


def _or_null(part: bytes | None, form: LineFormat) -> bytes | None:
    if part is not None and form.null_marker is not None and part == form.null_marker.encode():
        return None
    return part


def _headers(text: bytes | None, number: int, form: LineFormat) -> Headers:
    if not text:
        return ()
    found: list[tuple[str, bytes | None]] = []
    for pair in text.split(form.headers_separator.encode()):
        name, separator, value = pair.partition(form.headers_key_separator.encode())
        if not separator:
            if not form.ignore_error:
                shown = pair.decode(errors="replace")
                raise LineFault(
                    f"No header key separator found in pair '{shown}' on line number {number}"
                )
            found.append((pair.decode(errors="replace"), None))
            continue
        if form.null_marker is not None and name == form.null_marker.encode():
            raise LineFault(
                f"Header keys should not be equal to the null marker '{form.null_marker}' as they"
                " can't be null"
            )
        found.append((name.decode(errors="replace"), _or_null(value, form)))
    return tuple(found)
