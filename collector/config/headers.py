"""Limits of the headers that an input adds to records, and of the fields it adds to lines.

This module is pure. The configuration gives the values. `{host}` in a value stands for the host
name. All headers and fields together are much smaller than `limits.RECORD_ROOM_BYTES`, the space
that a record may take in addition to its line.
"""

import json
import math
import re
from collections.abc import Mapping

HEADERS_MAX = 16
NAME_BYTES_MAX = 100
VALUE_BYTES_MAX = 1_000
OWN_PREFIX = "millrace."
"""The prefix of the names of the collector's own headers."""

FIELDS_BYTES_MAX = 4_000
"""The most bytes of all fields of an input as JSON. JSON can write one byte as six characters."""

HOST = "{host}"
FieldValue = bool | int | float | str
_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise ValueError for headers that cannot be added to records, with what was expected."""
    _check(headers, "headers")
    for name in headers:
        if name.startswith(OWN_PREFIX):
            raise ValueError(
                f"found {name!r}, expected a name that does not begin with {OWN_PREFIX!r}: these"
                " are the collector's own"
            )


def check_fields(fields: Mapping[str, FieldValue]) -> None:
    """Raise ValueError for fields that cannot be added to lines."""
    _check(fields, "fields")
    size = 0
    for name, value in fields.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"found {value} for {name!r}, expected a finite number")
        size += len(json.dumps({name: value}))
    if size > FIELDS_BYTES_MAX:
        raise ValueError(
            f"found fields of {size} bytes as JSON, expected at most {FIELDS_BYTES_MAX}"
        )


def _check(values: Mapping[str, FieldValue], what: str) -> None:
    if len(values) > HEADERS_MAX:
        raise ValueError(f"found {len(values)} {what}, expected at most {HEADERS_MAX}")
    for name, value in values.items():
        if not 0 < len(_octets(name)) <= NAME_BYTES_MAX:
            raise ValueError(f"found {name!r}, expected a name of 1 to {NAME_BYTES_MAX} bytes")
        if not isinstance(value, str):
            continue
        if len(_octets(value)) > VALUE_BYTES_MAX:
            raise ValueError(
                f"found a value of {len(_octets(value))} bytes for {name!r}, expected at most"
                f" {VALUE_BYTES_MAX}"
            )
        unknown = [found for found in _PLACEHOLDER.findall(value) if found != HOST]
        if unknown:
            raise ValueError(f"found {unknown[0]} for {name!r}, expected {HOST} or no placeholder")


def on_host(value: FieldValue, host: str) -> FieldValue:
    """Return a value with the host name filled in."""
    return value.replace(HOST, host) if isinstance(value, str) else value


def filled_in(headers: Mapping[str, str], host: str) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers of records with the host name filled in."""
    return tuple(
        (_octets(name), _octets(value.replace(HOST, host))) for name, value in headers.items()
    )


def _octets(text: str) -> bytes:
    # JSON and YAML can contain a lone surrogate, but UTF-8 cannot, so it is written as an escape.
    return text.encode(errors="backslashreplace")
