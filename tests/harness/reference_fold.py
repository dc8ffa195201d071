"""A second fold in Python, line by line and written independently, to check the stream's fold.

Spark's own plan of the judging query parses the lines here. The stream's fold never runs that plan.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import datasketches
from pyspark.sql import DataFrame

from sinks.cells.merge import window_start
from sinks.estimates import KLL_K
from sinks.rows import ALL_WINDOW_S, NO_TIME_S, FoldRow, UnparsedSample
from sinks.values import ARITHMETIC
from stream.fold.compile import COUNTED, FAULTY, LINE_COLUMNS, LINES_VIEW, FoldPlan, MetricColumns
from stream.fold.counts import BatchCounts, Key, PartitionCount, Reason, fault_reason, unparsed_rows
from stream.fold.groupings import SAMPLES
from stream.parse.times import TIME_REASON
from tests.harness.hashing import sketch_of, word_of

_Line = Sequence[Any]
_Cells = dict[tuple[int, Key], Any]


@dataclass(slots=True)
class _Measured:
    """The exact values of one group, and its sketch if the measure has one."""

    count: int = 0
    total: Any = 0
    least: Any = None
    most: Any = None
    sketch: Any = None


@dataclass(slots=True)
class _Folder:
    """The counts of one metric for a batch, by slice and key."""

    reading: MetricColumns
    verdict_at: int | None
    value_at: int | None
    keys_at: tuple[int, ...]
    add: Callable[[_Cells, tuple[int, Key], Any], None]
    cells: _Cells = field(default_factory=dict)

    def take(self, line: _Line, seconds: int) -> bool:
        """Count a parsed line. Return False if the metric cannot measure the line's value."""
        if self.verdict_at is not None:
            verdict = line[self.verdict_at]
            if verdict != COUNTED:
                return bool(verdict != FAULTY)
        slice_s = self.reading.slice_s
        if seconds == NO_TIME_S and ALL_WINDOW_S not in self.reading.windows_s:
            return True
        start_s = seconds if slice_s else 0
        if start_s != NO_TIME_S:
            start_s = window_start(seconds, slice_s, self.reading.zone)
        key = tuple([line[at] for at in self.keys_at])
        self.add(self.cells, (start_s, key), None if self.value_at is None else line[self.value_at])
        return True


class _Tally:
    """The counts of a batch apart from its metrics: each partition's last offset and time, and the
    lines that were not counted."""

    def __init__(self, plan: FoldPlan) -> None:
        self._plan = plan
        self._partitions: dict[tuple[str, int], list[Any]] = {}
        self._unparsed: dict[Reason, tuple[int, list[UnparsedSample]]] = {}
        self._kept: dict[tuple[Reason, int], int] = {}

    def line(self, topic: str, partition: int, offset: int, latest_s: int | None) -> None:
        """Record a line. `latest_s` is its time, or None if the line does not parse."""
        found = self._partitions.get((topic, partition))
        if found is None:
            self._partitions[topic, partition] = [1, offset, offset, latest_s]
            return
        found[0] += 1
        # The lines of a partition come in offset order, but their times can go back.
        found[2] = offset
        if latest_s is not None and (found[3] is None or latest_s > found[3]):
            found[3] = latest_s

    def not_counted(self, line: _Line, reason: str) -> None:
        """Record that a line is not counted, either by one metric or by none."""
        topic, partition, offset, file, _, _, sample = line[: len(LINE_COLUMNS)]
        why = Reason(topic, file, reason)
        count, samples = self._unparsed.get(why, (0, []))
        self._unparsed[why] = (count + 1, samples)
        if self._kept.setdefault((why, partition), 0) < SAMPLES:
            self._kept[why, partition] += 1
            samples.append(UnparsedSample(partition, offset, bytes(sample)))

    def counts(self, rows: list[FoldRow]) -> BatchCounts:
        """Return the counts of the batch, which include these rows of the metrics."""
        partitions = [
            PartitionCount(*place, *found) for place, found in sorted(self._partitions.items())
        ]
        return BatchCounts(rows, unparsed_rows(self._unparsed), partitions)


