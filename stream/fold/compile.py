"""Compiles all metrics to one SQL query, which computes what each line adds to each metric.

This module is pure and needs no JVM. `lines_sql` turns lines into columns (`parse/columns.py`), and
columns into *judged lines*. A judged line has the reason why the line is not counted, or NULL; its
time; and for every metric a *verdict* (does the line count?), a value and a key. `java_fold.py`
folds judged lines.

The query has no columns that no metric needs, because they would make it slower to plan. An
expression that raises on a line is NULL for that line (`try_expression.py` calls this an
*attempt*). Each attempt is in a branch of an IF. Spark evaluates a subexpression that two columns
share before both, which is outside of the attempts, but it never moves one out of a branch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest

from sinks.local_time import LocalZone
from sinks.unparsed import SAMPLE_BYTES_MAX
from stream.config.expression import (
    bare_column,
    quote_name,
    quote_text,
    spark_sql,
)
from stream.config.input_section import ParsedInputSection
from stream.config.metrics import Metric, resolve_metrics
from stream.config.settings import StreamSection
from stream.fold.column_names import HOST, column_names, uses_host, wanted_columns
from stream.parse.columns import ParsedInput, parse_input
from stream.parse.host import host_sql
from stream.parse.numbers import EXACT_DECIMAL, exact_decimal
from stream.parse.texts import ColumnSql
from stream.parse.times import TIME_REASON, plausible_time
from stream.parse.try_expression import attempt, attempt_of_user

LINES_VIEW = "millrace_lines"

# The verdicts of a metric on a line. The third verdict is NULL: the metric's filter excludes the
# line.
COUNTED = 1
FAULTY = -1

EXPRESSION_NULL = "expression_null:"
# The reason of headers and comments. They are not errors, so the sinks do not get them.
SKIPPED = "skipped"

# The columns of a judged line that do not depend on the metrics.
LINE_COLUMNS = ("topic", "partition", "offset", "file", "reason", "seconds", "sample")

_WHOLE_TYPES = ("int", "bigint")


class ValueKind(StrEnum):
    """The type of a metric's value: BIGINT, DECIMAL(38,12), or text for distinct values."""

    WHOLE = "whole"
    DECIMAL = "decimal"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class MetricColumns:
    """The names of the columns of a judged line for the metric `FoldPlan.metrics[number]`.

    The column `verdict` has COUNTED, FAULTY or NULL. `verdict` is None if every line that parses
    counts for this metric. `value` is None for a metric that only counts lines.
    """

    number: int
    topics: tuple[str, ...]
    verdict: str | None
    value: str | None
    kind: ValueKind | None
    keys: tuple[str, ...]
    slice_s: int
    windows_s: tuple[int, ...]
    measure: str
    zone: LocalZone | None = None


@dataclass(frozen=True, slots=True)
class MetricInput:
    """The SQL by which one metric reads a line of one input.

    `where` and `value` use the input's columns; they are None if the metric has no filter or value.
    If the value is a single column, `absent` is SQL for "the line has no such field", and such a
    line is not a fault. Otherwise `absent` is None, and every NULL value is a fault.
    """

    where: str | None
    value: str | None
    kind: ValueKind | None
    absent: str | None
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """The query of a configuration, and the meaning of its columns.

    `columns` are the columns of a judged line, in order. `inputs` and `entries` are the parts of
    the query, for `describe.py`.
    """

    lines_sql: str
    columns: tuple[str, ...]
    metrics: tuple[Metric, ...]
    readings: tuple[MetricColumns, ...]
    inputs: Mapping[str, ParsedInput]
    entries: Mapping[tuple[str, str], MetricInput]


def valid_text(sql: str) -> str:
    """Return SQL for a value as text. Invalid UTF-8 becomes U+FFFD in the same way as in Python.

    Java replaces invalid octets in a different way, so one text would have two different keys.
    """
    return f"make_valid_utf8(CAST(({sql}) AS STRING))"


