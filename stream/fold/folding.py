"""The fold of one batch's lines: by the driver while they are few, by Spark's tasks when many.

The lines of a small batch come here as they are (`judging.py`, `small_fold.py`). A larger one is
folded where it is read (`large_fold.py`), and what comes here are its cells. So it is with every
batch on a cluster, where the driver would be what all executors wait for.
"""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from stream.fold.compile import FoldPlan
from stream.fold.counts import Counts
from stream.fold.judging import Judging
from stream.fold.large_fold import LargeFold
from stream.fold.small_fold import fold_lines
from stream.source.kafka import Span, read_here, tasks_for

# Up to this many lines are folded by Python: their cells come as rows, which cost 130 microseconds
# each where one in a block costs 10, but need no look at what the server made of them.
SMALL_BATCH_LINES = 1_000

# Up to this many lines of the running stream are read by a local driver: a job takes 0.15 s.
READ_HERE_LINES = 20_000


class Folding:
    """Folds the lines of one query's batches; they have the columns of `sources.COLUMNS_DDL`.

    `as_blocks` says whether the sinks take cells as text; without, all cells come as rows.
    `is_local` says that tasks run in the driver's own process.
    """

    def __init__(self, plan: FoldPlan, *, as_blocks: bool, is_local: bool = True) -> None:
        self.is_local = is_local
        self._plan = plan
        self._judging: Judging | None = None
        self._large = LargeFold(plan, as_blocks=as_blocks)

    def fold(self, lines: DataFrame, offsets: int) -> Counts:
        """Fold lines that cover so many offsets."""
        if self.is_local and offsets <= SMALL_BATCH_LINES:
            return self.fold_small(lines)
        return self.fold_large(lines, self.tasks(lines.sparkSession, offsets))

    def tasks(self, session: SparkSession, offsets: int) -> int | None:
        """By how many tasks lines that cover so many offsets are read; None: it does not matter.

        In the driver's process they are never so few that they could not fill all its cores.
        """
        return (
            None if self.is_local else tasks_for(offsets, session.sparkContext.defaultParallelism)
        )

    def fold_here(self, session: SparkSession, span: Span, offsets: int) -> Counts:
        """Read and fold what the running stream has in a span, which covers so many offsets."""
        if offsets <= SMALL_BATCH_LINES:
            return self._fold_rows(session, read_here(session, span))
        return self._large.fold_here(session, span, self._judge(session))

    def fold_small(self, lines: DataFrame) -> Counts:
        """Judge and group the lines in the driver."""
        rows = lines._jdf.queryExecution().executedPlan().executeCollect()
        return self._fold_rows(lines.sparkSession, rows)

    def fold_large(self, lines: DataFrame, tasks: int | None = None) -> Counts:
        """Let Spark's tasks judge and group the lines; their cells meet in one on each core."""
        session = lines.sparkSession
        cores = session.sparkContext.defaultParallelism
        return self._large.fold(lines, self._judge(session), min(cores, tasks or cores))

    def _fold_rows(self, session: SparkSession, rows: Any) -> Counts:
        return fold_lines(self._judge(session).judge(rows), self._plan)

    def _judge(self, session: SparkSession) -> Judging:
        if self._judging is None:
            self._judging = Judging(session, self._plan)
        return self._judging
