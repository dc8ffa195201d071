"""From metrics to SQL: what each line gives every metric, in one query that Spark analyses once.

Floor: pure, no JVM. `lines_sql` turns lines into columns (`parse/columns.py`) and columns into
*judged lines*: why a line is not counted, when it was, and for every metric its verdict, its value
and its key. `java_fold.py` folds judged lines.

A query is optimised again for every batch, so what is not needed is left out here already. Whatever
an expression raises on a line is NULL for that line (`try_expression.py`), and stands in a branch
of its own: Spark evaluates an expression that two columns share ahead of both, outside of the
attempt, but never out of a branch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest

from sinks.local_time import LocalZone
from sinks.unparsed import SAMPLE_BYTES_MAX
from stream.config.expression import (
    bare_column,
    column_tokens,
    quote_name,
    quote_text,
    spark_sql,
)
from stream.config.input_section import InputSection
from stream.config.metrics import Metric, resolve_metrics
from stream.config.settings import StreamSection
from stream.parse.columns import ParsedInput, parse_input
from stream.parse.numbers import EXACT_DECIMAL, exact_decimal
from stream.parse.texts import ColumnSql
from stream.parse.times import TIME_REASON, plausible_time
from stream.parse.try_expression import attempt, attempt_of_user

LINES_VIEW = "millrace_lines"

# What a metric makes of a line; NULL where the line is left out.
COUNTED = 1
FAULTY = -1

EXPRESSION_NULL = "expression_null:"
# The reason of headers and comments, which belong to a file and are no fault of it.
SKIPPED = "skipped"

# Columns of a judged line that are there whatever the metrics are.
LINE_COLUMNS = ("topic", "partition", "offset", "file", "reason", "seconds", "sample")

_WHOLE_TYPES = ("int", "bigint")


class ValueKind(StrEnum):
    """How the value of a metric travels: a BIGINT, a DECIMAL(38,12), or a text to be told apart."""

    WHOLE = "whole"
    DECIMAL = "decimal"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Reading:
    """Where in a judged line a metric finds what it counts; metric number n is `metrics[n]`.

    `verdict` names the column that holds COUNTED, FAULTY or NULL; None where every line that
    parses counts. `value` and `keys` name columns, too.
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
class Entry:
    """What one metric makes of a line of one input.

    `where` and `value` are SQL over the input's columns. `absent` says, for a value that is a bare
    column, when the line simply has no such field; None where a NULL value is always a fault.
    """

    where: str | None
    value: str | None
    kind: ValueKind | None
    absent: str | None
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """The query of a configuration, and what its columns mean.

    `columns` are those of a judged line, in order. `inputs` and `entries` are the parts the query
    was made of, for `describe.py`.
    """

    lines_sql: str
    columns: tuple[str, ...]
    metrics: tuple[Metric, ...]
    readings: tuple[Reading, ...]
    inputs: Mapping[str, ParsedInput]
    entries: Mapping[tuple[str, str], Entry]


def valid_text(sql: str) -> str:
    """A value as text, with U+FFFD for octets that are no UTF-8, as Python replaces them.

    Java's own way to read such octets differs, and one text would become two keys.
    """
    return f"make_valid_utf8(CAST(({sql}) AS STRING))"


