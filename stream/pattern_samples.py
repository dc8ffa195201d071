"""Shows which texts the literal patterns of metrics match in some lines, for the dry run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from stream.config.expression import quote_text, unknown_columns
from stream.config.patterns import LiteralPattern, PatternKind, literal_patterns
from stream.config.sections import MetricSection
from stream.config.settings import StreamSection
from stream.fold.compile import LINES_VIEW, compile_plan

SAMPLES_MAX = 3
SAMPLE_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class PatternSample:
    """One pattern of a metric, how many lines it matches, and some of the matched texts."""

    metric: str
    key: str
    pattern: str
    lines: int
    found: tuple[str, ...]

    def __str__(self) -> str:
        texts = ", ".join(repr(text[:SAMPLE_CHARACTERS]) for text in self.found)
        such = f", such as {texts}" if texts else ""
        return f"{self.key}: pattern {self.pattern!r} fits {self.lines} lines{such}"


def pattern_samples(
    session: SparkSession, section: StreamSection, name: str, lines: DataFrame
) -> list[PatternSample]:
    """Match the patterns of all metrics that read the input `name` against lines of that input.

    A pattern is left out if its operand uses anything but columns, such as a variable of a lambda.
    """
    columns = list(section.from_[name].column_types())
    wanted = [
        (metric, key, one)
        for metric in section.metrics
        if name in metric.from_
        for key, one in _patterns(metric)
        if one.subject is not None and unknown_columns(one.subject, columns) is None
    ]
    if not wanted:
        return []
    probes = tuple(
        metric.model_copy(update=_probe(number, name, one))
        for number, (metric, _, one) in enumerate(wanted)
    )
    some = {"from_": {name: section.from_[name]}, "metrics": probes}
    plan = compile_plan(section.model_copy(update=some))
    lines.createOrReplaceTempView(LINES_VIEW)
    values = [reading.value for reading in plan.readings if reading.value is not None]
    rows = session.sql(plan.lines_sql).where("reason IS NULL").select(*values).collect()
    return [
        _sample(metric.name, key, one, [row[value] for row in rows])
        for (metric, key, one), value in zip(wanted, values, strict=True)
    ]


def _patterns(metric: MetricSection) -> Iterator[tuple[str, LiteralPattern]]:
    for key, text in (("where", metric.where), ("value", metric.value)):
        for one in literal_patterns(text) if text is not None else ():
            yield key, one


def _probe(number: int, name: str, one: LiteralPattern) -> dict[str, object]:
    """Return the configuration of a made-up metric that shows what a pattern matches.

    The metric's value is the matched text, or NULL without a match.
    """
    pattern = quote_text(one.text)
    found = f"regexp_extract(({one.subject}), {pattern}, 0)"
    test = f"({one.subject}) RLIKE {pattern}"
    if one.kind is PatternKind.LIKE:
        found = f"({one.subject})"
        test = f"{found} LIKE {pattern} ESCAPE {quote_text(one.escape)}"
    return {
        "name": f"p{number}",
        "from_": (name,),
        "where": None,
        "key": (),
        "top": None,
        "measure": "unique",
        "value": f"IF({test}, {found}, NULL)",
    }


def _sample(
    metric: str, key: str, one: LiteralPattern, texts: Sequence[str | None]
) -> PatternSample:
    fitting = [text for text in texts if text is not None]
    first = tuple(dict.fromkeys(fitting))[:SAMPLES_MAX]
    return PatternSample(metric, key, one.text, len(fitting), first)
