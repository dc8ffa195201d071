"""From metrics to SQL: the fold of a batch, in two queries.

Floor: pure, no JVM. `rows_sql` turns lines into columns (`parse.py`) and each line into one row
(metric, slice, key, value) for every metric that it counts in; it stands in the streaming query,
where it is analysed once. `groups_sql` groups those rows with one fixed list of aggregates, once a
batch. Reserved metric numbers carry what is counted besides: lines that do not parse, values
that cannot be measured, and how many lines of each partition the batch holds. `counts.py` reads the
result.

A query is optimised again for every batch, so what is not needed is left out here already.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stream.config import StreamSection
from stream.expression import (
    bare_column,
    column_tokens,
    quote_name,
    quote_text,
    rename_columns,
)
from stream.metrics import Metric, resolve_metrics
from stream.parse import ParsedInput, parse_input, plausible_time
from stream.sections import InputSection

LINES_VIEW = "millrace_lines"
ROWS_VIEW = "millrace_rows"

# Metric numbers that are no metrics; FAULT - n is a line on which metric n could not be measured.
UNPARSED = -1
PARTITION = -2
FAULT = -10

# Samples of unparsed lines: at most this many a partition, file and reason, this long each.
SAMPLES = 1_000
SAMPLE_BYTES = 4_096

EXPRESSION_NULL = "expression_null:"

_HLL_LG_K = 12
_KLL_K = 200
_DECIMAL = "DECIMAL(28,6)"
_SAMPLE = "min_by(x, o) AS sample"
_NO_SAMPLE = "CAST(NULL AS BINARY) AS sample"


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """The queries of a configuration, and what their rows mean. Metric number n is `metrics[n]`.

    Text among the aggregates makes Spark sort all rows, which is nothing for a small batch and a
    third of the time of a large one: so there are `sampled_groups_sql`, with samples of unparsed
    lines, `groups_sql` without, and `samples_sql` for these alone. `inputs` and `entries` are the
    parts the queries were made of, for `describe.py`.
    """

    rows_sql: str
    groups_sql: str
    sampled_groups_sql: str
    samples_sql: str
    metrics: tuple[Metric, ...]
    inputs: Mapping[str, ParsedInput]
    entries: Mapping[tuple[str, str], "Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What one metric makes of a line of one input.

    `where` and `value` are SQL over the input's columns. `absent` says, for a value that is a bare
    column, when the line simply has no such field; None where a NULL value is always a fault.
    """

    number: int
    where: str | None
    value: str | None
    absent: str | None
    keys: tuple[str, ...]
    slice_s: int
    measure: str


@dataclass(slots=True)
class _Shape:
    """Which optional columns the rows of this configuration have."""

    keys: int = 0
    has_value: bool = False
    has_text: bool = False
    has_number: bool = False
    columns: dict[str, str] = field(default_factory=dict)


def compile_plan(section: StreamSection) -> FoldPlan:
    """The fold of all metrics of a checked section."""
    metrics = resolve_metrics(section)
    inputs = {
        name: parse_input(name, given, _wanted(name, given, metrics))
        for name, given in section.from_.items()
    }
    entries = {
        (metric.name, name): _entry(number, metric, inputs[name], section.from_[name])
        for number, metric in enumerate(metrics)
        for name in metric.inputs
    }
    shape = _shape(metrics)
    rows_sql = "\n".join(_rows_query(inputs, entries, shape))
    return FoldPlan(
        rows_sql,
        _groups_query(shape, _NO_SAMPLE),
        _groups_query(shape, _SAMPLE),
        f"SELECT m, s, k1, k2, k3, min(o) AS low, {_SAMPLE} FROM {ROWS_VIEW}"
        f" WHERE m < 0 AND m <> {PARTITION} GROUP BY m, s, k1, k2, k3",
        metrics,
        inputs,
        entries,
    )


def column_names(name: str, given: InputSection) -> dict[str, str]:
    """What each column of an input is called within the query."""
    plain = {"file": "file", "line": "line"}
    return {column: plain.get(column, f"{name}.{column}") for column in given.column_types()}


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


def _shape(metrics: Sequence[Metric]) -> _Shape:
    measures = {metric.definition.measure for metric in metrics}
    shape = _Shape(
        keys=max((len(metric.key) for metric in metrics), default=0),
        has_value=bool(measures - {"count", "unique"}),
        has_text="unique" in measures,
        has_number="percentile" in measures,
    )
    shape.columns = {"m": "INT", "s": "BIGINT"}
    shape.columns |= {f"k{place}": "STRING" for place in range(1, shape.keys + 1)}
    shape.columns |= {"v": _DECIMAL} if shape.has_value else {}
    shape.columns |= {"u": "STRING"} if shape.has_text else {}
    shape.columns |= {"q": "DOUBLE"} if shape.has_number else {}
    return shape


