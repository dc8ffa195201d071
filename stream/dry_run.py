"""Shows what the metrics would count of a file: folds its lines, and stores nothing."""

import json
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from sinks.number_text import plain
from sinks.rows import NO_TIME_S, FoldRow, UnparsedRow, size_text
from sinks.values import Aggregate, Measure, value_of
from stream.config.settings import StreamSettings
from stream.fold.compile import EXPRESSION_NULL, FoldPlan, compile_plan
from stream.fold.counts import BatchCounts
from stream.fold.folding import Folding
from stream.parse.times import TIME_REASON
from stream.pattern_samples import pattern_samples
from stream.source.kafka import COLUMNS_DDL
from stream.spark import java_classes

ROWS_SHOWN = 20
SAMPLES_SHOWN = 3
LINE_SHOWN = 160


@dataclass(frozen=True, slots=True)
class DryRunSample:
    """The last records of a file, as the collector makes them.

    `name` is the input as which they are read. `key` is the key of all records of the file.
    """

    name: str
    key: str
    records: tuple[bytes, ...]


def read_samples(text: str) -> list[DryRunSample]:
    """Parse the samples that the command `millrace` writes: a JSON list, with records in base64."""
    return [
        DryRunSample(one["name"], one["key"], tuple(map(b64decode, one["records"])))
        for one in json.loads(text)
    ]


def run_dry(
    start: Callable[[StreamSettings], SparkSession],
    settings: StreamSettings,
    samples: Sequence[DryRunSample],
    write: Callable[[str], object],
) -> None:
    """Fold each sample as lines of its input, and pass the report to `write`.

    `start` starts the Spark session.
    """
    session = start(settings)
    plan = compile_plan(settings.section)
    with java_classes.borrowed(session, settings.data_dir):
        for index, sample in enumerate(samples):
            topic = settings.section.from_[sample.name].topic
            frame = _frame(session, topic, sample.key, sample.records)
            counts = Folding(plan, as_blocks=False).fold_in_driver(frame)
            text = report(sample.name, plan, counts, len(sample.records))
            write(("\n" if index else "") + text)
            for found in pattern_samples(session, settings.section, sample.name, frame):
                write(f"  {found.metric}: {found}\n")


def _frame(session: SparkSession, topic: str, file: str, lines: Sequence[bytes]) -> DataFrame:
    arrival = datetime.now(UTC)
    rows = [
        (bytearray(file.encode()), bytearray(line), topic, 0, place, arrival, 0, None)
        for place, line in enumerate(lines)
    ]
    return session.createDataFrame(rows, COLUMNS_DDL).coalesce(1)


def report(name: str, plan: FoldPlan, counts: BatchCounts, lines: int) -> str:
    """Return the text of one input's dry run."""
    broken = sum(row.count for row in counts.unparsed if not row.reason.startswith(EXPRESSION_NULL))
    text = [f"as {name}: {lines} lines, {lines - broken} parse"]
    for row in counts.unparsed:
        text.extend(_unparsed(row))
    for metric in plan.metrics:
        if name in metric.inputs:
            found = [row for row in counts.rows if row.metric == metric.name]
            text.append("")
            windows = ", ".join(size_text(size) for size in metric.definition.windows_s)
            text.append(f"{metric.name} ({metric.definition.measure}; windows {windows})")
            text.extend(_metric(found, metric.definition.measure, metric.slice_s))
    return "\n".join(text) + "\n"


def _unparsed(row: UnparsedRow) -> list[str]:
    counted = "counted in all alone" if row.reason.startswith(TIME_REASON) else "not counted"
    shown = [f"  {row.count} {counted}: {row.reason}"]
    for sample in row.samples[:SAMPLES_SHOWN]:
        line = sample.line.decode(errors="replace")
        cut = "…" if len(line) > LINE_SHOWN else ""
        shown.append(f"    line {sample.offset + 1}: {line[:LINE_SHOWN]!r}{cut}")
    return shown


def _metric(rows: Sequence[FoldRow], measure: str, slice_s: int) -> list[str]:
    """Describe the cells of one metric, those with the most lines first."""
    if not rows:
        return ["  nothing"]
    largest = sorted(rows, key=lambda row: (-row.count, row.slice_start_s, str(row.key)))
    shown = []
    for row in largest[:ROWS_SHOWN]:
        key = " | ".join("(null)" if part is None else part for part in row.key) or "*"
        start = f"{datetime.fromtimestamp(row.slice_start_s, UTC):%Y-%m-%d %H:%M:%S}  "
        start = "no time              " if row.slice_start_s == NO_TIME_S else start
        shown.append(f"  {start if slice_s else ''}{key}  {_value(row, measure)}")
    if len(largest) > ROWS_SHOWN:
        shown.append(f"  … and {len(largest) - ROWS_SHOWN} more")
    return shown


def _value(row: FoldRow, measure: str) -> str:
    """Return a cell's value as the sinks would show it; of percentiles the median."""
    if measure == Measure.COUNT:
        return f"count {row.count}"
    cell = Aggregate(row.count, row.sum, row.min, row.max, row.hll, row.kll)
    value = value_of(measure, cell)
    shown = "none" if value is None else plain(value)
    name = "p50" if measure == Measure.PERCENTILE else measure
    return f"{name} {shown}  count {row.count}"
