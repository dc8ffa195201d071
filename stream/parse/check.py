"""What only Spark can judge of a configuration: syntax, types and functions of expressions.

Everything is analysed, nothing is run. Each fault carries the path of its key in the configuration
file, so that the appliance can show file and line.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, NumericType, StringType

from stream.config.formats import repeats_groups
from stream.config.sections import InputSection, MetricSection
from stream.config.settings import StreamSection
from stream.parse.columns import RECURSIVE_CHARACTERS_MAX

# Long lines a user's pattern is tried on; one on which Java recurses never sees longer ones than
# RECURSIVE_CHARACTERS_MAX.
_TRIAL_CHARACTERS = 100_000
_TRIALS = ("a", "a ", "1", '"', "\\", 'k="v\\"" ', "[x] ", "/a.b?c=d&")

# What our matcher raises (`java/Steps.java`).
_TOO_MANY_STEPS = "millrace.Steps$TooMany"

_NUMERIC_MEASURES = ("sum", "min", "max", "mean", "percentile")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: the key's path, what was found there, what was expected."""

    path: tuple[str | int, ...]
    found: str
    expected: str

    def __str__(self) -> str:
        key = ".".join(str(step) for step in self.path)
        return f"{key}: found {self.found}, expected {self.expected}"

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "path": list(self.path)}


def check_section(session: SparkSession, section: StreamSection) -> list[Fault]:
    """All faults that Spark finds in a section that is right otherwise."""
    faults: list[Fault] = []
    for name, given in section.from_.items():
        if given.pattern is not None:
            faults.extend(_check_pattern(name, given.pattern))
    frames = {name: _empty(session, given) for name, given in section.from_.items()}
    for index, metric in enumerate(section.metrics):
        for key, text in (("where", metric.where), ("value", metric.value)):
            if text is not None:
                faults.extend(_check_expression(index, metric, key, text, frames))
    return faults


def _empty(session: SparkSession, given: InputSection) -> DataFrame:
    columns = ", ".join(f"`{name}` {kind}" for name, kind in given.column_types().items())
    return session.createDataFrame([], columns)


def _check_expression(
    index: int, metric: MetricSection, key: str, text: str, frames: dict[str, DataFrame]
) -> Iterator[Fault]:
    """At most one fault: the first input's on which the expression fails."""
    path = ("stream", "metrics", index, key)
    for name in metric.from_:
        try:
            # Beside a plain column and inside a struct, aggregates and generators are refused.
            wrapped = F.struct(F.expr(text).alias("e")).alias("s")
            probe = frames[name].select(wrapped, F.col("line")).select("s.e")
            kind = probe.schema["e"].dataType
        except ParseException as error:
            yield Fault(path, _first_sentence(error) + _position(error), "an SQL expression")
            return
        except (AnalysisException, PySparkException) as error:
            inside = f" over input {name}" if len(metric.from_) > 1 else ""
            yield Fault(
                path,
                _first_sentence(error) + _position(error) + inside,
                "an expression over the columns of one line",
            )
            return
        expected = _expected_type(metric.measure, key, kind)
        if expected is not None:
            yield Fault(path, f"an expression of type {kind.simpleString()}", expected)
            return


def _expected_type(measure: str, key: str, kind: DataType) -> str | None:
    """What the type should have been; None when it is right."""
    if key == "where" or measure == "share":
        return None if isinstance(kind, BooleanType) else "one that is true or false"
    if measure in _NUMERIC_MEASURES and not isinstance(kind, NumericType | StringType):
        return "a number (or a text that holds one)"
    if measure == "unique" and kind.typeName() in ("array", "map", "struct", "variant"):
        return "a plain value, such as text or a number"
    return None


def _first_sentence(error: PySparkException) -> str:
    """Spark's message without its code, its suggestions and the plan below it."""
    lines = [line.strip() for line in (error.getMessage() or str(error)).splitlines()]
    text = next((line for line in lines if line), "an error without a message")
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
    text = re.sub(r"\s*SQLSTATE: \w+.*$", "", text)
    text = re.sub(r"\s*\(line \d+, pos \d+\).*$", "", text)
    return text.rstrip(" .:;")


def _position(error: PySparkException) -> str:
    match = re.search(r"\(line (\d+), pos (\d+)\)", str(error))
    if match is None:
        for context in error.getQueryContext() or ():
            try:
                return f" at character {int(context.startIndex()) + 1}"
            except (PySparkException, Py4JError, ValueError):
                continue
        return ""
    line = f"line {match[1]}, " if match[1] != "1" else ""
    return f" at {line}character {int(match[2]) + 1}"


def _check_pattern(name: str, pattern: str) -> Iterator[Fault]:
    """Whether Java takes the pattern, and whether it survives long lines.

    Evaluated through the bridge, which hands a stack overflow back as an error. A line that is too
    much for the pattern by its steps does not parse, which is no fault.
    """
    path = ("stream", "from", name, "pattern")
    jvm = SparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.util.regex.Pattern.compile(pattern)
    except (Py4JError, PySparkException) as error:
        yield Fault(path, _java_reason(error), "a regular expression of Java's")
        return
    bounded = jvm.millrace.BoundedPattern(pattern)
    length = RECURSIVE_CHARACTERS_MAX if repeats_groups(pattern) else _TRIAL_CHARACTERS
    for piece in _TRIALS:
        line = piece * (length // len(piece))
        try:
            bounded.isFoundIn(line)
        except (Py4JError, PySparkException) as error:
            if _TOO_MANY_STEPS in str(getattr(error, "java_exception", error)):
                continue
            yield Fault(
                path,
                f"a pattern that fails on a line of {length} characters ({_java_reason(error)})",
                "possessive repeats such as [^x]*+ instead of repeated groups",
            )
            return


def _java_reason(error: Exception) -> str:
    """The first line of what Java said; PySpark wraps some of its exceptions, and others not."""
    text = str(getattr(error, "java_exception", error)).split("PatternSyntaxException: ")[-1]
    return (text.splitlines() or ["no reason given"])[0]
