"""Inputs and metrics as the configuration file says them.

Ground of the room; touches nothing but the values it is given, and starts no JVM. Every fault
names what was found and what was expected, at the key where it stands. Values stay as the user
wrote them; `metrics.py` reads them into what the rest of the room works with.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from protocol.units import parse_duration_ms, parse_size_bytes
from sinks.local_time import DAY_S
from stream.config import expression, formats
from stream.config.declarations import Declaration, declared_column, declaring, named
from stream.config.functions import words
from stream.config.times import Time, TimeSection, listed
from stream.config.windows import (
    ALL_WINDOW,
    KEEP_MYSQL,
    KEEP_REDIS,
    Keep,
    check_windows,
    fault,
    over,
    window_s,
)
from stream.config.zones import check_zone

KEY_COLUMNS_MAX = 3
TOP_MAX = 1_000
METRICS_MAX = 500

# Names of the sinks' tables, columns and keys; a metric's view and keys stand beside them.
RESERVED_NAMES = words(
    """
    archived batch batch_id count day definition_hash end_offset epoch file file_hash guard hll id
    k1 k2 k3 k_hash keep_terms kll ledger line max meta metric metric_ranges metric_topics metrics
    min n_keys name offset part quantiles query_id reason recounts schema_version seq since
    sink_guard size size_s start_at sum topic touched unparsed unparsed_lines updates value
    window_cells window_keys window_sizes windows windows_before windows_copied windows_next
    """
)

_METRIC_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")

# Which keys of an input belong to which formats; all others have them all.
_FORMAT_KEYS = {
    "columns": ("json", "logfmt", "csv", "regex"),
    "time": ("json", "logfmt", "csv", "regex", "combined", "common", "syslog"),
    "pattern": ("regex",),
    "delimiter": ("csv",),
    "quote": ("csv",),
}


def _duration(value: str) -> str:
    parse_duration_ms(value)
    return value


def _size(value: str) -> str:
    parse_size_bytes(value)
    return value


DurationText = Annotated[str, AfterValidator(_duration)]
SizeText = Annotated[str, AfterValidator(_size)]
Names = Annotated[tuple[str, ...], BeforeValidator(listed)]


class Section(BaseModel):
    """A part of the configuration: unknown keys are faults, values never change."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, serialize_by_alias=True, validate_by_name=True
    )


class KeepSection(Section):
    """How long each sink keeps a window after its end."""

    redis: Keep | None = None
    mysql: Keep | None = None


class InputSection(Section):
    """One parsed input: the lines of a topic in one format."""

    topic: str
    format: Literal["combined", "common", "json", "logfmt", "syslog", "csv", "regex", "raw"]
    tz: str = "UTC"
    delimiter: str | None = None
    quote: str | None = None
    pattern: str | None = Field(default=None, validate_default=True)
    columns: dict[str, Declaration] | None = None
    time: Time | None = None

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

    @field_validator("columns", "time", "pattern", "delimiter", "quote")
    @classmethod
    def _check_belongs(cls, value: object, info: ValidationInfo) -> object:
        line_format = info.data.get("format")
        allowed = _FORMAT_KEYS[str(info.field_name)]
        if value is not None and line_format is not None and line_format not in allowed:
            raise fault(
                f"{info.field_name} with format {line_format}",
                f"it only with {', '.join(allowed)}",
            )
        return value

    @field_validator("delimiter", "quote")
    @classmethod
    def _check_single(cls, value: str | None) -> str | None:
        if value is not None and (len(value) != 1 or value in "\n\r\\"):
            raise fault(repr(value), "one character")
        return value

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("format") == "regex":
            raise fault("format regex without pattern", "pattern: with groups such as (?<name>…)")
        if value is not None:
            misspelt = formats.misspelt_group(value)
            if misspelt is not None:
                raise fault(*misspelt)
            names = formats.group_names(value)
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
        line_format, pattern = info.data.get("format"), info.data.get("pattern")
        if line_format not in formats.ADDRESSES:
            return handler(value)
        groups = formats.group_names(pattern) if isinstance(pattern, str) else None
        with declaring(line_format, groups if line_format == "regex" else None):
            return handler(named(value))

    @field_validator("time")
    @classmethod
    def _check_time(cls, value: TimeSection | None, info: ValidationInfo) -> TimeSection | None:
        line_format = info.data.get("format")
        if value is None or line_format is None:
            return value
        if line_format not in formats.ADDRESSES:
            if value.column:
                allowed = ", ".join(formats.ADDRESSES)
                raise fault(f"a time column with format {line_format}", f"it only with {allowed}")
        elif not value.column:
            raise fault("no column", "column: the field that holds the time")
        for name in (name for field in value.fields() for name in field):
            if line_format in formats.ADDRESSES:
                cls._check_group(formats.parse_address(name, line_format)[0], info)
        return value

    @classmethod
    def _check_group(cls, name: str | int, info: ValidationInfo) -> None:
        pattern = info.data.get("pattern")
        if info.data.get("format") == "regex" and isinstance(pattern, str):
            groups = formats.group_names(pattern)
            if name not in groups:
                raise fault(f"group {name!r}", f"one of the pattern's: {', '.join(groups)}")

    def time_names(self) -> list[str]:
        """The addresses of all fields that may hold the time, each once."""
        fields = () if self.time is None else self.time.fields()
        return list(dict.fromkeys(name for field in fields for name in field))

    def column_types(self) -> dict[str, str]:
        """Every column an expression over this input may name, with its SQL type."""
        columns = {**formats.COMMON_COLUMNS, **formats.FORMAT_COLUMNS[self.format]}
        for declared in self.declared():
            columns[declared.name] = declared.type
        return columns

    def declared(self) -> list[formats.Declared]:
        """The declared columns, and for a regex the groups that are not declared, as text."""
        given = [
            declared_column(name, given, self.format)
            for name, given in (self.columns or {}).items()
        ]
        if self.format != "regex" or self.pattern is None:
            return given
        named = {column.steps[0] for column in given} | set(self.time_names())
        names = {column.name.lower() for column in given} | {*formats.COMMON_COLUMNS}
        return given + [
            formats.Declared(group, (group,), "string")
            for group in formats.group_names(self.pattern)
            if group not in named and group.lower() not in names
        ]


