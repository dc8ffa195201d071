"""Reads parts of a batch from the topics again, and counts them in the same way as the batch.

This module uses Spark. `bisection.py` decides which parts to read.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from sinks.rows import OffsetRange
from sinks.unparsed import SAMPLE_BYTES_MAX
from stream.fold.compile import FoldPlan, valid_text
from stream.fold.counts import NO_FILE, BatchCounts
from stream.fold.folding import Folding
from stream.quarantine.search import Part, size_of
from stream.source.checkpoint import Offsets
from stream.source.kafka import made_lines, read_ranges


class SparkParts:
    """The parts of one batch; implements `BatchParts`.

    `session` is the session of the batch's frame, `options` are the options of the stream's source.
    `count` folds a frame, given the number of its offsets. `tasks` returns the number of tasks for
    reading that many offsets.
    """

    def __init__(
        self,
        session: SparkSession,
        options: Mapping[str, str],
        plan: FoldPlan,
        count: Callable[[DataFrame, int], BatchCounts],
        tasks: Callable[[SparkSession, int], int | None],
        first_offsets: Callable[[], Offsets],
    ) -> None:
        self._session = session
        self._options = options
        self._plan = plan
        self._count = count
        self._tasks = tasks
        self.first_offsets = first_offsets

    def count(self, part: Part) -> BatchCounts:
        """Fold the lines of a part, and return the counts."""
        offsets = size_of(part)
        tasks = self._tasks(self._session, offsets)
        return self._count(read_ranges(self._session, self._options, part, tasks), offsets)

    def read_line(self, one: OffsetRange) -> tuple[str, bytes]:
        """Return file and first bytes of the record at a single offset, without judging it."""
        found = (
            read_ranges(self._session, self._options, [one])
            .selectExpr(valid_text("key"), f"substring(value, 1, {SAMPLE_BYTES_MAX})")
            .collect()
        )
        file, line = found[0] if found else (None, None)
        return NO_FILE if file is None else file, b"" if line is None else bytes(line)

    def check(self) -> None:
        """Count made-up lines. Raises the error if Spark cannot count even these."""
        topics = {topic for reading in self._plan.readings for topic in reading.topics}
        if topics:
            lines = made_lines(self._session, sorted(topics))
            Folding(self._plan, as_blocks=False).fold_in_driver(lines)
