"""The built-in formats of lines: the columns of each, and how a user declares further columns.

This module is pure and needs no JVM. `parse/columns.py` turns these declarations into SQL.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

# Columns of every line, whatever its format. An input's own columns cannot have these names.
FIXED_COLUMNS = {"file": "string", "line": "string", "time": "timestamp"}
# The collector that sent the line. An input's own column with one of these names replaces it.
HOST_COLUMNS = {"host": "string", "collector_host": "string"}
COMMON_COLUMNS = {**FIXED_COLUMNS, **HOST_COLUMNS}

_ACCESS_COLUMNS = {
    "remote_addr": "string",
    "ident": "string",
    "user": "string",
    "method": "string",
    "path": "string",
    "query": "string",
    "protocol": "string",
    "status": "int",
    "bytes": "bigint",
}

FORMAT_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "combined": {**_ACCESS_COLUMNS, "referer": "string", "user_agent": "string"},
    "common": _ACCESS_COLUMNS,
    "syslog": {
        "host": "string",
        "program": "string",
        "pid": "int",
        "message": "string",
        "facility": "int",
        "severity": "int",
        "message_id": "string",
        "structured_data": "string",
    },
    "cef": {
        "version": "string",
        "vendor": "string",
        "product": "string",
        "product_version": "string",
        "event_class": "string",
        "name": "string",
        "severity": "string",
    },
    "json": {},
    "logfmt": {},
    "csv": {},
    "w3c": {},
    "regex": {},
    "raw": {},
}

# The key for a column's address, in each format whose columns a user can declare.
ADDRESSES = {
    "json": "path",
    "logfmt": "key",
    "csv": "position",
    "w3c": "field",
    "cef": "key",
    "regex": "group",
}

# A second key for an address: a csv field has a name, besides its position, if there is a header.
MORE_ADDRESSES = {"csv": "field"}

TYPES = ("string", "int", "bigint", "double", "boolean", "date", "timestamp")

_TYPE_SYNONYMS = {
    "text": "string",
    "integer": "int",
    "long": "bigint",
    "float": "double",
    "bool": "boolean",
}

_GROUP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,2})\s*(?:,\s*([0-9]{1,2})\s*)?\)\Z", re.IGNORECASE)
_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_PATH_STEP = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`.\[\]\s]+))((?:\[[0-9]{1,6}\])*)(\.|\Z)")


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared column: its name, its address in the line, and its SQL type.

    `steps` is the address: names and array positions for json; a single text for other formats.
    """

    name: str
    steps: tuple[str | int, ...]
    type: str


def parse_declaration(name: str, text: str, line_format: str) -> Declared:
    """Parse ``'upstream.time double'``: an address and a type, which is string by default.

    Raises ValueError with what was found and what was expected.
    """
    check_column_name(name, line_format)
    address, column_type = _split_type(text.strip(), f"'{ADDRESSES[line_format]} type'")
    return Declared(name, parse_address(address, line_format), column_type)


def check_column_name(name: str, line_format: str) -> None:
    """Refuse names that SQL cannot use without quotes, and those of the format's own columns."""
    if not _COLUMN_NAME.match(name):
        raise ValueError(
            f"found column name {name!r}, expected letters, digits and _, not a digit first"
        )
    taken = {*FIXED_COLUMNS, *FORMAT_COLUMNS[line_format]}
    if name.lower() in taken:
        raise ValueError(
            f"found {name!r}, expected another name: every line has a column {name.lower()} already"
        )


def parse_address(address: str, line_format: str) -> tuple[str | int, ...]:
    """Parse a column's address: the steps of a json path, or a single key, position or group.

    Raises ValueError with what was found and what was expected.
    """
    if line_format == "json":
        return _parse_path(address)
    if line_format == "csv":
        # The address is a position or a name. The caller checks a name against the header of the
        # input.
        return (int(address),) if re.fullmatch(r"[1-9][0-9]{0,3}", address) else (address,)
    if line_format == "regex":
        if not _GROUP_NAME.fullmatch(address):
            raise ValueError(
                f"found group {address!r}, expected the name of a group of the pattern"
            )
        return (address,)
    if not address or re.search(r'[\s="]', address):
        raise ValueError(f"found key {address!r}, expected a key without blanks, = and quotes")
    return (address,)


def _split_type(text: str, expected: str) -> tuple[str, str]:
    """Split `address type` into both parts. The type is `string` if there is only one word."""
    match = re.search(r"\s+(\S+|decimal\s*\([^()]*\))\s*\Z", text, re.IGNORECASE)
    if match is None or (match[1].endswith("`") and text.count("`") % 2 == 0 and "`" in match[1]):
        if not text:
            raise ValueError(f"found nothing, expected {expected}")
        return text, "string"
    return text[: match.start()].rstrip(), canonical_type(match[1])


def canonical_type(text: str) -> str:
    """Return the canonical name of a type; raises ValueError for any other text."""
    lowered = text.lower().replace(" ", "")
    lowered = _TYPE_SYNONYMS.get(lowered, lowered)
    if lowered in TYPES:
        return lowered
    decimal = _DECIMAL.match(lowered)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return f"decimal({precision},{scale})"
    near = difflib.get_close_matches(lowered, (*TYPES, *_TYPE_SYNONYMS), n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise ValueError(f"found type {text!r}, expected one of {', '.join(TYPES)}, decimal(p,s){hint}")


def _parse_path(address: str) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    position = 0
    while position < len(address) or not steps:
        match = _PATH_STEP.match(address, position)
        if match is None or (match[4] == "." and match.end() == len(address)):
            raise ValueError(
                f"found path {address!r}, expected names joined by dots, a name that holds dots or"
                " blanks in backticks, a place in an array as [0]"
            )
        steps.append(match[1].replace("``", "`") if match[1] is not None else match[2])
        steps.extend(int(place) for place in re.findall(r"[0-9]+", match[3]))
        position = match.end()
    return tuple(steps)
