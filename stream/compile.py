"""From metrics to one SQL query: the fold of a batch.

Floor: pure, no JVM. Lines become columns (`parse.py`), each metric turns a line into at most one
row (metric, slice, key, value), and all rows are grouped once with one fixed list of aggregates.
Reserved metric numbers carry what is counted besides: lines that did not parse, and how many lines
of each partition the batch holds. The query reads the view `BATCH_VIEW`, which has the columns of
Spark's Kafka source, and its result is read by `counts.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stream.config import StreamSection
from stream.expression import bare_column, quote_name, quote_text, rename_columns
from stream.metrics import Metric, resolve_metrics
from stream.parse import ColumnSql, ParsedInput, parse_input, plausible_time
from stream.sections import InputSection

BATCH_VIEW = "millrace_batch"

# Metric numbers that are no metrics.
UNPARSED = -1
PARTITION = -2

# Samples of unparsed lines: at most this many a partition, file and reason, this long each.
SAMPLES = 1_000
SAMPLE_BYTES = 4_096

EXPRESSION_NULL = "expression_null:"

_HLL_LG_K = 12
_KLL_K = 200

# The columns of a fold row, before grouping.
_ROW = {
    "m": "INT",
    "s": "BIGINT",
    "k1": "STRING",
    "k2": "STRING",
    "k3": "STRING",
    "v": "DECIMAL(28,6)",
    "u": "STRING",
    "q": "DOUBLE",
    "x": "BINARY",
    "t": "BIGINT",
}

_DECIMAL = _ROW["v"]


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """The query of a configuration, and what its rows mean. Metric number n is `metrics[n]`."""

    sql: str
    metrics: tuple[Metric, ...]
    entries: Mapping[tuple[str, str], str]
    has_hll: bool
    has_kll: bool


@dataclass(frozen=True, slots=True)
class _Measured:
    """The columns in which a metric's filter and value stand for one input; None where it has none.

    `absent` is the text of a bare value column: where it is NULL too, the line has no such field.
    """

    where: str | None
    value: str | None
    absent: str | None
    is_bare: bool


def compile_plan(section: StreamSection) -> FoldPlan:
    """The fold of all metrics of a checked section."""
    metrics = resolve_metrics(section)
    inputs = [parse_input(name, given) for name, given in section.from_.items()]
    measured: dict[str, str] = {}
    arrays: dict[str, list[str]] = {}
    entries: dict[tuple[str, str], str] = {}
    for parsed in inputs:
        rows = [_partition_row()]
        for number, metric in enumerate(metrics):
            if parsed.name in metric.inputs:
                given = section.from_[parsed.name]
                row = _metric_row(number, metric, parsed, given, measured)
                entries[metric.name, parsed.name] = row
                rows.append(row)
        arrays[parsed.topic] = rows
    measures = {metric.section.measure for metric in metrics}
    has_hll, has_kll = "unique" in measures, "percentile" in measures
    sql = "\n".join(_query(inputs, measured, arrays, has_hll, has_kll))
    return FoldPlan(sql, metrics, entries, has_hll, has_kll)


def column_names(parsed: ParsedInput) -> dict[str, str]:
    """What each column of an input is called within the query."""
    own = {name: f"{parsed.name}.{name}" for name in [*parsed.columns, "time"]}
    return {"file": "file", "line": "line", **own}


def _query(
    inputs: Sequence[ParsedInput],
    measured: Mapping[str, str],
    arrays: Mapping[str, Sequence[str]],
    has_hll: bool,
    has_kll: bool,
) -> Iterator[str]:
    """The steps of the query; each reads the step before."""
    yield (
        "WITH lines AS (SELECT topic, partition, offset, timestamp AS arrival,"
        " CAST(key AS STRING) AS file, value,"
        f" make_valid_utf8(CAST(value AS STRING)) AS line FROM {BATCH_VIEW}),"
    )
    fields = {f"{p.name}.fields": f"IF({_is_of(p)}, {p.fields}, NULL)" for p in inputs}
    yield f"fields AS (SELECT *{_columns(fields)} FROM lines),"
    texts = {name: sql for p in inputs for name, sql in p.texts.items()}
    yield f"texts AS (SELECT *{_columns(texts)} FROM fields),"
    times = {f"{p.name}.time": p.time for p in inputs}
    yield f"times AS (SELECT *{_columns(times)} FROM texts),"
    typed = {f"{p.name}.{name}": c.value for p in inputs for name, c in p.columns.items()}
    reason = _by_topic({p.topic: _reason(p) for p in inputs}, "'topic'")
    seconds = _by_topic({p.topic: f"unix_seconds({_time(p)})" for p in inputs}, "NULL")
    yield (
        f"typed AS (SELECT *{_columns(typed)}, {reason} AS reason, {seconds} AS time_s FROM times),"
    )
    yield f"measured AS (SELECT *{_columns(measured)} FROM typed),"
    unparsed = f"array({_partition_row()}, {_unparsed_row('reason')})"
    counted = _by_topic({topic: f"array({', '.join(r)})" for topic, r in arrays.items()}, unparsed)
    yield (
        f"folded AS (SELECT inline(IF(reason IS NOT NULL, {unparsed}, {counted}))"
        f" AS ({', '.join(_ROW)}) FROM measured)"
    )
    sketches = f", hll_sketch_agg(u, {_HLL_LG_K}) AS hll" if has_hll else ", NULL AS hll"
    sketches += f", kll_sketch_agg_double(q, {_KLL_K}) AS kll" if has_kll else ", NULL AS kll"
    yield (
        "SELECT m, s, k1, k2, k3, count(1) AS c, sum(v) AS total, min(v) AS low, max(v) AS high,"
        f" max(t) AS latest, min_by(x, v) AS sample{sketches}"
        " FROM folded WHERE m IS NOT NULL GROUP BY m, s, k1, k2, k3"
    )


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
    time = plausible_time(_time(parsed))
    return (
        f"CASE WHEN line IS NULL THEN 'null' WHEN NOT {parsed.matches} THEN"
        f" {quote_text(parsed.reason)} WHEN {time} IS NULL THEN 'time' END"
    )


def _metric_row(
    number: int,
    metric: Metric,
    parsed: ParsedInput,
    given: InputSection,
    measured: dict[str, str],
) -> str:
    """The row a line gives for a metric, NULL where it gives none."""
    seen = _measure(metric, parsed, given, measured)
    names = {name.lower(): name for name in column_names(parsed).values()}
    values = {
        "m": str(number),
        "s": f"time_s - time_s % {metric.slice_s}" if metric.slice_s else "0",
        **_value_fields(metric, seen),
    }
    for place, column in enumerate(metric.key, start=1):
        name = {n.lower(): own for n, own in column_names(parsed).items()}[column.lower()]
        values[f"k{place}"] = quote_name(names[name.lower()])
    fault = _unparsed_row(quote_text(EXPRESSION_NULL + metric.name))
    cases: list[str] = []
    if seen.where is not None:
        where = quote_name(seen.where)
        cases += [f"WHEN {where} IS NULL THEN {fault}", f"WHEN NOT {where} THEN NULL"]
    if seen.value is not None:
        missing = f"{quote_name(seen.value)} IS NULL"
        if seen.is_bare:
            absent = f"{seen.absent} IS NULL" if seen.absent else "true"
            cases.append(f"WHEN {missing} AND {absent} THEN NULL")
        cases.append(f"WHEN {missing} THEN {fault}")
    return f"CASE {' '.join(cases)} ELSE {_row(values)} END" if cases else _row(values)


def _measure(
    metric: Metric, parsed: ParsedInput, given: InputSection, measured: dict[str, str]
) -> _Measured:
    """Note the columns that hold the metric's filter and value; equal ones are computed once."""
    names = column_names(parsed)

    def column(sql: str) -> str:
        wrapped = f"IF(reason IS NULL AND {_is_of(parsed)}, {sql}, NULL)"
        for name, known in measured.items():
            if known == wrapped:
                return name
        name = f"{parsed.name}.measured{len(measured)}"
        measured[name] = wrapped
        return name

    where = value = absent = None
    is_bare = False
    if metric.section.where is not None:
        where = column(rename_columns(metric.section.where, names))
    if metric.section.value is not None:
        own = rename_columns(metric.section.value, names)
        value = column(_value_sql(metric.section.measure, own))
        bare = bare_column(metric.section.value, list(given.column_types()))
        is_bare = bare is not None
        absent = parsed.columns.get(bare or "", ColumnSql("")).raw
        if is_bare and absent is None and metric.section.measure not in ("unique",):
            # A text that is measured as a number: what does not fit is a fault.
            absent = own
    return _Measured(where, value, absent, is_bare)


