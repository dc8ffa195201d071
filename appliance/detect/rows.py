"""Splits lines into the texts of their columns, without a JVM.

This module is pure. The rows are only used to show them, and to choose types and metrics. The
stream parses the lines itself. A column is None if the line does not have it.
"""

import csv
import json
import re
from collections.abc import Callable, Mapping

from appliance.detect.seen import as_text
from stream.config.formats import parse_address
from stream.config.groups import python_pattern
from stream.config.headers import header_names
from stream.config.input_section import ParsedInputSection
from stream.config.line_patterns import COMBINED, COMMON, SYSLOG
from stream.config.recognition import plain_text

Row = dict[str, str | None]
Field = Callable[[str | int], str | None]

_PAIR = re.compile(r'([^\s="]+)=("(?:[^"\\]|\\.)*"|[^\s"]*)')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_NGINX_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\x([0-9A-Fa-f]{2})")
_W3C_FIELD = re.compile(r'"((?:[^"]|"")*)"|(\S+)')
_CEF_HEAD = re.compile(r"CEF:(\d+)" + r"\|((?:[^|\\]|\\.)*)" * 6 + r"(?:\|(.*))?", re.DOTALL)
_CEF_NAMES = ("version", "vendor", "product", "product_version", "event_class", "name", "severity")
_CEF_PAIR = re.compile(r"(\S+?)=(.*?)(?=\s+[^\s=|]+=|$)", re.DOTALL)
_REQUEST = re.compile(r"(?:(\S+) )?([^ ?]*)(?:\?(\S*))?(?: (HTTP/[0-9.]+))?\Z")
_ACCESS = ("remote_addr", "ident", "user", "time", "request", "status", "bytes")


def row_reader(section: ParsedInputSection) -> Callable[[str], Row | None]:
    """Return a function that reads a line of an input. The function returns None if the line does
    not have the format.
    """
    return _READERS[section.line_reader](section)


def json_of(line: str) -> dict[str, object] | None:
    """Return the object of a line of JSON; None for every other line."""
    text = _NGINX_ESCAPE.sub(r"\1\\u00\2", line) if "\\x" in line else line
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def pairs_of(line: str) -> dict[str, str]:
    """Return the pairs of a line of logfmt. If a key occurs twice, its first value is used."""
    found: dict[str, str] = {}
    for key, value in _PAIR.findall(line):
        quoted = value.startswith('"')
        found.setdefault(key, _ESCAPE.sub(r"\1", value[1:-1]) if quoted else value)
    return found


def fields_of(line: str, delimiter: str, quote: str | None = None) -> list[str]:
    """Return the fields of a line of a table; empty if a quote is not closed."""
    if quote == "none":
        return line.split(delimiter)
    try:
        reader = csv.reader(
            line.splitlines(keepends=True), delimiter=delimiter, quotechar=quote or '"', strict=True
        )
        return next(reader, [])
    except csv.Error:
        return []


def _declared(section: ParsedInputSection, field: Field) -> Row:
    """Return the time and the declared columns of a line. `field` returns the text at an
    address.
    """
    row: Row = {}
    if section.time is not None and section.time.column:
        for names in section.time.fields():
            steps = [parse_address(name, section.line_reader) for name in names]
            texts = [_at(field, one) for one in steps]
            if all(text for text in texts):
                row["time"] = " ".join(text or "" for text in texts)
                break
        else:
            row["time"] = None
    for column in section.declared():
        row[column.name] = _at(field, column.steps)
    return row


def _at(field: Field, steps: tuple[str | int, ...]) -> str | None:
    return field(steps[0]) if len(steps) == 1 else None


def _json(section: ParsedInputSection) -> Callable[[str], Row | None]:
    times = [] if section.time is None else section.time.fields()
    time_steps = [parse_address(name, "json") for names in times for name in names]
    columns = section.declared()

    def read(line: str) -> Row | None:
        value = json_of(plain_text(line))
        if value is None:
            return None
        row: Row = {}
        if times:
            found = (as_text(walk(value, steps)) for steps in time_steps)
            row["time"] = next((text for text in found if text), None)
        return row | {one.name: as_text(walk(value, one.steps)) for one in columns}

    return read


