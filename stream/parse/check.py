"""Checks what only Spark can check in a configuration: syntax, types, functions of expressions.

Spark analyses the expressions and runs none of them. Each fault has the path of its key in the
configuration file, so that the appliance can show file and line.
"""

import re
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, NumericType, StringType

from stream.config.expression import SparkSql, spark_sql
from stream.config.groups import java_pattern
from stream.config.input_section import ParsedInputSection
from stream.config.sections import MetricSection
from stream.config.settings import StreamSection
from stream.parse.fault import Fault, KeyPath
from stream.parse.pattern_check import check_input_pattern, check_literal_patterns

_NUMERIC_MEASURES = ("sum", "min", "max", "mean", "percentile")


def check_section(session: SparkSession, section: StreamSection) -> list[Fault]:
    """Return all faults that Spark finds in the expressions and patterns of a validated section."""
    faults: list[Fault] = []
    for name, given in section.from_.items():
        if given.pattern is not None:
            faults.extend(check_input_pattern(name, java_pattern(given.pattern)[0]))
    frames = {name: _empty(session, given) for name, given in section.from_.items()}
    for index, metric in enumerate(section.metrics):
        for key, text in (("where", metric.where), ("value", metric.value)):
            if text is not None:
                path = ("stream", "metrics", index, key)
                found = list(_check_expression(path, metric, text, frames))
                faults.extend(found or check_literal_patterns(path, text))
    return faults


def _empty(session: SparkSession, given: ParsedInputSection) -> DataFrame:
    columns = ", ".join(f"`{name}` {kind}" for name, kind in given.column_types().items())
    return session.createDataFrame([], columns)


def _check_expression(
    path: KeyPath, metric: MetricSection, text: str, frames: dict[str, DataFrame]
) -> Iterator[Fault]:
    """Yield the fault for the first input over which the expression is wrong, if there is one."""
    for name in metric.from_:
        sql = spark_sql(text, {column: column for column in frames[name].columns})
        try:
            # Select the expression inside a struct and next to a plain column. There Spark refuses
            # aggregates and generators, which would not give one value per line.
            wrapped = F.struct(F.expr(sql.text).alias("e")).alias("s")
            probe = frames[name].select(wrapped, F.col("line")).select("s.e")
            kind = probe.schema["e"].dataType
        except ParseException as error:
            yield Fault(path, _first_sentence(error) + _position(error, sql), "an SQL expression")
            return
        except (AnalysisException, PySparkException) as error:
            inside = f" over input {name}" if len(metric.from_) > 1 else ""
            yield Fault(
                path,
                _first_sentence(error) + _position(error, sql) + inside,
                "an expression over the columns of one line",
            )
            return
        expected = _expected_type(metric.measure, str(path[-1]), kind)
        if expected is not None:
            yield Fault(path, f"an expression of type {kind.simpleString()}", expected)
            return


def _expected_type(measure: str, key: str, kind: DataType) -> str | None:
    """Return the expected type in words; None if `kind` is right for this key and measure."""
    if key == "where" or measure == "share":
        return None if isinstance(kind, BooleanType) else "an expression that is true or false"
    if measure in _NUMERIC_MEASURES and not isinstance(kind, NumericType | StringType):
        return "a number (or a text that holds one)"
    if measure == "unique" and kind.typeName() in ("array", "map", "struct", "variant"):
        return "a plain value, such as text or a number"
    return None


def _first_sentence(error: PySparkException) -> str:
    """Return the first line of Spark's message, without error code, SQLSTATE and position."""
    lines = [line.strip() for line in (error.getMessage() or str(error)).splitlines()]
    text = next((line for line in lines if line), "an error without a message")
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
    text = re.sub(r"\s*SQLSTATE: \w+.*$", "", text)
    text = re.sub(r"\s*\(line \d+, pos \d+\).*$", "", text)
    return text.rstrip(" .:;")


def _position(error: PySparkException, sql: SparkSql) -> str:
    """Return the position of the fault in the user's expression, in words; empty if unknown."""
    match = re.search(r"\(line (\d+), pos (\d+)\)", str(error))
    if match is not None:
        before = sql.text.splitlines(keepends=True)[: int(match[1]) - 1]
        return f" at character {sql.place(sum(map(len, before)) + int(match[2])) + 1}"
    for context in error.getQueryContext() or ():
        try:
            return f" at character {sql.place(int(context.startIndex())) + 1}"
        except (PySparkException, Py4JError, ValueError):
            continue
    return ""