def _value_sql(measure: str, own: str) -> str:
    if measure == "unique":
        return f"CAST(({own}) AS STRING)"
    if measure == "share":
        return f"CAST(CAST(({own}) AS INT) AS {_DECIMAL})"
    if measure == "percentile":
        # What has no place among the exact parts (NaN, infinity) has none in the sketch either.
        return f"IF(try_cast(({own}) AS {_DECIMAL}) IS NULL, NULL, try_cast(({own}) AS DOUBLE))"
    return f"try_cast(({own}) AS {_DECIMAL})"


def _value_fields(metric: Metric, seen: _Measured) -> dict[str, str]:
    """Into which columns of the row the value goes."""
    if seen.value is None:
        return {}
    value = quote_name(seen.value)
    if metric.section.measure == "unique":
        return {"u": value}
    if metric.section.measure == "percentile":
        return {"v": f"try_cast({value} AS {_DECIMAL})", "q": value}
    return {"v": value}


def _partition_row() -> str:
    return _row(
        {
            "m": str(PARTITION),
            "s": "CAST(partition AS BIGINT)",
            "k1": "topic",
            "v": f"CAST(offset AS {_DECIMAL})",
            "t": "IF(reason IS NULL, time_s, NULL)",
        }
    )


def _unparsed_row(reason: str) -> str:
    return _row(
        {
            "m": str(UNPARSED),
            "s": f"partition * {SAMPLES}L + offset % {SAMPLES}",
            "k1": "topic",
            "k2": "file",
            "k3": reason,
            "v": f"CAST(offset AS {_DECIMAL})",
            "x": f"substring(value, 1, {SAMPLE_BYTES})",
        }
    )


def _row(values: Mapping[str, str]) -> str:
    """A struct of all columns of a fold row; those without a value are NULL of their type."""
    fields = (
        f"'{name}', CAST({values.get(name, 'NULL')} AS {sql_type})"
        for name, sql_type in _ROW.items()
    )
    return f"named_struct({', '.join(fields)})"
