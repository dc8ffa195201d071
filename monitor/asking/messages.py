"""The records of a topic that a user asks to see, and how they are shown.

This module is pure. A record is shown as text and never as markup. Characters that do not print are
shown as escapes, bytes that are not UTF-8 in hexadecimal, and all lengths have a limit. JSON gets
line breaks at its brackets. It is not parsed and written again, so every digit and repeated key
stays as it is.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from protocol.log import escape
from protocol.types import TopicPartition
from protocol.units import parse_moment_ms
from protocol.wire.record import Record

COUNTS = (10, 20, 50, 100)
PARTITIONS_MAX = 64
"""The most partitions that are read for one page. With more, the user must choose one."""

PREVIEW_CHARACTERS_MAX = 160
VALUE_BYTES_MAX = 16 << 10
"""The most bytes of a value that are shown.

Of a longer value only the size and beginning are shown.
"""

PAGE_BYTES_MAX = 512 << 10
"""The most bytes of all values of a page. After that only previews are shown."""

KEY_BYTES_MAX = 512
HEADERS_MAX = 20
HEX_BYTES_MAX = 64
CONTAINS_CHARACTERS_MAX = 200
OFFSET_MAX = (1 << 63) - 1
SEARCH_BACK_MAX = 10_000
"""The number of offsets before a partition's end that a search for the latest records searches."""

INDENT = "  "


class Begin(StrEnum):
    """The start of the records to show."""

    LATEST = "latest"
    EARLIEST = "earliest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The records that a user asks for. `at` is an offset or Unix milliseconds."""

    topic: str
    partition: int | None = None
    begin: Begin = Begin.LATEST
    at: int = 0
    count: int = COUNTS[1]
    contains: str = ""
    is_committed_only: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """The form's fields as the user typed them, so that the form can show them again."""

    partition: str = ""
    begin: str = Begin.LATEST
    at: str = ""
    count: str = str(COUNTS[1])
    contains: str = ""
    uncommitted: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The records that were read.

    `problems` says which data could not be read. `looked_at` is the number of records that were
    searched.
    """

    records: tuple[tuple[TopicPartition, Record], ...] = ()
    problems: tuple[str, ...] = ()
    looked_at: int = 0
    starts: Mapping[TopicPartition, int] | None = None
    ends: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record as the page shows it. `whole` is None if the preview shows the whole value."""

    partition: int
    offset: int
    at_ms: int
    key: str | None
    headers: tuple[tuple[str, str], ...]
    headers_left_out: int
    preview: str | None
    whole: str | None
    size_bytes: int
    note: str


def wanted_of(topic: str, asked: Asked, partitions: int, now_ms: int) -> Wanted:
    """Return what the form's fields ask of a topic with `partitions` partitions. Raise ValueError
    for a wrong field.
    """
    partition = None
    if asked.partition:
        partition = _number(asked.partition, "partition")
        if partition >= partitions:
            raise ValueError(f"partition: found {partition}, expected 0 to {partitions - 1}")
    elif partitions > PARTITIONS_MAX:
        raise ValueError(
            f"partition: found none, expected one of {partitions}: at most {PARTITIONS_MAX} are"
            " read together"
        )
    if asked.begin not in set(Begin):
        raise ValueError(f"from: found {asked.begin!r}, expected one of {', '.join(Begin)}")
    begin, at = Begin(asked.begin), 0
    if begin is Begin.OFFSET:
        at = _number(asked.at, "at")
        if partition is None:
            raise ValueError(
                "partition: found none, expected one, because an offset belongs to one partition"
            )
    elif begin is Begin.TIME:
        try:
            at = parse_moment_ms(asked.at.strip(), now_ms)
        except ValueError as error:
            raise ValueError(f"at: {error}") from error
    count = _number(asked.count, "n")
    if count not in COUNTS:
        raise ValueError(f"n: found {count}, expected one of {', '.join(map(str, COUNTS))}")
    if len(asked.contains) > CONTAINS_CHARACTERS_MAX:
        raise ValueError(
            f"q: found {len(asked.contains)} characters, expected at most {CONTAINS_CHARACTERS_MAX}"
        )
    return Wanted(
        topic, partition, begin, at, count, asked.contains, asked.uncommitted not in ("1", "on")
    )


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 19 or int(text) > OFFSET_MAX:
        raise ValueError(f"{name}: found {text[:40]!r}, expected a number from 0")
    return int(text)


