"""What the metrics would count of a file: its lines through the real fold, nothing stored."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from sinks.rows import NO_TIME_S, FoldRow, UnparsedRow, size_text
from stream.config.settings import StreamSection, StreamSettings
from stream.fold.compile import EXPRESSION_NULL, FoldPlan, compile_plan
from stream.fold.counts import Counts
from stream.fold.folding import Folding
from stream.parse.times import TIME_REASON
from stream.pattern_samples import pattern_samples
from stream.source.kafka import COLUMNS_DDL
from stream.spark import java_classes

LINES_MAX = 1_000
ROWS_SHOWN = 20
SAMPLES_SHOWN = 3
LINE_SHOWN = 160


class DryRunFault(Exception):
    """The file cannot be read, or no input fits."""


def run_dry(
    start: Callable[[StreamSettings], SparkSession],
    settings: StreamSettings,
    path: Path,
    name: str | None,
    write: Callable[[str], object],
) -> None:
    """Fold the file's last lines as each fitting input and write what comes out."""
    names = fitting_inputs(settings.section, path, name)
    lines = last_lines(path, LINES_MAX)
    session = start(settings)
    plan = compile_plan(settings.section)
    with java_classes.borrowed(session, settings.data_dir):
        for index, given in enumerate(names):
            topic = settings.section.from_[given].topic
            frame = _frame(session, topic, str(path), lines)
            counts = Folding(plan, as_blocks=False).fold_in_driver(frame)
            write(("\n" if index else "") + report(given, plan, counts, len(lines)))
            for sample in pattern_samples(session, settings.section, given, frame):
                write(f"  {sample.metric}: {sample}\n")


def fitting_inputs(section: StreamSection, path: Path, name: str | None) -> list[str]:
    """The named input; or those whose topic ends like one of the file's folders; or all."""
    if name is not None:
        if name not in section.from_:
            known = ", ".join(section.from_) or "none"
            raise DryRunFault(f"found input {name!r}, expected one of stream.from: {known}")
        return [name]
    folders = {part.lower() for part in path.resolve().parts[:-1]}
    fitting = [
        given
        for given, one in section.from_.items()
        if one.topic.rsplit(".", 1)[-1].lower() in folders
    ]
    if not section.from_:
        raise DryRunFault("found no input, expected one under stream.from")
    return fitting or list(section.from_)


def last_lines(path: Path, count: int) -> list[bytes]:
    """The last lines of a file, without their line ends."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DryRunFault(f"{path} cannot be read: {error.strerror}") from error
    if lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise DryRunFault(f"{path} holds no line")
    return [line.removesuffix(b"\r") for line in lines[-count:]]


def _frame(session: SparkSession, topic: str, file: str, lines: Sequence[bytes]) -> DataFrame:
    arrival = datetime.now(UTC)
    rows = [
        (bytearray(file.encode()), bytearray(line), topic, 0, place, arrival)
        for place, line in enumerate(lines)
    ]
    return session.createDataFrame(rows, COLUMNS_DDL).coalesce(1)


def report(name: str, plan: FoldPlan, counts: Counts, lines: int) -> str:
    """The text of one input's dry run."""
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
            text.extend(_metric(found, metric.slice_s))
    return "\n".join(text) + "\n"


def _unparsed(row: UnparsedRow) -> list[str]:
    counted = "counted in all alone" if row.reason.startswith(TIME_REASON) else "not counted"
    shown = [f"  {row.count} {counted}: {row.reason}"]
    for sample in row.samples[:SAMPLES_SHOWN]:
        line = sample.line.decode(errors="replace")
        cut = "…" if len(line) > LINE_SHOWN else ""
        shown.append(f"    line {sample.offset + 1}: {line[:LINE_SHOWN]!r}{cut}")
    return shown


def _metric(rows: Sequence[FoldRow], slice_s: int) -> list[str]:
    """The slices with the most lines, largest first."""
    if not rows:
        return ["  nothing"]
    largest = sorted(rows, key=lambda row: (-row.count, row.slice_start_s, str(row.key)))
    shown = []
    for row in largest[:ROWS_SHOWN]:
        key = " | ".join("(null)" if part is None else part for part in row.key) or "*"
        start = f"{datetime.fromtimestamp(row.slice_start_s, UTC):%Y-%m-%d %H:%M:%S}  "
        start = "no time              " if row.slice_start_s == NO_TIME_S else start
        numbers = "" if row.sum is None else f"  sum {row.sum:f}  min {row.min:f}  max {row.max:f}"
        shown.append(f"  {start if slice_s else ''}{key}  count {row.count}{numbers}")
    if len(largest) > ROWS_SHOWN:
        shown.append(f"  … and {len(largest) - ROWS_SHOWN} more")
    return shown
