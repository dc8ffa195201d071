"""The fold as Spark runs it, and its rows as the sinks take them.

`rows_of` and `group` are DataFrame to DataFrame and call no action; `read_rows` turns what one
`collect()` brought back into the sinks' plain rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame

from sinks.rows import FoldRow, UnparsedRow, UnparsedSample
from stream.compile import (
    EXPRESSION_NULL,
    FAULT,
    LINES_VIEW,
    PARTITION,
    ROWS_VIEW,
    SAMPLES,
    UNPARSED,
    FoldPlan,
)

NO_FILE = "(none)"


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """What a batch holds of one partition: its lines, and the latest time among them."""

    topic: str
    partition: int
    lines: int
    first_offset: int
    last_offset: int
    latest_s: int | None


@dataclass(frozen=True, slots=True)
class Counts:
    """A folded batch."""

    rows: Sequence[FoldRow]
    unparsed: Sequence[UnparsedRow]
    partitions: Sequence[PartitionCount]

    @property
    def lines(self) -> int:
        return sum(partition.lines for partition in self.partitions)

    @property
    def latest_s(self) -> int | None:
        """The latest time of any line that was counted."""
        return max((p.latest_s for p in self.partitions if p.latest_s is not None), default=None)


def rows_of(lines: DataFrame, plan: FoldPlan) -> DataFrame:
    """Lines, with the columns of Spark's Kafka source, as rows to be grouped."""
    lines.createOrReplaceTempView(LINES_VIEW)
    return lines.sparkSession.sql(plan.rows_sql)


def group(rows: DataFrame, sql: str) -> DataFrame:
    """Group rows by one of the plan's queries over them."""
    rows.createOrReplaceTempView(ROWS_VIEW)
    return rows.sparkSession.sql(sql)


def fold(lines: DataFrame, plan: FoldPlan) -> DataFrame:
    """Both steps at once, for lines that are no stream; samples included."""
    return group(rows_of(lines, plan), plan.sampled_groups_sql)


def read_rows(collected: Iterable[Any], plan: FoldPlan) -> Counts:
    """Sort the collected groups into metrics, unparsed lines and partitions."""
    rows: list[FoldRow] = []
    partitions: list[PartitionCount] = []
    unparsed: dict[_Reason, tuple[int, list[UnparsedSample]]] = {}
    for m, s, k1, k2, k3, count, total, least, most, low, high, latest, *more in collected:
        sample, hll, kll = more
        if m == PARTITION:
            partitions.append(PartitionCount(k1, s, count, low, high, latest))
        elif m < 0:
            reason = _reason(plan, m, k1, k2, k3)
            known, samples = unparsed.setdefault(reason, (0, []))
            if sample is not None:
                samples.append(UnparsedSample(s // SAMPLES, low, bytes(sample)))
            unparsed[reason] = (known + count, samples)
        else:
            numbers = (total, least, most)
            rows.append(_fold_row(plan, m, s, (k1, k2, k3), count, numbers, hll, kll))
    partitions.sort(key=lambda partition: (partition.topic, partition.partition))
    return Counts(rows, _unparsed_rows(unparsed), partitions)


def add_samples(counts: Counts, collected: Iterable[Any], plan: FoldPlan) -> Counts:
    """Counts of a large batch, with what `samples_sql` brought back."""
    unparsed: dict[_Reason, tuple[int, list[UnparsedSample]]] = {
        (row.topic, row.file, row.reason): (row.count, []) for row in counts.unparsed
    }
    for m, s, k1, k2, k3, low, sample in collected:
        if sample is not None:
            _, samples = unparsed[_reason(plan, m, k1, k2, k3)]
            samples.append(UnparsedSample(s // SAMPLES, low, bytes(sample)))
    return Counts(counts.rows, _unparsed_rows(unparsed), counts.partitions)


_Reason = tuple[str, str, str]


def _reason(plan: FoldPlan, m: int, topic: str, file: str | None, reason: str | None) -> _Reason:
    name = reason if m == UNPARSED else EXPRESSION_NULL + plan.metrics[FAULT - m].name
    assert name is not None
    return topic, file if file is not None else NO_FILE, name


def _unparsed_rows(
    unparsed: dict[_Reason, tuple[int, list[UnparsedSample]]],
) -> list[UnparsedRow]:
    return [
        UnparsedRow(*reason, count, tuple(sorted(samples, key=_place)))
        for reason, (count, samples) in sorted(unparsed.items())
    ]


def _fold_row(
    plan: FoldPlan,
    number: int,
    slice_start_s: int,
    keys: tuple[str | None, ...],
    count: int,
    numbers: tuple[Decimal | None, ...],
    hll: bytes | None,
    kll: bytes | None,
) -> FoldRow:
    metric = plan.metrics[number]
    measure = metric.definition.measure
    total, low, high = numbers
    return FoldRow(
        metric.name,
        slice_start_s,
        keys[: len(metric.key)],
        count,
        total,
        low,
        high,
        # A group has a sketch of every kind that any metric asks for; others' are empty.
        bytes(hll) if measure == "unique" and hll is not None else None,
        bytes(kll) if measure == "percentile" and kll is not None else None,
    )


def _place(sample: UnparsedSample) -> tuple[int, int]:
    return sample.partition, sample.offset
