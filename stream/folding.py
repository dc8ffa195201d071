"""The fold of one batch's lines, through Spark: a small batch by the driver, a large one by Spark.

A small batch takes one action, which brings its lines here (`judging.py`). A large one is judged by
Spark, kept in memory, and read by each grouping; what comes back is as large as the cells it holds,
and not as the lines.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame

from sinks.rows import CellBlock, FoldRow, UnparsedRow, UnparsedSample
from stream.compile import FoldPlan, Reading
from stream.counts import (
    Counts,
    PartitionCount,
    Reason,
    fault_reason,
    unparsed_rows,
)
from stream.groupings import (
    JUDGED_VIEW,
    KEPT_VIEW,
    SAMPLES,
    additive_groupings,
    additive_sql,
    faulty_readings,
    samples_sql,
    sketched_readings,
    sketched_sql,
    tally_sql,
)
from stream.judging import Judging, judged
from stream.small_fold import fold_lines

# Up to this many lines the driver folds itself.
SMALL_BATCH_LINES = 20_000

logger = logging.getLogger(__name__)

_Unparsed = dict[Reason, tuple[int, list[UnparsedSample]]]


class Folding:
    """Folds the lines of one query's batches; they have the columns of `sources.COLUMNS_DDL`.

    `as_blocks` says whether the sinks take cells as text; without, all cells come as rows.
    """

    def __init__(self, plan: FoldPlan, *, as_blocks: bool) -> None:
        self._plan = plan
        self._as_blocks = as_blocks
        self._judging: Judging | None = None
        self._sampled = _Sampled()
        self._tally_sql = tally_sql(plan)
        self._samples_sql = samples_sql(plan)
        self._additive = [
            additive_sql(plan, grouping, as_blocks=as_blocks)
            for grouping in additive_groupings(plan)
        ]
        self._sketched = [(reading, sketched_sql(reading)) for reading in sketched_readings(plan)]

    def fold(self, lines: DataFrame, offsets: int, now_ms: int) -> Counts:
        """Fold lines that cover so many offsets."""
        if offsets <= SMALL_BATCH_LINES:
            return self.fold_small(lines)
        return self.fold_large(lines, now_ms)

    def fold_small(self, lines: DataFrame) -> Counts:
        """Judge and group the lines in the driver."""
        if self._judging is None:
            self._judging = Judging(lines.sparkSession, self._plan)
        return fold_lines(self._judging.judge(lines), self._plan)

    def fold_large(self, lines: DataFrame, now_ms: int) -> Counts:
        """Let Spark group the lines; samples of lines not counted take a second reading of them."""
        frame = judged(lines, self._plan)
        kept = frame.drop("sample").persist()
        try:
            kept.createOrReplaceTempView(KEPT_VIEW)
            session = frame.sparkSession
            unparsed: _Unparsed = {}
            partitions = self._tallied(session.sql(self._tally_sql).collect(), unparsed)
            rows: list[FoldRow] = []
            blocks: list[CellBlock] = []
            for sql in self._additive:
                self._additive_cells(session.sql(sql).collect(), rows, blocks)
            for reading, sql in self._sketched:
                rows += self._sketched_rows(session.sql(sql).collect(), reading)
        finally:
            kept.unpersist()
        not_counted = unparsed_rows(unparsed)
        if self._sampled.wants(not_counted, now_ms):
            frame.createOrReplaceTempView(JUDGED_VIEW)
            self._add_samples(session.sql(self._samples_sql).collect(), unparsed)
            not_counted = unparsed_rows(unparsed)
            self._sampled.note(not_counted)
        return Counts(rows, not_counted, partitions, blocks)

    def _tallied(self, collected: Iterable[Any], unparsed: _Unparsed) -> list[PartitionCount]:
        faulty = faulty_readings(self._plan)
        partitions: dict[tuple[str, int], PartitionCount] = {}

        def not_counted(why: Reason, lines: int) -> None:
            if lines:
                unparsed[why] = (unparsed.get(why, (0, []))[0] + lines, [])

        for topic, partition, file, reason, lines, low, high, latest, faults in collected:
            one = PartitionCount(topic, partition, lines, low, high, latest)
            place = (topic, partition)
            partitions[place] = partitions[place].joined(one) if place in partitions else one
            if reason is not None:
                not_counted(Reason(topic, file, reason), lines)
                continue
            for reading, count in zip(faulty, faults, strict=True):
                not_counted(Reason(topic, file, fault_reason(self._plan, reading.number)), count)
        return [partitions[place] for place in sorted(partitions)]

    def _additive_cells(
        self, collected: Iterable[Any], rows: list[FoldRow], blocks: list[CellBlock]
    ) -> None:
        for number, size_s, start_s, keys, body, cells in collected:
            metric = self._plan.metrics[number]
            if body is not None:
                blocks.append(CellBlock(metric.name, size_s, start_s, keys, bytes(body)))
            for *key, count, total, low, high in cells:
                own = tuple(key[: len(metric.key)])
                rows.append(FoldRow(metric.name, start_s, own, count, total, low, high))

    def _sketched_rows(self, collected: Iterable[Any], reading: Reading) -> Iterable[FoldRow]:
        metric = self._plan.metrics[reading.number]
        is_hll = reading.measure == "unique"
        for start_s, k1, k2, k3, count, total, low, high, sketch in collected:
            key = (k1, k2, k3)[: len(metric.key)]
            hll, kll = (bytes(sketch), None) if is_hll else (None, bytes(sketch))
            yield FoldRow(metric.name, start_s, key, count, total, low, high, hll, kll)

    def _add_samples(self, collected: Iterable[Any], unparsed: _Unparsed) -> None:
        for topic, partition, file, reason, number, low, sample in collected:
            why = Reason(
                topic, file, reason if reason is not None else fault_reason(self._plan, number)
            )
            unparsed[why][1].append(UnparsedSample(partition, low, bytes(sample)))


class _Sampled:
    """How many samples a file has given today; the sinks keep no more of it than SAMPLES."""

    def __init__(self) -> None:
        self._day = 0
        self._given: dict[tuple[str, str], int] = {}

    def wants(self, unparsed: Sequence[UnparsedRow], now_ms: int) -> bool:
        """Is there a file among these of which more samples would be kept?"""
        day = now_ms // 86_400_000
        if day != self._day:
            self._day, self._given = day, {}
        return any(self._given.get((row.topic, row.file), 0) < SAMPLES for row in unparsed)

    def note(self, unparsed: Sequence[UnparsedRow]) -> None:
        """These samples are on their way to the sinks."""
        for row in unparsed:
            file = (row.topic, row.file)
            self._given[file] = self._given.get(file, 0) + len(row.samples)
