"""One parsed input of the configuration file.

The module reads only the values that it gets, the files of shipped formats and the time zone
database. Every fault has its key, and says what was found and what was expected.
"""

import difflib
import re
from collections.abc import Iterator
from typing import Any

from pydantic import (
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from stream.config import formats, groups
from stream.config.base import NAME_PATTERN, Names, Section
from stream.config.declarations import Declaration, declared_column, declaring, named
from stream.config.format_files import completed_input, format_names, shipped_names
from stream.config.headers import (
    HeaderKeys,
    check_headers,
    column_name,
    field_fault,
    header_fields,
    header_names,
)
from stream.config.times import Time, TimeSection
from stream.config.windows import fault
from stream.config.zones import check_zone

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")

# The formats with which each key is allowed. A key that is not listed is allowed with all formats.
_FORMAT_KEYS = {
    "columns": tuple(formats.ADDRESSES),
    "time": (*formats.ADDRESSES, "combined", "common", "syslog"),
    "pattern": ("regex",),
    "delimiter": ("csv",),
    "quote": ("csv",),
    "escape": ("csv",),
    "comment": ("csv",),
    "header": ("csv", "w3c"),
}

_CSV_KEYS = ("delimiter", "quote", "escape", "comment", "header")


def _name_formats(schema: dict[str, Any]) -> None:
    """Add the names of the formats to the JSON Schema of the key `format`."""
    schema["anyOf"] = [
        {"enum": [*formats.FORMAT_COLUMNS, *shipped_names()]},
        {"pattern": NAME_PATTERN},
    ]


class ParsedInputSection(Section):
    """One parsed input: the lines of a topic in one format.

    `reader` splits the lines; None if it has the same name as the format.
    """

    topic: str = Field(
        description="the topic whose lines are read",
        examples=["logs.access"],
        json_schema_extra={"pattern": "^[A-Za-z0-9._-]{1,249}$"},
    )
    reader: str | None = Field(
        default=None,
        description="the built-in format that splits the lines, if the format's name does not say"
        " it",
        examples=["csv"],
        json_schema_extra={"enum": [*formats.FORMAT_COLUMNS, None]},
    )
    format: str = Field(
        description="the format of the lines, by its name: see [formats.md](formats.md)",
        examples=["combined"],
        json_schema_extra=_name_formats,
    )
    tz: str = Field(
        default="UTC",
        description="the zone of times without a zone: a name, or an offset such as `+02:00`",
        examples=["Europe/Berlin"],
    )
    delimiter: str | None = Field(
        default=None,
        description="csv: the character between two fields. null: a comma",
        examples=[";"],
    )
    quote: str | None = Field(
        default=None,
        description='csv: the character around a field. null: `"`; `none` switches quotes off',
        examples=["'"],
    )
    escape: str | None = Field(
        default=None,
        description="csv: the character before a quote that is part of a quoted field's text. null:"
        " such a quote is doubled; where that does not explain the line, a backslash before it is"
        " tried. With `quote: none` it also escapes the delimiter",
        examples=["\\"],
    )
    comment: str | None = Field(
        default=None,
        description="csv: lines that begin with this text are dropped",
        examples=["#"],
    )
    header: Names | None = Field(
        default=None,
        validate_default=True,
        description="csv, w3c: the header as it stands in the file, or a list where files differ"
        " (of csv: in their number of fields). Its names are columns in lower case with `_`, and"
        " can be used in `columns` and `time`",
        examples=["id,when,who,note"],
    )
    pattern: str | None = Field(
        default=None,
        validate_default=True,
        description="regex: a regular expression of Java's with named groups; `(?P<name>…)` and"
        " names with `_` work too",
        examples=[r"^(?<level>\w+) (?<ms>\d+)$"],
    )
    columns: dict[str, Declaration] | None = Field(
        default=None,
        description="further columns of the formats json, logfmt, csv, w3c, cef and regex: see"
        " [columns](#columns)",
        examples=[{"level": "string", "ms": {"path": "timing.total", "type": "double"}}],
    )
    time: Time | None = Field(
        default=None,
        description="which field holds the time, and how it is spelled: see"
        " [when a line was](#when-a-line-was). w3c takes `date` and `time` without it. null: each"
        " line counts at its arrival",
        examples=["ts", {"column": "ts", "layout": "%d/%m/%Y %H:%M:%S", "fallback": "arrival"}],
    )

    _completed = model_validator(mode="before")(completed_input)

    @field_validator("topic")
    @classmethod
    def _check_topic(cls, value: str) -> str:
        if not _TOPIC_NAME.match(value) or value in (".", ".."):
            raise fault(repr(value), "a topic name: letters, digits, '.', '_', '-'")
        return value

    @field_validator("tz")
    @classmethod
    def _check_tz(cls, value: str) -> str:
        return check_zone(value)

    @field_validator("reader", "format")
    @classmethod
    def _check_format(cls, value: str | None, info: ValidationInfo) -> str | None:
        is_named = value is None or info.data.get("reader") is not None
        if not is_named and value not in formats.FORMAT_COLUMNS:
            names = {**formats.FORMAT_COLUMNS, **dict.fromkeys(format_names())}
            close = difflib.get_close_matches(str(value), names, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise fault(repr(value), f"one of {', '.join(names)}{hint}")
        return value

    @field_validator("columns", "time", "pattern", *_CSV_KEYS)
    @classmethod
    def _check_belongs(cls, value: object, info: ValidationInfo) -> object:
        line_format = _reader_of(info)
        allowed = _FORMAT_KEYS[str(info.field_name)]
        if value is not None and line_format is not None and line_format not in allowed:
            raise fault(
                f"{info.field_name} with format {line_format}",
                f"{info.field_name} only with {', '.join(allowed)}",
            )
        return value

    @field_validator("delimiter", "quote", "escape")
    @classmethod
    def _check_single(cls, value: str | None, info: ValidationInfo) -> str | None:
        key = info.field_name
        if value is None or (key == "quote" and value == "none"):
            return value
        if len(value) != 1 or not value.isascii() or value in "\n\r":
            named = " of ASCII, or none" if key == "quote" else " of ASCII"
            raise fault(repr(value), f"one character{named}")
        if value == "\\" and key != "escape":
            raise fault(repr(value), "another character: a backslash can only be the escape")
        return value

    @field_validator("header")
    @classmethod
    def _check_header(
        cls, value: tuple[str, ...] | None, info: ValidationInfo
    ) -> tuple[str, ...] | None:
        reader = _reader_of(info)
        if value is None and reader == "w3c":
            raise fault("format w3c without header", "header: the names after #Fields:")
        check_headers(value or (), HeaderKeys(info.data))
        return value

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and _reader_of(info) == "regex":
            raise fault("format regex without pattern", "pattern: with groups such as (?<name>…)")
        if value is not None:
            try:
                names = groups.group_names(value)
            except groups.PatternFault as error:
                raise fault(error.found, error.expected) from error
            if not names:
                raise fault("a pattern without named groups", "groups such as (?<name>…)")
            for name in names:
                if name != "time":
                    formats.check_column_name(name, "regex")
        return value

    @field_validator("columns", mode="wrap")
    @classmethod
    def _check_columns(
        cls, value: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> object:
        line_format, pattern = str(_reader_of(info)), info.data.get("pattern")
        if line_format not in formats.ADDRESSES:
            return handler(value)
        known: list[str] | None = None
        if line_format == "regex" and isinstance(pattern, str):
            known = groups.group_names(pattern)
        elif line_format in ("csv", "w3c"):
            known = header_fields(HeaderKeys(info.data))
        with declaring(line_format, known):
            return handler(named(value))

    @field_validator("time")
    @classmethod
    def _check_time(cls, value: TimeSection | None, info: ValidationInfo) -> TimeSection | None:
        line_format = _reader_of(info)
        if value is None or line_format is None:
            return value
        if line_format not in formats.ADDRESSES:
            if value.column:
                allowed = ", ".join(formats.ADDRESSES)
                raise fault(
                    f"a time column with format {line_format}", f"a time column only with {allowed}"
                )
        elif not value.column:
            raise fault("no column", "column: the field that holds the time")
        for name in (name for field in value.fields() for name in field):
            if line_format in formats.ADDRESSES:
                cls._check_group(formats.parse_address(name, line_format)[0], info)
        return value

    @classmethod
    def _check_group(cls, name: str | int, info: ValidationInfo) -> None:
        """Refuse an address of the time that the pattern's groups or the header's fields lack."""
        reader, pattern = _reader_of(info), info.data.get("pattern")
        if reader == "regex" and isinstance(pattern, str):
            known = groups.group_names(pattern)
            if name not in known:
                raise fault(f"group {name!r}", f"one of the pattern's: {', '.join(known)}")
        if reader in ("csv", "w3c") and isinstance(name, str):
            problem = field_fault(name, HeaderKeys(info.data))
            if problem is not None:
                raise problem

    def time_names(self) -> list[str]:
        """Return the addresses of all fields that can hold the time, each once."""
        fields = () if self.time is None else self.time.fields()
        return list(dict.fromkeys(name for field in fields for name in field))

    def column_types(self) -> dict[str, str]:
        """Return all columns that an expression over this input can use, with their SQL types."""
        own = self.own_columns()
        names = {column.lower() for column in own}
        common = formats.COMMON_COLUMNS.items()
        return {**{column: kind for column, kind in common if column not in names}, **own}

    def own_columns(self) -> dict[str, str]:
        """Return the columns of the format and the declared columns, with their SQL types."""
        own = dict(formats.FORMAT_COLUMNS[self.line_reader])
        for declared in self.declared():
            own[declared.name] = declared.type
        return own

    @property
    def line_reader(self) -> str:
        """The built-in format that splits the lines: `reader`, or else `format` itself."""
        return self.reader or self.format

    def declared(self) -> list[formats.Declared]:
        """Return the declared columns, then each undeclared group or field as a text column."""
        given = [
            declared_column(name, given, self.line_reader)
            for name, given in (self.columns or {}).items()
        ]
        named = {column.steps[0] for column in given} | set(self.time_names())
        names = {column.name.lower() for column in given} | {*formats.FIXED_COLUMNS}
        undeclared = []
        for field, name in self._fields():
            if field not in named and name.lower() not in names:
                names.add(name.lower())
                undeclared.append(formats.Declared(name, (field,), "string"))
        return given + undeclared

    def _fields(self) -> Iterator[tuple[str, str]]:
        """Yield each group of the pattern, or field of the headers, with the name of its column."""
        if self.line_reader == "regex" and self.pattern is not None:
            yield from ((group, group) for group in groups.group_names(self.pattern))
        for header in self.header or ():
            for field in header_names(header, self):
                name = column_name(field)
                if name:
                    yield field, name


def _reader_of(info: ValidationInfo) -> object:
    """Return the built-in format that splits the lines; None if the key `format` has a fault."""
    return info.data.get("reader") or info.data.get("format")
