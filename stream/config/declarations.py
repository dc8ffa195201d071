"""How a user declares a column: `level: string`, or `ms: {path: timing.total, type: double}`.

Ground of `stream`. Pure. Every fault stands at the key of its own column, so that all of them are
told at once. The older form in one text, `'timing.total double'`, means what it always did.
"""

import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from stream.config.formats import (
    ADDRESSES,
    MORE_ADDRESSES,
    Declared,
    canonical_type,
    check_column_name,
    parse_address,
    parse_declaration,
)

# What a column's address is called in each format that takes declarations.
_WORDS = ("path", "key", "position", "field", "group")

# Types whose names are fields of many logs, too: as one bare word they could be read in two ways.
_ALSO_FIELDS = ("date", "timestamp", "text")


class ColumnSection(BaseModel):
    """One declared column: its address, by the word of the input's format, and its type."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = None
    key: str | None = None
    position: int | None = None
    field: str | None = None
    group: str | None = None
    type: str = "string"

    @property
    def address(self) -> str | None:
        """What stands behind the word of its format."""
        position = None if self.position is None else str(self.position)
        return self.path or self.key or position or self.field or self.group


@dataclass(slots=True)
class _Declaring:
    """The input whose columns are being read: its format, and the groups or fields it has."""

    line_format: str
    known: Sequence[str] | None
    seen: set[str] = dataclasses.field(default_factory=set)


_declaring: ContextVar[_Declaring | None] = ContextVar("declaring", default=None)


@dataclass(frozen=True, slots=True)
class _Named:
    name: str
    given: object


@contextmanager
def declaring(line_format: str, known: Sequence[str] | None) -> Iterator[None]:
    """Let columns be checked as those of one input; `known` are its groups or fields."""
    token = _declaring.set(_Declaring(line_format, known))
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
    step = declared.steps[0]
    if declaring.known is not None and isinstance(step, str) and step not in declaring.known:
        raise _unknown_address(declaring, declared)
    return value


def _unknown_address(declaring: _Declaring, declared: Declared) -> ValueError:
    """The fault of a group or a field that an input does not have."""
    step = declared.steps[0]
    known = ", ".join(declaring.known or ())
    if declaring.line_format == "regex":
        return ValueError(f"found group {step!r}, expected one of the pattern's: {known}")
    if known:
        return ValueError(f"found field {step!r}, expected one of the header's: {known}")
    found = "no position" if step == declared.name else f"position {step!r}"
    return ValueError(
        f"found {found}, expected {{position: N, type: {declared.type}}}: the number of the field"
        " in the line, counted from 1. With the key header a field has a name"
    )


def _shape(given: object, line_format: str | None) -> str | ColumnSection:
    """A text, or a mapping with the words that its format knows."""
    if isinstance(given, str | ColumnSection):
        return given
    word = ADDRESSES.get(line_format or "", "path")
    words = (word, MORE_ADDRESSES.get(line_format or "", word), "type")
    if not isinstance(given, Mapping):
        shown = "nothing" if given is None else repr(given)
        raise ValueError(
            f"found {shown}, expected a type such as string, or {{{word}: …, type: …}}"
        )
    values: dict[str, Any] = {}
    for key, value in given.items():
        if value is None and key in _WORDS:
            continue
        if key not in words:
            near = difflib.get_close_matches(str(key), words, n=1)
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
