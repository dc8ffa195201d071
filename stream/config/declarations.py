"""How a user declares a column: `level: string`, or `ms: {path: timing.total, type: double}`.

Ground of `stream`. Pure. Every fault stands at the key of its own column, so that all of them are
told at once. The older form in one text, `'timing.total double'`, means what it always did.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from stream.config.formats import (
    ADDRESSES,
    Declared,
    canonical_type,
    check_column_name,
    parse_address,
    parse_declaration,
)

# What a column's address is called in each format that takes declarations.
_WORDS = ("path", "key", "position", "group")

# Types whose names are fields of many logs, too: as one bare word they could be read in two ways.
_ALSO_FIELDS = ("date", "timestamp", "text")


class ColumnSection(BaseModel):
    """One declared column: its address, by the word of the input's format, and its type."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = None
    key: str | None = None
    position: int | None = None
    group: str | None = None
    type: str = "string"

    @property
    def address(self) -> str | None:
        """What stands behind the word of its format."""
        position = None if self.position is None else str(self.position)
        return self.path or self.key or position or self.group


@dataclass(slots=True)
class _Declaring:
    """The input whose columns are being read: its format, and a pattern's groups."""

    line_format: str
    groups: Sequence[str] | None
    seen: set[str] = field(default_factory=set)


_declaring: ContextVar[_Declaring | None] = ContextVar("declaring", default=None)


@dataclass(frozen=True, slots=True)
class _Named:
    name: str
    given: object


@contextmanager
def declaring(line_format: str, groups: Sequence[str] | None) -> Iterator[None]:
    """Let columns be checked as those of one input."""
    token = _declaring.set(_Declaring(line_format, groups))
    try:
        yield
    finally:
        _declaring.reset(token)


def named(columns: object) -> object:
    """Return columns as their own check takes them, each with its name."""
    if not isinstance(columns, Mapping):
        return columns
    return {name: _Named(str(name), given) for name, given in columns.items()}


def declared_column(name: str, given: "str | ColumnSection", line_format: str) -> Declared:
    """Read a declaration. Raises ValueError with what was found and what was expected."""
    check_column_name(name, line_format)
    if isinstance(given, ColumnSection):
        column_type = _type(given.type)
        address = given.address
    elif (bare := _bare_type(given)) is None:
        return parse_declaration(name, given, line_format)
    elif given.strip().lower() in _ALSO_FIELDS:
        word, text = ADDRESSES[line_format], given.strip()
        raise ValueError(
            f"found the bare word {text}, expected {{type: {text}}} for the type, or"
            f" {{{word}: {text}, type: string}} for the {word} of that name"
        )
    else:
        column_type, address = bare, None
    if address is None and line_format == "csv":
        raise ValueError(
            f"found no position, expected {{position: N, type: {column_type}}}: the how manieth"
            " field of the line it is, counted from 1"
        )
    steps = (name,) if address is None else parse_address(address, line_format)
    return Declared(name, steps, column_type)


def _bare_type(text: str) -> str | None:
    """The type of a text that is a type and nothing else."""
    try:
        return canonical_type(text.strip())
    except ValueError:
        return None


def _type(text: str) -> str:
    try:
        return canonical_type(text)
    except ValueError as error:
        raise ValueError(f"type: {error}") from None


def _read(given: object) -> object:
    """Check one column, of the input that is being declared."""
    if not isinstance(given, _Named):
        return given
    declaring = _declaring.get()
    value = _shape(given.given, None if declaring is None else declaring.line_format)
    if declaring is None:
        return value
    if given.name.lower() in declaring.seen:
        raise ValueError(
            f"found column {given.name!r} twice, expected each name once, whatever its case"
        )
    declaring.seen.add(given.name.lower())
    declared = declared_column(given.name, value, declaring.line_format)
    if declaring.groups is not None and declared.steps[0] not in declaring.groups:
        known = ", ".join(declaring.groups)
        raise ValueError(
            f"found group {declared.steps[0]!r}, expected one of the pattern's: {known}"
        )
    return value


def _shape(given: object, line_format: str | None) -> str | ColumnSection:
    """A text, or a mapping with the words that its format knows."""
    if isinstance(given, str | ColumnSection):
        return given
    word = ADDRESSES.get(line_format or "", "path")
    if not isinstance(given, Mapping):
        shown = "nothing" if given is None else repr(given)
        raise ValueError(
            f"found {shown}, expected a type such as string, or {{{word}: …, type: …}}"
        )
    values: dict[str, Any] = {}
    for key, value in given.items():
        if value is None and key in _WORDS:
            continue
        if key not in (word, "type"):
            near = difflib.get_close_matches(str(key), (word, "type"), n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ValueError(f"found the key {key!r}, expected {word} and type{hint}")
        kind: type = int if key == "position" else str
        if not isinstance(value, kind) or isinstance(value, bool):
            wanted = "a number from 1 on" if kind is int else "text"
            raise ValueError(f"{key}: found {value!r}, expected {wanted}")
        values[key] = value
    return ColumnSection(**values)


Declaration = Annotated[str | ColumnSection, BeforeValidator(_read)]
"""A column as the file declares it."""
