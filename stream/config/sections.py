"""Inputs and metrics of the configuration file.

The module uses only the values that it gets, and starts no JVM. Every fault has its key, and says
what was found and what was expected. Values stay as the user wrote them; `metrics.py` converts them
for the rest of `stream`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from sinks.local_time import DAY_S
from stream.config import expression
from stream.config.base import NAME, NAME_PATTERN, Names, Section
from stream.config.functions import words
from stream.config.input_section import ParsedInputSection
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

# Names of the sinks' tables, columns and keys. A metric cannot have such a name, because its view
# in MySQL and its keys in Redis have the metric's name.
RESERVED_NAMES = words(
    """
    archived batch batch_id count day definition_hash end_offset epoch file file_hash guard hll id
    k1 k2 k3 k_hash keep_terms kll ledger line max meta metric metric_ranges metric_topics metrics
    min n_keys name offset part quantiles query_id reason recounts schema_version seq since
    sink_guard size size_s start_at sum topic touched unparsed unparsed_lines updates value
    window_cells window_keys window_sizes windows
    """
)


class KeepSection(Section):
    """The time for which each sink keeps a window after its end."""

    redis: Keep | None = Field(
        default=None,
        description="how long Redis keeps a window after its end: one time for all sizes, or one"
        " for each size",
        examples=[{"10s": "1h", "1m": "1d", "1h": "30d"}],
    )
    mysql: Keep | None = Field(
        default=None,
        description="how long MySQL keeps a window after its end; `forever` deletes none",
        examples=[{"1m": "30d", "5m": "forever"}, "forever"],
    )


_Inputs = Mapping[str, ParsedInputSection | None]
_inputs: ContextVar[_Inputs | None] = ContextVar("inputs", default=None)
_names: ContextVar[set[str] | None] = ContextVar("names", default=None)


def check_against(inputs: _Inputs) -> None:
    """Set the inputs against which metrics are validated; None is an input that has faults."""
    _inputs.set(inputs)


@contextmanager
def checked_against(inputs: _Inputs | None) -> Iterator[None]:
    """Validate metrics inside this context against these inputs and against each other's names.

    With None the names of inputs are not checked.
    """
    token, names = _inputs.set(inputs), _names.set(set())
    try:
        yield
    finally:
        _inputs.reset(token)
        _names.reset(names)


class MetricSection(Section):
    """One metric: which lines, grouped by what, measured how, over which windows."""

    name: str = Field(
        description="the metric's name: 1 to 48 of a-z, 0-9 and _, a letter first. The view in"
        " MySQL and the keys in Redis have this name",
        examples=["errors_by_path"],
        json_schema_extra={"pattern": NAME_PATTERN},
    )
    from_: Names = Field(
        alias="from",
        min_length=1,
        description="the input whose lines are counted, or a list of inputs",
        examples=["access", ["access", "json"]],
        json_schema_extra={"minItems": 1},
    )
    where: str | None = Field(
        default=None,
        description="an SQL expression that is true or false; a line counts if it is true. null:"
        " every line counts",
        examples=["status >= 500"],
    )
    key: Names = Field(
        default=(),
        description="the column whose values are counted apart, or a list of up to three."
        " Without it there is one count for all lines",
        examples=["path", ["method", "status"]],
    )
    measure: Literal["count", "sum", "min", "max", "mean", "share", "unique", "percentile"] = Field(
        description="what is computed, see [measures](#measures)",
        examples=["count"],
    )
    value: str | None = Field(
        default=None,
        validate_default=True,
        description="a column or an SQL expression: what is measured. Every measure but `count`"
        " needs it, and `count` has none",
        examples=["bytes", "round(bytes / 1024, 1)"],
    )
    windows: Names | None = Field(
        default=None,
        description="the sizes of the windows: multiples of 10s up to 1d, and `all`, which has the"
        " totals. null: those of `stream.defaults`",
        examples=[["10s", "1m", "all"]],
    )
    tz: str | None = Field(
        default=None,
        description="the zone whose clock begins the windows, see"
        " [whose day a day is](#whose-day-a-day-is). null: that of `stream.defaults`",
        examples=["Europe/Berlin"],
    )
    keep: KeepSection | None = Field(
        default=None,
        description="how long windows are kept, see [below](#how-long-windows-are-kept). null: as"
        " `stream.defaults` says",
        examples=[{"redis": "7d", "mysql": "forever"}],
    )
    top: int | None = Field(
        default=None,
        ge=1,
        le=TOP_MAX,
        description="keeps a ranking of so many keys beside each window in Redis. Only with"
        " measure `count` and a key",
        examples=[10],
    )
    max_keys: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="the most keys of a window; the lines of further keys count under `(other)`,"
        " so totals stay exact. null: 10,000, and 100,000 for `all`",
        examples=[1000],
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not NAME.match(value):
            raise fault(repr(value), "1 to 48 of a-z, 0-9 and _, beginning with a letter")
        if value in RESERVED_NAMES:
            raise fault(repr(value), "another name: a table, column or key has this name")
        names = _names.get()
        if names is not None:
            if value in names:
                raise fault(f"metric {value!r} twice", "each name once")
            names.add(value)
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
                f"top with measure {measure}", "top only with count, whose values never fall"
            )
        if value is not None and key == ():
            raise fault("top without key", "key: the columns that are ranked")
        return value


def _columns_of(info: ValidationInfo) -> list[tuple[str, dict[str, str]]]:
    """Return name and columns of each valid input of the metric that is being validated.

    The columns are by their names in lower case.
    """
    inputs, names = _inputs.get() or {}, info.data.get("from_", ())
    return [
        (name, {column.lower(): column for column in given.column_types()})
        for name in names
        if (given := inputs.get(name)) is not None
    ]


class DefaultsSection(Section):
    """The defaults for metrics."""

    windows: Names = Field(
        default=("1m", "1h", ALL_WINDOW),
        description="the windows of metrics without this key",
        examples=[["1m", "1d", "all"]],
    )
    tz: str | None = Field(
        default=None,
        description="the zone of metrics without this key. null: the `tz` that all inputs of a"
        " metric share, else UTC",
        examples=["Europe/Berlin"],
    )
    keep: KeepSection = Field(
        default=KeepSection(),
        validate_default=True,
        description="how long windows are kept of metrics without this key",
        examples=[{"redis": {"1m": "1d"}, "mysql": "forever"}],
        json_schema_extra={"default": {"redis": {**KEEP_REDIS}, "mysql": {**KEEP_MYSQL}}},
    )
    max_keys: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="the most keys of a window, for metrics without this key. null: 10,000, and"
        " 100,000 for `all`",
        examples=[50000],
    )

    @field_validator("keep")
    @classmethod
    def _fill(cls, value: KeepSection) -> KeepSection:
        """Return the values in effect, for `config show`: the presets, overridden by the file."""
        return KeepSection(redis=over(KEEP_REDIS, value.redis), mysql=over(KEEP_MYSQL, value.mysql))

    @field_validator("tz")
    @classmethod
    def _check_tz(cls, value: str | None) -> str | None:
        return value if value is None else check_zone(value)

    @field_validator("windows")
    @classmethod
    def _check(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return check_windows(value)
