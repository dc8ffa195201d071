"""The fold of one batch's lines: a small batch by the driver, a large one by Spark's tasks.

The lines of a small batch come here as they are (`judging.py`). A large one is folded where it is
read (`large_fold.py`), and what comes here are its cells.
"""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from stream.compile import FoldPlan
from stream.counts import Counts
from stream.judging import Judging
from stream.large_fold import LargeFold
from stream.small_fold import fold_lines

# Up to this many lines the driver folds itself: more cells cost it more than Spark's two stages.
SMALL_BATCH_LINES = 2_000


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

    def fold_small(self, lines: DataFrame) -> Counts:
        """Judge and group the lines in the driver."""
        rows = lines._jdf.queryExecution().executedPlan().executeCollect()
        return self.fold_rows(lines.sparkSession, rows)

    def fold_rows(self, session: SparkSession, rows: Any) -> Counts:
        """Judge and group what is here already: Java's array of Spark's rows."""
        return fold_lines(self._judge(session).judge(rows), self._plan)

    def fold_large(self, lines: DataFrame) -> Counts:
        """Let Spark's tasks judge and group the lines."""
        return self._large.fold(lines, self._judge(lines.sparkSession))

    def _judge(self, session: SparkSession) -> Judging:
        if self._judging is None:
            self._judging = Judging(session, self._plan)
        return self._judging