def reference_counts(lines: DataFrame, plan: FoldPlan) -> BatchCounts:
    """Judge and fold lines that have the columns of `kafka.COLUMNS_DDL`."""
    lines.createOrReplaceTempView(LINES_VIEW)
    return fold_lines(lines.sparkSession.sql(plan.lines_sql).collect(), plan)


def fold_lines(lines: Iterable[_Line], plan: FoldPlan) -> BatchCounts:
    """Fold parsed lines, whose values are in the order of `plan.columns`.

    The lines of a partition must come in offset order.
    """
    folders = [_folder(reading, plan) for reading in plan.readings]
    by_topic: dict[str, list[_Folder]] = {}
    for folder in folders:
        for topic in folder.reading.topics:
            by_topic.setdefault(topic, []).append(folder)
    tally = _Tally(plan)
    for line in lines:
        topic, partition, offset, _, reason, seconds = line[: len(LINE_COLUMNS) - 1]
        tally.line(topic, partition, offset, seconds if reason is None else None)
        if reason is not None:
            tally.not_counted(line, reason)
            if not reason.startswith(TIME_REASON):
                continue
            seconds = NO_TIME_S
        for folder in by_topic.get(topic, ()):
            if not folder.take(line, seconds):
                tally.not_counted(line, fault_reason(plan, folder.reading.number))
    return tally.counts([row for folder in folders for row in _rows(folder, plan)])


def _folder(reading: MetricColumns, plan: FoldPlan) -> _Folder:
    at = {name: index for index, name in enumerate(plan.columns)}
    add = {
        "count": _add_line,
        "unique": _add_distinct,
        "percentile": _add_ranked,
    }.get(reading.measure, _add_measured)
    return _Folder(
        reading,
        None if reading.verdict is None else at[reading.verdict],
        None if reading.value is None else at[reading.value],
        tuple(at[name] for name in reading.keys),
        add,
    )


def _add_line(cells: _Cells, group: tuple[int, Key], _: object) -> None:
    cells[group] = cells.get(group, 0) + 1


def _add_measured(cells: _Cells, group: tuple[int, Key], value: Any) -> None:
    found: _Measured | None = cells.get(group)
    if found is None:
        found = cells[group] = _Measured(least=value, most=value)
    found.count += 1
    # A sum can have more digits than the 28 of Python's default decimal context.
    found.total = (
        found.total + value if isinstance(value, int) else ARITHMETIC.add(found.total, value)
    )
    found.least = min(found.least, value)
    found.most = max(found.most, value)


def _add_distinct(cells: _Cells, group: tuple[int, Key], value: Any) -> None:
    found: _Measured | None = cells.get(group)
    if found is None:
        found = cells[group] = _Measured(sketch=set())
    found.count += 1
    found.sketch.add(value)


def _add_ranked(cells: _Cells, group: tuple[int, Key], value: Any) -> None:
    _add_measured(cells, group, value)
    found: _Measured = cells[group]
    if found.sketch is None:
        found.sketch = datasketches.kll_doubles_sketch(KLL_K)
    found.sketch.update(float(value))


def _rows(folder: _Folder, plan: FoldPlan) -> Iterable[FoldRow]:
    name = plan.metrics[folder.reading.number].name
    measure = folder.reading.measure
    for (start_s, key), found in folder.cells.items():
        if measure == "count":
            yield FoldRow(name, start_s, key, found)
        elif measure == "unique":
            hll = sketch_of(map(word_of, found.sketch))
            yield FoldRow(name, start_s, key, found.count, hll=hll)
        else:
            numbers = (Decimal(found.total), Decimal(found.least), Decimal(found.most))
            kll = bytes(found.sketch.serialize()) if found.sketch is not None else None
            yield FoldRow(name, start_s, key, found.count, *numbers, kll=kll)