def _entry(number: int, metric: Metric, parsed: ParsedInput, given: InputSection) -> Entry:
    names = column_names(parsed.name, given)
    spelling = {column.lower(): name for column, name in names.items()}
    where = metric.section.where
    value = metric.section.value
    measure = metric.definition.measure
    own = rename_columns(value, names) if value is not None else None
    bare = bare_column(value, list(names)) if value is not None else None
    absent = None
    if own is not None and bare is not None:
        column = parsed.columns.get(bare)
        # A text that is measured as a number is itself the text that may not fit.
        text = own if column is None or column.raw is None else column.raw
        absent = f"{text} IS NULL"
    return Entry(
        number,
        rename_columns(where, names) if where is not None else None,
        _value_sql(measure, own) if own is not None else None,
        absent,
        tuple(quote_name(spelling[column.lower()]) for column in metric.key),
        metric.slice_s,
        measure,
    )


def _value_sql(measure: str, own: str) -> str:
    if measure == "unique":
        return f"CAST(({own}) AS STRING)"
    if measure == "share":
        return f"CAST(CAST(({own}) AS INT) AS {_DECIMAL})"
    if measure == "percentile":
        # What has no place among the exact parts (NaN, infinity) has none in the sketch either.
        return f"IF(try_cast(({own}) AS {_DECIMAL}) IS NULL, NULL, try_cast(({own}) AS DOUBLE))"
    return f"try_cast(({own}) AS {_DECIMAL})"


def _rows_query(
    inputs: Mapping[str, ParsedInput], entries: Mapping[tuple[str, str], Entry], shape: _Shape
) -> Iterator[str]:
    """The steps from lines to rows; each reads the step before."""
    parsed = list(inputs.values())
    yield (
        "WITH lines AS (SELECT topic, partition, offset, timestamp AS arrival,"
        " CAST(key AS STRING) AS file, value,"
        f" make_valid_utf8(CAST(value AS STRING)) AS line FROM {LINES_VIEW}),"
    )
    fields = {f"{p.name}.fields": f"IF({_is_of(p)}, {p.fields}, NULL)" for p in parsed}
    yield f"fields AS (SELECT *{_columns(fields)} FROM lines),"
    texts = {name: sql for p in parsed for name, sql in p.texts.items()}
    yield f"texts AS (SELECT *{_columns(texts)} FROM fields),"
    typed = {f"{p.name}.{name}": c.value for p in parsed for name, c in p.columns.items()}
    typed |= {f"{p.name}.time": p.time for p in parsed}
    yield f"typed AS (SELECT *{_columns(typed)} FROM texts),"
    measured: dict[str, str] = {}
    branches = {
        p.topic: _line_rows(p, [e for (_, name), e in entries.items() if name == p.name], measured)
        for p in parsed
    }
    judged = {
        "reason": _by_topic({p.topic: _reason(p) for p in parsed}, "'topic'"),
        "seconds": _by_topic({p.topic: f"unix_seconds({_time(p)})" for p in parsed}, "0"),
        **measured,
    }
    yield f"judged AS (SELECT *{_columns(judged)} FROM typed),"
    counted = _by_topic(
        {
            topic: f"array({', '.join(_row(r, shape) for r in rows)})"
            for topic, rows in branches.items()
        },
        "NULL",
    )
    apart = f"array({_row({'m': str(PARTITION)}, shape)}, {_row({'m': str(UNPARSED)}, shape)})"
    yield (
        "folded AS (SELECT topic, partition, offset, file, value, reason, seconds,"
        f" inline(IF(reason IS NOT NULL, {apart}, {counted})) AS ({', '.join(shape.columns)})"
        " FROM judged)"
    )
    yield _all_rows(shape)


def _all_rows(shape: _Shape) -> str:
    """Give the reserved rows their keys; what all of them share is taken from the line."""
    keys = [f"k{place}" if place <= shape.keys else "NULL" for place in (1, 2, 3)]
    sample = f"coalesce(substring(value, 1, {SAMPLE_BYTES}), X'')"
    place = f"partition * {SAMPLES}L + offset % {SAMPLES}"
    columns = [
        "m",
        f"CASE WHEN m >= 0 THEN s WHEN m = {PARTITION} THEN partition ELSE {place} END AS s",
        f"IF(m >= 0, {keys[0]}, topic) AS k1",
        f"CASE WHEN m >= 0 THEN {keys[1]} WHEN m <> {PARTITION} THEN file END AS k2",
        f"CASE WHEN m >= 0 THEN {keys[2]} WHEN m = {UNPARSED} THEN reason END AS k3",
        "IF(m >= 0, NULL, offset) AS o",
        f"IF(m = {PARTITION} AND reason IS NULL, seconds, NULL) AS t",
        f"IF(m = {UNPARSED} OR m <= {FAULT}, {sample}, NULL) AS x",
    ]
    columns += ["v"] if shape.has_value else []
    columns += ["u"] if shape.has_text else []
    columns += ["q"] if shape.has_number else []
    return f"SELECT {', '.join(columns)} FROM folded WHERE m IS NOT NULL"


