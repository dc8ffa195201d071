"""The fold of one batch's lines: by the driver while they are few, by Spark's tasks when many.

The lines of a small batch come here as they are (`judging.py`, `small_fold.py`). A larger one is
folded where it is read (`large_fold.py`), and what comes here are its cells.
"""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from stream.compile import FoldPlan
from stream.counts import Counts
from stream.judging import Judging
from stream.large_fold import LargeFold
from stream.small_fold import fold_lines
from stream.sources import Span, read_here

# Up to this many lines are folded by Python: their cells come as rows, which cost 130 microseconds
# each where one in a block costs 10, but need no look at what the server made of them.
SMALL_BATCH_LINES = 1_000

# Up to this many lines of the running stream are read by the driver: a job takes 0.15 s.
READ_HERE_LINES = 20_000


class Folding:
    """Folds the lines of one query's batches; they have the columns of `sources.COLUMNS_DDL`.

    `as_blocks` says whether the sinks take cells as text; without, all cells come as rows.
    """

    def __init__(self, plan: FoldPlan, *, as_blocks: bool) -> None:
        self._plan = plan
        self._judging: Judging | None = None
        self._large = LargeFold(plan, as_blocks=as_blocks)

    def fold(self, lines: DataFrame, offsets: int) -> Counts:
        """Fold lines that cover so many offsets."""
        return self.fold_small(lines) if offsets <= SMALL_BATCH_LINES else self.fold_large(lines)

    def fold_here(self, session: SparkSession, span: Span, offsets: int) -> Counts:
        """Read and fold what the running stream has in a span, which covers so many offsets."""
        if offsets <= SMALL_BATCH_LINES:
            return self._fold_rows(session, read_here(session, span))
        return self._large.fold_here(session, span, self._judge(session))

    def fold_small(self, lines: DataFrame) -> Counts:
        """Judge and group the lines in the driver."""
        rows = lines._jdf.queryExecution().executedPlan().executeCollect()
        return self._fold_rows(lines.sparkSession, rows)

    def fold_large(self, lines: DataFrame) -> Counts:
        """Let Spark's tasks judge and group the lines."""
        return self._large.fold(lines, self._judge(lines.sparkSession))

    def _fold_rows(self, session: SparkSession, rows: Any) -> Counts:
        return fold_lines(self._judge(session).judge(rows), self._plan)

    def _judge(self, session: SparkSession) -> Judging:
        if self._judging is None:
            self._judging = Judging(session, self._plan)
        return self._judging
