"""The fold as Spark runs it, and its rows as the sinks take them.

`fold` is DataFrame to DataFrame and calls no action; `read_rows` turns what one `collect()`
brought back into the sinks' plain rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame

from sinks.rows import FoldRow, UnparsedRow, UnparsedSample
from stream.compile import BATCH_VIEW, PARTITION, SAMPLES, UNPARSED, FoldPlan

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


def fold(frame: DataFrame, plan: FoldPlan) -> DataFrame:
    """Fold a frame with the columns of Spark's Kafka source; the result has one row a group."""
    frame.createOrReplaceTempView(BATCH_VIEW)
    return frame.sparkSession.sql(plan.sql)


def read_rows(collected: Iterable[Any], plan: FoldPlan) -> Counts:
    """Sort the collected groups into metrics, unparsed lines and partitions."""
    rows: list[FoldRow] = []
    partitions: list[PartitionCount] = []
    unparsed: dict[tuple[str, str, str], tuple[int, list[UnparsedSample]]] = {}
    for m, s, k1, k2, k3, count, total, low, high, latest, sample, hll, kll in collected:
        if m == PARTITION:
            partitions.append(PartitionCount(k1, s, count, int(low), int(high), latest))
        elif m == UNPARSED:
            group = (k1, k2 if k2 is not None else NO_FILE, k3)
            known, samples = unparsed.get(group, (0, []))
            line = bytes(sample) if sample is not None else b""
            samples.append(UnparsedSample(s // SAMPLES, int(low), line))
            unparsed[group] = (known + count, samples)
        else:
            rows.append(_fold_row(plan, m, s, (k1, k2, k3), count, (total, low, high), hll, kll))
    found = [
        UnparsedRow(*group, count, tuple(sorted(samples, key=_place)))
        for group, (count, samples) in sorted(unparsed.items())
    ]
    partitions.sort(key=lambda partition: (partition.topic, partition.partition))
    return Counts(rows, found, partitions)


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