def _groups_query(shape: _Shape, sample: str) -> str:
    value = "sum(v) AS total, min(v) AS least, max(v) AS most"
    columns = [
        "m, s, k1, k2, k3, count(1) AS c",
        value if shape.has_value else "NULL AS total, NULL AS least, NULL AS most",
        "min(o) AS low, max(o) AS high, max(t) AS latest",
        sample,
        f"hll_sketch_agg(u, {_HLL_LG_K}) AS hll" if shape.has_text else "NULL AS hll",
        f"kll_sketch_agg_double(q, {_KLL_K}) AS kll" if shape.has_number else "NULL AS kll",
    ]
    return f"SELECT {', '.join(columns)} FROM {ROWS_VIEW} GROUP BY m, s, k1, k2, k3"


def _line_rows(
    parsed: ParsedInput, entries: Sequence[Entry], measured: dict[str, str]
) -> list[dict[str, str]]:
    """The rows that a line of an input gives, at most one a metric.

    Filters and values become columns in `measured`, equal ones one column.
    """
    known: dict[str, str] = {}

    def column(sql: str) -> str:
        if sql not in known:
            known[sql] = f"{parsed.name}.measured{len(known)}"
            measured[known[sql]] = f"IF({_is_of(parsed)}, {sql}, NULL)"
        return quote_name(known[sql])

    rows = [{"m": str(PARTITION)}]
    for entry in entries:
        row = {"m": str(entry.number), "s": "0"}
        if entry.slice_s:
            row["s"] = f"seconds - seconds % {entry.slice_s}"
        row |= {f"k{place}": key for place, key in enumerate(entry.keys, start=1)}
        fault, cases = str(FAULT - entry.number), []
        if entry.where is not None:
            where = column(entry.where)
            cases += [f"WHEN {where} IS NULL THEN {fault}", f"WHEN NOT {where} THEN NULL"]
        if entry.value is not None:
            value = column(entry.value)
            row |= _value_columns(entry.measure, value)
            if entry.absent is not None:
                cases.append(f"WHEN {value} IS NULL AND {entry.absent} THEN NULL")
            cases.append(f"WHEN {value} IS NULL THEN {fault}")
        if cases:
            row["m"] = f"CASE {' '.join(cases)} ELSE {entry.number} END"
        rows.append(row)
    return rows


def _value_columns(measure: str, value: str) -> dict[str, str]:
    """Into which columns of the row the value goes."""
    if measure == "unique":
        return {"u": value}
    if measure == "percentile":
        return {"v": f"try_cast({value} AS {_DECIMAL})", "q": value}
    return {"v": value}


def _row(values: Mapping[str, str], shape: _Shape) -> str:
    """A struct of all columns of a row; those without a value are NULL of their type."""
    fields = (
        f"'{name}', CAST({values.get(name, 'NULL')} AS {sql_type})"
        for name, sql_type in shape.columns.items()
    )
    return f"named_struct({', '.join(fields)})"


def _is_of(parsed: ParsedInput) -> str:
    return f"topic = {quote_text(parsed.topic)}"


def _columns(columns: Mapping[str, str]) -> str:
    return "".join(f",\n  {sql} AS {quote_name(name)}" for name, sql in columns.items())


def _by_topic(branches: Mapping[str, str], otherwise: str) -> str:
    if not branches:
        return otherwise
    cases = " ".join(f"WHEN {quote_text(topic)} THEN {sql}" for topic, sql in branches.items())
    return f"CASE topic {cases} ELSE {otherwise} END"


def _time(parsed: ParsedInput) -> str:
    return quote_name(f"{parsed.name}.time")


def _reason(parsed: ParsedInput) -> str:
    """Why a line is not counted; NULL for a line that parses."""
    return (
        f"CASE WHEN line IS NULL THEN 'null' WHEN NOT {parsed.matches} THEN"
        f" {quote_text(parsed.reason)} WHEN {plausible_time(_time(parsed))} IS NULL THEN 'time' END"
    )