class _Columns:
    """The columns of one step of the query. Equal expressions share one column."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def named(self, kind: str, sql: str) -> str:
        """Return the name of the column with an expression; add the column if there is none."""
        return self._names.setdefault(sql, f"{kind}{len(self._names)}")

    def items(self) -> dict[str, str]:
        """Return the expression of each column."""
        return {name: sql for sql, name in self._names.items()}


def compile_plan(section: StreamSection) -> FoldPlan:
    """Compile the query that judges lines for all metrics of a validated section."""
    metrics = resolve_metrics(section)
    inputs = {
        name: parse_input(name, given, wanted_columns(name, given, metrics))
        for name, given in section.from_.items()
    }
    entries = {
        (metric.name, name): _entry(metric, inputs[name], section.from_[name])
        for metric in metrics
        for name in metric.inputs
    }
    measured, judged = _Columns(), _Columns()
    readings = tuple(
        _reading(number, metric, inputs, entries, measured, judged)
        for number, metric in enumerate(metrics)
    )
    columns = (*LINE_COLUMNS, *judged.items())
    of_record = {HOST: valid_text(host_sql("headers"))} if uses_host(section, metrics) else {}
    lines_sql = "\n".join(_lines_query(inputs, of_record, measured, judged, readings))
    return FoldPlan(lines_sql, columns, metrics, readings, inputs, entries)


def _entry(metric: Metric, parsed: ParsedInput, given: ParsedInputSection) -> MetricInput:
    names = column_names(parsed.name, given)
    spelling = {column.lower(): name for column, name in names.items()}
    keys = tuple(quote_name(spelling[column.lower()]) for column in metric.key)
    where, value = metric.section.where, metric.section.value
    where = spark_sql(where, names).text if where is not None else None
    if value is None:
        return MetricInput(where, None, None, None, keys)
    own = spark_sql(value, names).text
    bare = bare_column(value, list(names))
    column = parsed.columns.get(bare) if bare is not None else None
    absent = None
    if bare is not None:
        # The line has the field if its text exists, even if the text is not a number.
        text = own if column is None or column.raw is None else column.raw
        absent = f"{text} IS NULL"
    declared = given.column_types()[bare] if bare is not None else None
    kind, sql = _value_sql(metric.definition.measure, own, declared, column)
    return MetricInput(where, sql, kind, absent, keys)


def _value_sql(
    measure: str, own: str, declared: str | None, column: ColumnSql | None
) -> tuple[ValueKind, str]:
    """Return the type of a metric's value, and SQL for the value, NULL if it cannot be measured.

    Sums are exact, so a number that DECIMAL(38,12) cannot hold is a fault and is never rounded. A
    double computed by an expression is inexact anyway: it is rounded to 12 places, but not to zero.
    """
    if measure == "unique":
        return ValueKind.TEXT, valid_text(own)
    if measure == "share":
        return ValueKind.WHOLE, f"CAST(CAST(({own}) AS INT) AS BIGINT)"
    if measure != "percentile" and declared in _WHOLE_TYPES:
        return ValueKind.WHOLE, f"CAST({own} AS BIGINT)"
    if declared == "double" and column is not None and column.raw is not None:
        # The text is exact, while the double only approximates it.
        return ValueKind.DECIMAL, f"IF({own} IS NULL, NULL, {exact_decimal(column.raw)})"
    rounded = f"try_cast(({own}) AS {EXACT_DECIMAL})"
    near = f"IF({rounded} = 0 AND ({own}) <> 0, NULL, {rounded})"
    exact = exact_decimal(f"CAST(({own}) AS STRING)")
    return ValueKind.DECIMAL, f"IF(typeof({own}) IN ('double', 'float'), {near}, {exact})"


def _reading(
    number: int,
    metric: Metric,
    inputs: Mapping[str, ParsedInput],
    entries: Mapping[tuple[str, str], MetricInput],
    measured: _Columns,
    judged: _Columns,
) -> MetricColumns:
    own = {name: entries[metric.name, name] for name in metric.inputs}
    kinds = dict.fromkeys(entry.kind for entry in own.values() if entry.kind is not None)
    kind = ValueKind.DECIMAL if len(kinds) > 1 else next(iter(kinds), None)
    verdicts: dict[str, str] = {}
    values: dict[str, str] = {}
    for name, entry in own.items():
        cases = []
        if entry.where is not None:
            where = _measure(inputs[name], entry.where, measured)
            cases += [f"WHEN {where} IS NULL THEN {FAULTY}", f"WHEN NOT {where} THEN NULL"]
        if entry.value is not None:
            value = values[name] = _measure(inputs[name], entry.value, measured)
            if entry.absent is not None:
                cases.append(f"WHEN {value} IS NULL AND {entry.absent} THEN NULL")
            cases.append(f"WHEN {value} IS NULL THEN {FAULTY}")
        verdicts[name] = f"CASE {' '.join(cases)} ELSE {COUNTED} END" if cases else str(COUNTED)
    verdict: str | None = None
    if set(verdicts.values()) != {str(COUNTED)}:
        # A line of another input has the verdict NULL, because it must not count as a fault.
        verdict = judged.named("verdict", f"CAST({_cases(verdicts)} AS TINYINT)")
    column: str | None = None
    if kind is not None:
        sql_type = {ValueKind.WHOLE: "BIGINT", ValueKind.TEXT: "STRING"}.get(kind, EXACT_DECIMAL)
        column = judged.named("value", f"CAST({_by_input(values)} AS {sql_type})")
    keys = tuple(
        judged.named("key", f"CAST({_by_input({n: e.keys[at] for n, e in own.items()})} AS STRING)")
        for at in range(len(metric.key))
    )
    return MetricColumns(
        number,
        tuple(inputs[name].topic for name in metric.inputs),
        verdict,
        column,
        kind,
        keys,
        metric.slice_s,
        metric.definition.windows_s,
        metric.definition.measure,
        metric.definition.zone,
    )


def _measure(parsed: ParsedInput, sql: str, measured: _Columns) -> str:
    """Add a filter or value of one input as a column, and return its name.

    As a column it is evaluated once per line, even if several metrics use it.
    """
    column = _of_input(parsed.name, attempt_of_user(sql))
    return quote_name(measured.named(f"{parsed.name}.measured", column))


def _lines_query(
    inputs: Mapping[str, ParsedInput],
    of_record: Mapping[str, str],
    measured: _Columns,
    judged: _Columns,
    readings: Sequence[MetricColumns],
) -> Iterator[str]:
    """Yield the parts of the query: steps from lines to judged lines, each on the previous step.

    `of_record` are columns that are made of the record and not of its line.

    Measure the generated code before you add work per line. Spark compiles all steps into one Java
    method, and the JVM interprets a method above 8,000 bytes of bytecode unless an option forbids
    that (`stream/spark/session`).
    """
    parsed = list(inputs.values())
    is_of = {f"{p.name}.is": f"topic = {quote_text(p.topic)}" for p in parsed}
    yield (
        "WITH lines AS (SELECT topic, partition, offset, timestamp AS arrival,"
        f" {valid_text('key')} AS file, value,"
        f" {valid_text('value')} AS line{_columns({**of_record, **is_of})} FROM {LINES_VIEW}),"
    )
    steps: dict[str, dict[str, str]] = {}
    for number, some in enumerate(zip_longest(*(p.steps for p in parsed), fillvalue={}), 1):
        steps[f"step{number}"] = {
            name: _within(p.name, sql)
            for p, step in zip(parsed, some, strict=True)
            for name, sql in step.items()
        }
    typed = {
        f"{p.name}:{name}": _within(p.name, column.value)
        for p in parsed
        for name, column in p.columns.items()
    }
    typed |= {f"{p.name}.time": _within(p.name, p.time) for p in parsed}
    why = {
        "reason": "CASE"
        + "".join(f" WHEN {quote_name(f'{p.name}.is')} THEN {_reason(p)}" for p in parsed)
        + " WHEN true THEN 'topic' END",
        "seconds": _by_input({p.name: f"unix_seconds({_time(p)})" for p in parsed}),
    }
    steps |= {"typed": typed, "measured": {**why, **measured.items()}, "judged": judged.items()}
    # A step has no columns if no metric needs any. Such a step is left out.
    steps = {step: columns for step, columns in steps.items() if columns}
    befores = ["lines", *steps]
    yield ",\n".join(
        f"{step} AS (SELECT *{_columns(columns)} FROM {before})"
        for before, (step, columns) in zip(befores, steps.items(), strict=False)
    )
    verdicts = dict.fromkeys(r.verdict for r in readings if r.verdict is not None)
    is_faulty = "".join(f" OR {verdict} <=> {FAULTY}" for verdict in verdicts)
    yield (
        f"SELECT {', '.join(LINE_COLUMNS[:-1])}, IF(reason IS NOT NULL{is_faulty},"
        f" coalesce(substring(value, 1, {SAMPLE_BYTES_MAX}), X''), NULL) AS {LINE_COLUMNS[-1]}"
        f"{''.join(f', {name}' for name in judged.items())} FROM {befores[-1]}"
    )


def _within(name: str, sql: str) -> str:
    """Return SQL for an expression over one input's columns.

    It is NULL for lines of other inputs, and if the expression raises.
    """
    return _of_input(name, attempt(sql))


def _of_input(name: str, sql: str) -> str:
    """Return an expression that is evaluated for lines of one input only; NULL for others.

    Every column of a line is an attempt inside this branch. Spark hoists a subexpression that two
    columns share out of both attempts, where an error would fail the whole batch. It never hoists
    one out of a conditional branch.
    """
    return f"IF({quote_name(f'{name}.is')}, {sql}, NULL)"


def _by_input(branches: Mapping[str, str]) -> str:
    """Return SQL that selects the expression of a line's input.

    Without CASE if all inputs have the same expression.
    """
    same = set(branches.values())
    return same.pop() if len(same) == 1 else _cases(branches)


def _cases(branches: Mapping[str, str]) -> str:
    """Return SQL that selects the expression of a line's input, NULL for lines of other inputs."""
    if not branches:
        return "NULL"
    cases = " ".join(f"WHEN {quote_name(f'{n}.is')} THEN {sql}" for n, sql in branches.items())
    return f"CASE {cases} END"


def _columns(columns: Mapping[str, str]) -> str:
    return "".join(f",\n  {sql} AS {quote_name(name)}" for name, sql in columns.items())


def _time(parsed: ParsedInput) -> str:
    return quote_name(f"{parsed.name}.time")


def _reason(parsed: ParsedInput) -> str:
    """Return SQL for why a line is not counted; NULL for a line that parses and has a time."""
    why = quote_text(parsed.reason)
    if parsed.fault is not None:
        why = f"concat({why}, coalesce(concat(', ', {attempt(parsed.fault)}), ''))"
    skipped = f" WHEN {parsed.skipped} THEN {quote_text(SKIPPED)}" if parsed.skipped else ""
    time_fault = f"coalesce({attempt(parsed.time_fault)}, {quote_text(TIME_REASON)})"
    return (
        f"CASE WHEN line IS NULL THEN 'null'{skipped} WHEN NOT coalesce({parsed.matches}, false)"
        f" THEN {why} WHEN {plausible_time(_time(parsed))} IS NULL THEN {time_fault} END"
    )