_Inputs = Mapping[str, InputSection | None]
_inputs: ContextVar[_Inputs | None] = ContextVar("inputs", default=None)


def check_against(inputs: _Inputs) -> None:
    """Let the metrics' own validators see the inputs; None stands for an input with faults."""
    _inputs.set(inputs)


@contextmanager
def checked_against(inputs: _Inputs | None) -> Iterator[None]:
    """As `check_against`, until the end of the context."""
    token = _inputs.set(inputs)
    try:
        yield
    finally:
        _inputs.reset(token)


class MetricSection(Section):
    """One metric: which lines, grouped by what, measured how, over which windows."""

    name: str
    from_: Names = Field(alias="from", min_length=1)
    where: str | None = None
    key: Names = ()
    measure: Literal["count", "sum", "min", "max", "mean", "share", "unique", "percentile"]
    value: str | None = Field(default=None, validate_default=True)
    windows: Names | None = None
    tz: str | None = None
    keep: KeepSection | None = None
    top: int | None = Field(default=None, ge=1, le=TOP_MAX)
    max_keys: int | None = Field(default=None, ge=1, le=10_000_000)

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not _METRIC_NAME.match(value):
            raise fault(repr(value), "1 to 48 of a-z, 0-9 and _, beginning with a letter")
        if value in RESERVED_NAMES:
            raise fault(repr(value), "another name: a table, column or key is called so")
        return value

    @field_validator("from_")
    @classmethod
    def _check_from(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        inputs = _inputs.get()
        for index, name in enumerate(value):
            if inputs is not None and name not in inputs:
                raise fault(repr(name), f"an input of stream.from: {', '.join(inputs) or 'none'}")
            if name in value[:index]:
                raise fault(f"{name!r} twice", "each input once")
        return value

    @field_validator("key")
    @classmethod
    def _check_key(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if len(value) > KEY_COLUMNS_MAX:
            raise fault(f"{len(value)} columns", f"at most {KEY_COLUMNS_MAX}")
        for index, column in enumerate(value):
            for name, columns in _columns_of(info):
                if column.lower() not in columns:
                    raise fault(
                        f"unknown column {column!r}",
                        f"one of input {name}'s: {', '.join(columns.values())}",
                    )
            if column.lower() in {other.lower() for other in value[:index]}:
                raise fault(f"{column!r} twice", "each column once")
        return value

    @field_validator("where", "value")
    @classmethod
    def _check_expression(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return value
        sections = _columns_of(info)
        for name, columns in sections:
            problem = expression.unknown_columns(value, list(columns.values()))
            if problem is not None:
                inside = f" of input {name}" if len(sections) > 1 else ""
                raise fault(problem.found + inside, problem.expected)
        return value

    @field_validator("value")
    @classmethod
    def _check_value(cls, value: str | None, info: ValidationInfo) -> str | None:
        measure = info.data.get("measure")
        if measure == "count" and value is not None:
            raise fault("a value with measure count", "no value: lines are counted")
        if measure not in (None, "count") and value is None:
            raise fault(f"measure {measure} without value", "value: a column or SQL expression")
        return value

    @field_validator("windows")
    @classmethod
    def _check_windows(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return value if value is None else check_windows(value)

    @field_validator("tz")
    @classmethod
    def _check_tz(cls, value: str | None, info: ValidationInfo) -> str | None:
        for text in (info.data.get("windows") or ()) if value is not None else ():
            size_s = window_s(text)
            if size_s and DAY_S % size_s:
                raise fault(f"a window of {text} with tz", "windows that divide a day, such as 6h")
        return value if value is None else check_zone(value)

    @field_validator("top")
    @classmethod
    def _check_top(cls, value: int | None, info: ValidationInfo) -> int | None:
        measure, key = info.data.get("measure"), info.data.get("key")
        if value is not None and measure not in (None, "count"):
            raise fault(
                f"top with measure {measure}", "it only with count, whose values never fall"
            )
        if value is not None and key == ():
            raise fault("top without key", "key: the columns that are ranked")
        return value


def _columns_of(info: ValidationInfo) -> list[tuple[str, dict[str, str]]]:
    """Of each known input of the metric under check: its name, its columns by lower case."""
    inputs, names = _inputs.get() or {}, info.data.get("from_", ())
    return [
        (name, {column.lower(): column for column in given.column_types()})
        for name in names
        if (given := inputs.get(name)) is not None
    ]


class DefaultsSection(Section):
    """What a metric has that says nothing itself."""

    windows: Names = ("1m", "1h", ALL_WINDOW)
    tz: str | None = None
    keep: KeepSection = Field(default=KeepSection(), validate_default=True)
    max_keys: int | None = Field(default=None, ge=1, le=10_000_000)

    @field_validator("keep")
    @classmethod
    def _fill(cls, value: KeepSection) -> KeepSection:
        """What holds, so that `config show` shows it: the presets under what is said."""
        return KeepSection(redis=over(KEEP_REDIS, value.redis), mysql=over(KEEP_MYSQL, value.mysql))

    @field_validator("tz")
    @classmethod
    def _check_tz(cls, value: str | None) -> str | None:
        return value if value is None else check_zone(value)

    @field_validator("windows")
    @classmethod
    def _check(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return check_windows(value)
