"""Finds the columns of logs whose lines name their fields: JSON, logfmt, and tables with a header.

This module is pure. Each field that occurs becomes a column whose type fits all its values. The
field with the line's time is recognised by its name and its values.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from appliance.detect.moments import is_epoch, is_moment
from appliance.detect.seen import SeenColumn, as_text
from stream.config.formats import FIXED_COLUMNS, FORMAT_COLUMNS, parse_address
from stream.config.headers import column_name

COLUMNS_MAX = 30
_DEPTH_MAX = 5
_NAME_MAX = 60

# The usual names of fields with the time of a line, the most certain names first.
_NAMES_OF_TIMES = """
    @timestamp timestamp time ts eventtime event_time datetime date_time asctime log_time
    time_iso8601 time_local t.$date created_at created date at t when rt
"""
_TIME_NAMES = _NAMES_OF_TIMES.split()
_BARE_TYPES_REFUSED = ("date", "timestamp", "text")

Path = tuple[str, ...]


@dataclass(slots=True)
class FieldsSeen:
    """Every field of some lines by its path, in the order of their first appearance."""

    columns: dict[Path, SeenColumn] = field(default_factory=dict)
    lines: int = 0

    def add(self, fields: Iterable[tuple[Path, str | None]]) -> None:
        """Add the fields of one line."""
        self.lines += 1
        for path, text in fields:
            column = self.columns.get(path)
            if column is None:
                column = self.columns[path] = SeenColumn()
            column.add(text)


def leaves(value: Mapping[str, object], above: Path = ()) -> Iterator[tuple[Path, str | None]]:
    """Yield the fields of a JSON object with their paths. Arrays are left out."""
    for key, inner in value.items():
        if not key:
            continue
        path = (*above, key)
        if isinstance(inner, Mapping):
            if len(path) < _DEPTH_MAX:
                yield from leaves(inner, path)
        elif not isinstance(inner, list):
            yield path, as_text(inner)


def times_of(seen: FieldsSeen) -> list[Path]:
    """Return the fields that hold the time of a line, the most certain first.

    Return one field if every line has it. Otherwise return several fields, each of which occurs in
    some lines.
    """
    # In the configuration a plus sign joins two fields, so a name that contains a plus sign cannot
    # be used.
    columns = {path: one for path, one in seen.columns.items() if "+" not in "".join(path)}
    known = [path for path in columns if _rank(path) < len(_TIME_NAMES)]
    found: list[Path] = []
    for path in sorted(known, key=_rank):
        column = columns[path]
        if _is_time(column, numbers=True):
            if not found and column.present == seen.lines:
                return [path]
            found.append(path)
    for path, column in columns.items():
        if not found and column.present >= 0.9 * seen.lines and _is_time(column, numbers=False):
            found.append(path)
    return found


def _rank(path: Path) -> int:
    name = ".".join(path).lower()
    return _TIME_NAMES.index(name) if name in _TIME_NAMES else len(_TIME_NAMES)


def _is_time(column: SeenColumn, *, numbers: bool) -> bool:
    return bool(column.counts) and all(
        is_moment(text) or (numbers and is_epoch(text)) for text in column.counts
    )


def declarations(
    seen: FieldsSeen, reader: str, word: str, without: Sequence[Path] = ()
) -> tuple[dict[str, object], int]:
    """Return the `columns` of an input, and the number of fields that were left out.

    Fields are left out if there are too many. `word` is the reader's key for a field's address.
    """
    there = [
        (path, column)
        for path, column in seen.columns.items()
        if path not in without and column.present
    ]
    kept = sorted(there, key=lambda one: (-one[1].present, len(one[0])))[:COLUMNS_MAX]
    chosen = {path for path, _ in kept}
    columns: dict[str, object] = {}
    taken = {name.lower() for name in (*FIXED_COLUMNS, *FORMAT_COLUMNS[reader])}
    for path, column in there:
        if path not in chosen:
            continue
        name = _free_name(path, taken)
        if name is None or not _is_address(path, reader):
            continue
        taken.add(name)
        columns[name] = _declaration(name, address_of(path, reader), column.type, word)
    return columns, len(there) - len(columns)


def _free_name(path: Path, taken: set[str]) -> str | None:
    name = column_name(" ".join(path))[:_NAME_MAX]
    if not name:
        return None
    for candidate in (name, f"{name}_value", *(f"{name}_{number}" for number in range(2, 10))):
        if candidate not in taken:
            return candidate
    return None


def _declaration(name: str, address: str, column_type: str, word: str) -> object:
    if address != name:
        return {word: address, "type": column_type}
    return {"type": column_type} if column_type in _BARE_TYPES_REFUSED else column_type


def address_of(path: Path, reader: str) -> str:
    """Return a field's address in the form of the configuration file."""
    if reader != "json":
        return path[0]
    return ".".join(_step(name) for name in path)


def _is_address(path: Path, reader: str) -> bool:
    """Return whether the configuration file can name a field.

    Some names contain characters that an address cannot have.
    """
    try:
        parse_address(address_of(path, reader), reader)
    except ValueError:
        return False
    return True


def _step(name: str) -> str:
    if not name or any(letter in "`.[] \t\n\r" for letter in name):
        return "`" + name.replace("`", "``") + "`"
    return name


def is_header(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first line of a table is a header that names the fields of the other
    lines.

    It is a header if a column has a word in the first line and numbers or times below it, or if the
    line has at least three words and none of them occurs as a value of its column.
    """
    plain = [name.strip() for name in names]
    if len(plain) < 2 or len({name.lower() for name in plain}) != len(plain):
        return False
    for name in plain:
        words = name.split()
        if not column_name(name) or name[0].isdigit() or len(words) > 4 or len(name) > 40:
            return False
        if is_moment(name) or any(letter in "{}=<>;\"'\\" for letter in name):
            return False
    columns = [[row[at] for row in rows] for at in range(len(plain))]
    if any(_type_of(column) != "string" for column in columns):
        return True
    is_new = all(name not in column for name, column in zip(plain, columns, strict=True))
    return is_new and len(plain) >= 3 and len(rows) >= 3 and not _is_one_text(rows)


def _is_one_text(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether most fields begin with blanks. If they do, the rows are sentences with commas
    and not a table."""
    blanks = sum(field.startswith(" ") for row in rows for field in row[1:])
    fields = sum(len(row) - 1 for row in rows)
    return blanks * 2 > fields


def _type_of(texts: Sequence[str]) -> str:
    column = SeenColumn()
    for text in texts:
        column.add(text.strip())
    return column.type