def beginnings(
    wanted: Wanted,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    by_time: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the first offset to read in each partition; leave out partitions without records
    there.
    """
    found = {}
    for row, end in ends.items():
        start = starts.get(row, end)
        if wanted.begin is Begin.LATEST:
            # The matching records can lie further back than the wanted number of records, so search
            # more of them.
            offset = end - (SEARCH_BACK_MAX if wanted.contains else wanted.count)
        elif wanted.begin is Begin.EARLIEST:
            offset = start
        elif wanted.begin is Begin.OFFSET:
            offset = wanted.at
        else:
            offset = by_time.get(row, end)
        offset = max(start, offset)
        if offset < end:
            found[row] = offset
    return found


def holds(record: Record, contains: bytes) -> bool:
    """Return whether the key, the value or a header's value of a record contains some bytes."""
    if not contains:
        return True
    places = [record.key, record.value, *(value for _, value in record.headers)]
    return any(contains in place for place in places if place is not None)


def chosen(
    records: Iterable[tuple[TopicPartition, Record]], wanted: Wanted
) -> tuple[tuple[TopicPartition, Record], ...]:
    """Return the records to show: newest first if the user asked for the latest records, otherwise
    oldest first.
    """
    ordered = sorted(records, key=lambda one: (one[1].timestamp_ms, one[0], one[1].offset))
    if wanted.begin is Begin.LATEST:
        return tuple(reversed(ordered[-wanted.count :]))
    return tuple(ordered[: wanted.count])


def record_views(records: Sequence[tuple[TopicPartition, Record]]) -> list[RecordView]:
    """Return the records as the page shows them, up to the length limit of a page."""
    left, views = PAGE_BYTES_MAX, []
    for row, record in records:
        view = _view(row, record)
        if view.whole is not None:
            left -= len(view.whole.encode(errors="surrogatepass"))
            if left < 0:
                view = replace(view, whole=None, note=view.note or "cut: the page is full")
        views.append(view)
    return views


def _view(row: TopicPartition, record: Record) -> RecordView:
    preview = whole = None
    note = "null" if record.value is None else ""
    if record.value is not None:
        text, note = text_of(record.value, VALUE_BYTES_MAX)
        laid_out = None if note else laid_out_json(text)
        one_line = escape(" ".join(text.split()) if laid_out else text)
        preview = one_line[:PREVIEW_CHARACTERS_MAX]
        if laid_out is not None:
            whole, note = laid_out, "JSON"
        elif len(one_line) > PREVIEW_CHARACTERS_MAX or "\n" in text:
            whole = printable(text)
        if len(one_line) > PREVIEW_CHARACTERS_MAX:
            preview += "…"
    headers = tuple(
        (escape(name)[:KEY_BYTES_MAX], "null" if value is None else _short(value))
        for name, value in record.headers[:HEADERS_MAX]
    )
    return RecordView(
        row.partition,
        record.offset,
        record.timestamp_ms,
        None if record.key is None else _short(record.key),
        headers,
        max(0, len(record.headers) - HEADERS_MAX),
        preview,
        whole,
        len(record.value or b""),
        note,
    )


def _short(data: bytes) -> str:
    text, note = text_of(data, KEY_BYTES_MAX)
    return escape(text) + (f" ({note})" if note else "")


def text_of(data: bytes, limit: int) -> tuple[str, str]:
    """Return bytes as text, and a note about what is left out or not UTF-8."""
    shown = data[:limit]
    try:
        text = shown.decode()
    except UnicodeDecodeError as error:
        # The length limit can have cut a character in two, so an error in the last bytes is not
        # wrong UTF-8.
        if len(data) <= limit or error.start < limit - 3:
            return data[:HEX_BYTES_MAX].hex(" "), f"no UTF-8, {len(data):,} bytes"
        text = shown[: error.start].decode()
    return text, "" if len(data) <= limit else f"cut: the first {limit:,} of {len(data):,} bytes"


def printable(text: str) -> str:
    """Return text with every character that does not print, except line ends and tabs, as an
    escape.
    """
    lines = []
    for line in text.split("\n"):
        lines.append("\t".join(escape(piece) for piece in line.split("\t")))
    return "\n".join(lines)


def laid_out_json(text: str) -> str | None:
    """Return a JSON object or array with a line for each member; None if the text is not one of
    these.
    """
    stripped = text.strip()
    if not stripped.startswith(("{", "[")):
        return None
    try:
        json.loads(stripped)
    except (ValueError, RecursionError):
        return None
    return printable(_laid_out(stripped))


def _laid_out(text: str) -> str:
    """Break lines behind the commas and brackets outside of strings; `text` must be JSON."""
    out: list[str] = []
    depth, at, length = 0, 0, len(text)
    while at < length:
        character = text[at]
        if character == '"':
            end = at + 1
            while text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            out.append(text[at : end + 1])
            at = end
        elif character in "{[":
            rest = text[at + 1 :].lstrip()
            if rest[0] in "}]":
                out.append(character + rest[0])
                at = length - len(rest)
            else:
                depth += 1
                out.append(f"{character}\n{INDENT * depth}")
        elif character in "}]":
            depth -= 1
            out.append(f"\n{INDENT * depth}{character}")
        elif character == ",":
            out.append(f",\n{INDENT * depth}")
        elif character == ":":
            out.append(": ")
        elif not character.isspace():
            out.append(character)
        at += 1
    return "".join(out)


def record_rows(records: Sequence[tuple[TopicPartition, Record]]) -> list[dict[str, object]]:
    """Return the records for the API: as text if they are UTF-8, else as base64."""
    found = []
    for row, record in records:
        value = record.value[:VALUE_BYTES_MAX] if record.value is not None else None
        is_cut = record.value is not None and len(record.value) > VALUE_BYTES_MAX
        found.append(
            {
                "partition": row.partition,
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms if record.timestamp_ms >= 0 else None,
                **_encoded("key", record.key),
                "headers": [
                    {"name": name, **_encoded("value", data)} for name, data in record.headers
                ],
                **_encoded("value", value, is_cut=is_cut),
                "value_size_bytes": len(record.value) if record.value is not None else None,
                "is_cut": is_cut,
            }
        )
    return found


def _encoded(name: str, data: bytes | None, *, is_cut: bool = False) -> dict[str, object]:
    if data is None:
        return {name: None, f"{name}_encoding": None}
    try:
        text, encoding = data.decode(), "utf-8"
    except UnicodeDecodeError as error:
        if is_cut and error.start >= len(data) - 3:
            text, encoding = data[: error.start].decode(), "utf-8"
        else:
            text, encoding = base64.b64encode(data).decode(), "base64"
    return {name: text, f"{name}_encoding": encoding}
