"""Recognises tables: rows whose fields are separated by a delimiter, with or without a header.

This module is pure.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from appliance.detect.columns import FieldsSeen, declarations, is_header, times_of
from appliance.detect.rows import fields_of
from appliance.detect.seen import SeenColumn
from stream.config.recognition import plain_text

DELIMITERS = ("\t", ",", ";", "|")
SHARE_MIN = 0.9
_ROWS_MIN_WITHOUT_HEADER = 5
_FIELDS_MIN_WITHOUT_HEADER = 3


@dataclass(frozen=True, slots=True)
class Table:
    """The configuration keys of an input that reads a table, without its topic."""

    keys: dict[str, object]
    left_out: int = 0


def table_of(lines: Sequence[str]) -> Table | None:
    """Return the table that some lines form; None if they are not a table."""
    texts = [text for line in lines if (text := plain_text(line)).strip()]
    while texts and texts[0].startswith("#") and not texts[0].startswith("#Fields"):
        texts = texts[1:]
    if len(texts) < 2:
        return None
    for delimiter in DELIMITERS:
        if delimiter in texts[0] and (found := _of_delimiter(texts, delimiter)) is not None:
            return found
    return None


def _of_delimiter(texts: Sequence[str], delimiter: str) -> Table | None:
    names = [name.strip() for name in fields_of(texts[0], delimiter)]
    rows = [row for text in texts[1:] if (row := fields_of(text, delimiter))]
    sizes = Counter(len(row) for row in rows)
    if not sizes:
        return None
    size, count = sizes.most_common(1)[0]
    if size < 2 or count < SHARE_MIN * (len(texts) - 1):
        return None
    full = [row for row in rows if len(row) == size]
    if len(names) == size and is_header(names, full):
        return _with_header(texts[0], names, full, delimiter)
    return _without_header([row for row in (names, *full) if len(row) == size], delimiter)


def _format_of(delimiter: str) -> dict[str, object]:
    if delimiter == "\t":
        return {"format": "tsv"}
    return {"format": "csv"} if delimiter == "," else {"format": "csv", "delimiter": delimiter}


def _with_header(
    header: str, names: Sequence[str], rows: Sequence[Sequence[str]], delimiter: str
) -> Table:
    seen = FieldsSeen()
    for row in rows:
        seen.add(((name,), text.strip()) for name, text in zip(names, row, strict=True))
    times = times_of(seen)
    columns, left_out = declarations(seen, "csv", "field", times)
    # A text column needs no declaration, because the header names it and text is the default type.
    typed = {name: said for name, said in columns.items() if not _is_text(said)}
    keys = {**_format_of(delimiter), "header": header.strip("\r\n")}
    if times:
        keys["time"] = times[0][0] if len(times) == 1 else [path[0] for path in times]
    return Table({**keys, "columns": typed} if typed else keys, left_out)


def _is_text(said: object) -> bool:
    return said == "string" or (isinstance(said, dict) and said.get("type") == "string")


def _without_header(rows: Sequence[Sequence[str]], delimiter: str) -> Table | None:
    """Return a table without a header row; None if no column contains times, because such a table
    is probably not a log."""
    if len(rows) < _ROWS_MIN_WITHOUT_HEADER or len(rows[0]) < _FIELDS_MIN_WITHOUT_HEADER:
        return None
    types = []
    for at in range(len(rows[0])):
        column = SeenColumn()
        for row in rows:
            column.add(row[at].strip())
        types.append(column.type)
    if "timestamp" not in types:
        return None
    time = types.index("timestamp")
    columns = {
        f"field{at + 1}": {"position": at + 1, "type": one}
        for at, one in enumerate(types)
        if at != time
    }
    return Table({**_format_of(delimiter), "time": str(time + 1), "columns": columns})
