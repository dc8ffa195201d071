"""Column declarations of users: `level: string`, or `ms: {path: timing.total, type: double}`.

This module is pure. A *declaration* gives a column its type and its *address*: the json path, key,
position, field or group where a line has the column's text. Each fault is reported at the key of
its own column, so the user sees all faults together. The older form, one text such as
`'timing.total double'`, is still accepted.
"""

import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from stream.config.formats import (
    ADDRESSES,
    MORE_ADDRESSES,
    TYPES,
    Declared,
    canonical_type,
    check_column_name,
    parse_address,
    parse_declaration,
)

# The words for a column's address in the formats with declarations.
_WORDS = ("path", "key", "position", "field", "group")

# Types whose names are also names of fields in many logs. A single word such as `date` could mean
# either, so it is refused.
_ALSO_FIELDS = ("date", "timestamp", "text")


class ColumnSection(BaseModel):
    """One declared column: its type and its address.

    Each format has its own key for the address (`path`, `key`, …), so at most one of these keys is
    set.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = Field(
        default=None,
        description="json: the path of the value. A name with dots or blanks is in backticks, a"
        " place in an array is `[0]`. Case counts. A path goes on through a text that is itself"
        " JSON",
        examples=["timing.total", "peers[0].server"],
    )
    key: str | None = Field(
        default=None,
        description="logfmt and cef: the key before the `=`",
        examples=["request-id"],
    )
    position: int | None = Field(
        default=None,
        description="csv: the number of the field, counted from 1",
        examples=[3],
        json_schema_extra={"minimum": 1},
    )
    field: str | None = Field(
        default=None,
        description="w3c, and csv with `header`: the name in the header",
        examples=["cs(User-Agent)"],
    )
    group: str | None = Field(
        default=None,
        description="regex: the group `(?<ms>…)` of `pattern`. Groups that no column names are"
        " columns of text",
        examples=["ms"],
    )
    type: str = Field(
        default="string",
        description="`string`, `int`, `bigint`, `double`, `decimal(p,s)`, `boolean`, `date` or"
        " `timestamp`",
        examples=["double"],
        json_schema_extra={"anyOf": [{"enum": list(TYPES)}, {"type": "string"}]},
    )

    @property
    def address(self) -> str | None:
        """The address, under whichever key it was given; None if the declaration has no address."""
        position = None if self.position is None else str(self.position)
        return self.path or self.key or position or self.field or self.group


@dataclass(slots=True)
class _Declaring:
    """The input whose columns are being validated: its format, and its groups or fields.

    `known` is None if the format does not define which addresses exist, as in json. `seen` has the
    names of the columns validated so far, in lower case.
    """

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
    """Validate columns inside this context as the columns of one input.

    `known` are the groups of the input's pattern, or the fields of its header. None: any address.
    """
    token = _declaring.set(_Declaring(line_format, known))
    try:
        yield
    finally:
        _declaring.reset(token)


def named(columns: object) -> object:
    """Return columns paired with their names, because a validator gets only the values."""
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
    """Return the type if the text is only a type, else None."""
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
    """Validate one column of the input that is being declared."""
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
    """Return the fault for a group or field that the input does not have."""
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
    """Return a declaration as its text, or as a ColumnSection if it is a mapping."""
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
"""A column as declared in the file."""