def walk(value: object, steps: tuple[str | int, ...]) -> object:
    """Return the part of a JSON value at an address; None if there is no such part."""
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _logfmt(section: ParsedInputSection) -> Callable[[str], Row | None]:
    def read(line: str) -> Row | None:
        pairs = pairs_of(plain_text(line))
        return _declared(section, lambda key: pairs.get(str(key))) if pairs else None

    return read


def _regex(section: ParsedInputSection) -> Callable[[str], Row | None]:
    pattern = re.compile(python_pattern(section.pattern or r"(?!)"), re.ASCII)

    def read(line: str) -> Row | None:
        match = pattern.search(plain_text(line))
        if match is None:
            return None
        groups = match.groupdict()
        return _declared(section, lambda name: groups.get(str(name)))

    return read


def _csv(section: ParsedInputSection) -> Callable[[str], Row | None]:
    headers = [header_names(header, section) for header in section.header or ()]

    def read(line: str) -> Row | None:
        fields = fields_of(plain_text(line), section.delimiter or ",", section.quote)
        names = next((names for names in headers if len(names) == len(fields)), [])
        if (headers and not names) or len(fields) < 2:
            return None

        def field(address: str | int) -> str | None:
            if isinstance(address, int):
                return fields[address - 1] if address <= len(fields) else None
            return fields[names.index(address)] if address in names else None

        return _declared(section, field)

    return read


def _w3c(section: ParsedInputSection) -> Callable[[str], Row | None]:
    headers = [header_names(header, section) for header in section.header or ()]

    def read(line: str) -> Row | None:
        if line.startswith("#"):
            return None
        values = [quoted or bare for quoted, bare in _W3C_FIELD.findall(plain_text(line))]
        for names in headers:
            if len(names) == len(values):
                return _of_named(section, dict(zip(names, values, strict=True)))
        return None

    return read


def _of_named(section: ParsedInputSection, named: Mapping[str, str]) -> Row:
    row = _declared(section, lambda name: named.get(str(name)))
    if section.time is None and named.get("date") and named.get("time"):
        return {"time": f"{named['date']} {named['time']}", **row}
    return row


def _access(section: ParsedInputSection) -> Callable[[str], Row | None]:
    is_combined = section.line_reader == "combined"
    pattern = re.compile(python_pattern(COMBINED if is_combined else COMMON), re.ASCII)

    def read(line: str) -> Row | None:
        match = pattern.search(plain_text(line))
        if match is None:
            return None
        row: Row = dict(zip(_ACCESS, match.groups(), strict=False))
        request = _REQUEST.match(row.pop("request") or "")
        parts = request.groups() if request is not None else (None,) * 4
        row |= dict(zip(("method", "path", "query", "protocol"), parts, strict=True))
        if is_combined:
            row |= {"referer": match[8], "user_agent": match[9]}
        return row

    return read


def _syslog(section: ParsedInputSection) -> Callable[[str], Row | None]:
    pattern = re.compile(python_pattern(SYSLOG), re.ASCII)

    def read(line: str) -> Row | None:
        match = pattern.search(plain_text(line))
        if match is None:
            return None
        group = (None, *match.groups())
        priority = group[1] or group[9]
        return {
            "time": group[11] or group[2] or group[12],
            "host": group[3] or group[13] or group[10],
            "program": group[4] or group[14] or group[16],
            "pid": group[5] or group[15] or group[17],
            "message": group[8] or group[18] or "",
            "facility": str(int(priority) // 8) if priority else None,
            "severity": str(int(priority) % 8) if priority else None,
            "message_id": group[6],
            "structured_data": group[7],
        }

    return read


def _cef(section: ParsedInputSection) -> Callable[[str], Row | None]:
    def read(line: str) -> Row | None:
        match = _CEF_HEAD.search(plain_text(line))
        if match is None:
            return None
        texts = [_ESCAPE.sub(r"\1", text) for text in match.groups()[:7]]
        more = dict(_CEF_PAIR.findall(match[8] or ""))
        head: Row = dict(zip(_CEF_NAMES, texts, strict=True))
        return {**head, **_declared(section, lambda key: more.get(str(key)))}

    return read


_READERS: Mapping[str, Callable[[ParsedInputSection], Callable[[str], Row | None]]] = {
    "combined": _access,
    "common": _access,
    "json": _json,
    "logfmt": _logfmt,
    "syslog": _syslog,
    "cef": _cef,
    "csv": _csv,
    "w3c": _w3c,
    "regex": _regex,
}