class _Columns:
    """Columns of one step; equal expressions are one column."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def named(self, kind: str, sql: str) -> str:
        """The name of the column that holds an expression."""
        return self._names.setdefault(sql, f"{kind}{len(self._names)}")

    def items(self) -> dict[str, str]:
        """Expression by name."""
        return {name: sql for sql, name in self._names.items()}


def compile_plan(section: StreamSection) -> FoldPlan:
    """The judging of lines for all metrics of a checked section."""
    metrics = resolve_metrics(section)
    inputs = {
        name: parse_input(name, given, _wanted(name, given, metrics))
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
    lines_sql = "\n".join(_lines_query(inputs, measured, judged, readings))
    return FoldPlan(lines_sql, columns, metrics, readings, inputs, entries)


def column_names(name: str, given: InputSection) -> dict[str, str]:
    """What each column of an input is called within the query.

    The colon keeps a column apart from the steps that take a line apart, such as `json.fields`.
    """
    plain = {"file": "file", "line": "line", "time": f"{name}.time"}
    return {column: plain.get(column, f"{name}:{column}") for column in given.column_types()}


def _wanted(name: str, given: InputSection, metrics: Sequence[Metric]) -> set[str]:
    """The columns of an input that any metric names."""
    columns = list(given.column_types())
    wanted: set[str] = set()
    for metric in metrics:
        if name in metric.inputs:
            wanted.update(metric.key)
            for text in (metric.section.where, metric.section.value):
                if text is not None:
                    wanted.update(token.name for token in column_tokens(text, columns))
    return wanted


def _entry(metric: Metric, parsed: ParsedInput, given: InputSection) -> Entry:
    names = column_names(parsed.name, given)
    spelling = {column.lower(): name for column, name in names.items()}
    keys = tuple(quote_name(spelling[column.lower()]) for column in metric.key)
    where, value = metric.section.where, metric.section.value
    where = spark_sql(where, names).text if where is not None else None
    if value is None:
        return Entry(where, None, None, None, keys)
    own = spark_sql(value, names).text
    bare = bare_column(value, list(names))
    column = parsed.columns.get(bare) if bare is not None else None
    absent = None
    if bare is not None:
        # A text that is measured as a number is itself the text that may not fit.
        text = own if column is None or column.raw is None else column.raw
        absent = f"{text} IS NULL"
    declared = given.column_types()[bare] if bare is not None else None
    kind, sql = _value_sql(metric.definition.measure, own, declared, column)
    return Entry(where, sql, kind, absent, keys)


def _value_sql(
    measure: str, own: str, declared: str | None, column: ColumnSql | None
) -> tuple[ValueKind, str]:
    """How a value travels, and the SQL that is NULL where it cannot be measured.

    Sums are exact, so a number that DECIMAL(38,12) cannot hold is a fault, never rounded. A double
    that an expression computed is inexact by nature and is taken to 12 places, but not to zero.
    """
    if measure == "unique":
        return ValueKind.TEXT, valid_text(own)
    if measure == "share":
        return ValueKind.WHOLE, f"CAST(CAST(({own}) AS INT) AS BIGINT)"
    if measure != "percentile" and declared in _WHOLE_TYPES:
        return ValueKind.WHOLE, f"CAST({own} AS BIGINT)"
    if declared == "double" and column is not None and column.raw is not None:
        # The text says exactly what a double only comes near to.
        return ValueKind.DECIMAL, f"IF({own} IS NULL, NULL, {exact_decimal(column.raw)})"
    rounded = f"try_cast(({own}) AS {EXACT_DECIMAL})"
    near = f"IF({rounded} = 0 AND ({own}) <> 0, NULL, {rounded})"
    exact = exact_decimal(f"CAST(({own}) AS STRING)")
    return ValueKind.DECIMAL, f"IF(typeof({own}) IN ('double', 'float'), {near}, {exact})"


def _reading(
    number: int,
    metric: Metric,
    inputs: Mapping[str, ParsedInput],
    entries: Mapping[tuple[str, str], Entry],
    measured: _Columns,
    judged: _Columns,
) -> Reading:
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
        # Other inputs' lines have no value, either, which is no fault of theirs.
        verdict = judged.named("verdict", f"CAST({_cases(verdicts)} AS TINYINT)")
    column: str | None = None
    if kind is not None:
        sql_type = {ValueKind.WHOLE: "BIGINT", ValueKind.TEXT: "STRING"}.get(kind, EXACT_DECIMAL)
        column = judged.named("value", f"CAST({_by_input(values)} AS {sql_type})")
    keys = tuple(
        judged.named("key", f"CAST({_by_input({n: e.keys[at] for n, e in own.items()})} AS STRING)")
        for at in range(len(metric.key))
    )
    return Reading(
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
    """A filter or value of one input as a column of its own, evaluated once a line."""
    column = _of_input(parsed.name, attempt_of_user(sql))
    return quote_name(measured.named(f"{parsed.name}.measured", column))


def _lines_query(
    inputs: Mapping[str, ParsedInput],
    measured: _Columns,
    judged: _Columns,
    readings: Sequence[Reading],
) -> Iterator[str]:
    """Yield the steps from lines to judged lines; each reads the step before.

    Measure the generated code before you add work per line. Spark compiles all steps into one Java
    method, and the JVM interprets a method above 8,000 bytes of bytecode unless an option forbids
    that (`stream/spark/session`).
    """
    parsed = list(inputs.values())
    is_of = {f"{p.name}.is": f"topic = {quote_text(p.topic)}" for p in parsed}
    yield (
        "WITH lines AS (SELECT topic, partition, offset, timestamp AS arrival,"
        f" {valid_text('key')} AS file, value,"
        f" {valid_text('value')} AS line{_columns(is_of)} FROM {LINES_VIEW}),"
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
    # Where nothing of a line is held, or nothing is judged, a step has no columns.
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
    """An expression over one input's columns: NULL for other inputs' lines and where it raises."""
    return _of_input(name, attempt(sql))


def _of_input(name: str, sql: str) -> str:
    """Return an expression that is evaluated for lines of one input only; NULL for others.

    Every column of a line is an attempt inside this branch. Spark hoists a subexpression that two
    columns share out of both attempts, where an error would fail the whole batch. It never hoists
    one out of a conditional branch.
    """
    return f"IF({quote_name(f'{name}.is')}, {sql}, NULL)"


def _by_input(branches: Mapping[str, str]) -> str:
    """What holds for a line of each input; where all say the same, of any line."""
    same = set(branches.values())
    return same.pop() if len(same) == 1 else _cases(branches)


def _cases(branches: Mapping[str, str]) -> str:
    """What holds for a line of each input, NULL for lines of others."""
    if not branches:
        return "NULL"
    cases = " ".join(f"WHEN {quote_name(f'{n}.is')} THEN {sql}" for n, sql in branches.items())
    return f"CASE {cases} END"


def _columns(columns: Mapping[str, str]) -> str:
    return "".join(f",\n  {sql} AS {quote_name(name)}" for name, sql in columns.items())


def _time(parsed: ParsedInput) -> str:
    return quote_name(f"{parsed.name}.time")


def _reason(parsed: ParsedInput) -> str:
    """Why a line is not counted; NULL for a line that parses and has a time."""
    why = quote_text(parsed.reason)
    if parsed.fault is not None:
        why = f"concat({why}, coalesce(concat(', ', {attempt(parsed.fault)}), ''))"
    skipped = f" WHEN {parsed.skipped} THEN {quote_text(SKIPPED)}" if parsed.skipped else ""
    time_fault = f"coalesce({attempt(parsed.time_fault)}, {quote_text(TIME_REASON)})"
    return (
        f"CASE WHEN line IS NULL THEN 'null'{skipped} WHEN NOT coalesce({parsed.matches}, false)"
        f" THEN {why} WHEN {plausible_time(_time(parsed))} IS NULL THEN {time_fault} END"
    )
