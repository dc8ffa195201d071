"""Folds a batch's lines: in the driver if they are few, in Spark's tasks if they are many.

The driver and the tasks use the same code (`java_fold.py`). On a cluster, Spark's tasks fold all
batches, because the executors would have nothing to do while the driver folds one.
"""

from pyspark.sql import DataFrame, SparkSession

from stream.fold.compile import FoldPlan
from stream.fold.counts import BatchCounts
from stream.fold.java_fold import JavaFold
from stream.fold.judging import Judging
from stream.source.kafka import Span, tasks_for

# Up to this many lines, cells come as rows and not as blocks. A row costs 130 microseconds, and a
# cell in a block only 10. But the sinks must read the cells of a block back from the server, which
# they need not do for rows.
SMALL_BATCH_LINES = 1_000

# A local driver reads up to this many lines itself, because starting a Spark job takes 0.15 s.
READ_HERE_LINES = 20_000


class Folding:
    """Folds the batches of one query, whose lines have the columns of `kafka.COLUMNS_DDL`.

    `as_blocks`: the sinks accept cells as blocks of text; otherwise all cells come as rows.
    `is_local`: Spark's tasks run in the driver's own process, and not on a cluster.
    """

    def __init__(self, plan: FoldPlan, *, as_blocks: bool, is_local: bool = True) -> None:
        self.is_local = is_local
        self._plan = plan
        self._judging: Judging | None = None
        self._large = JavaFold(plan, as_blocks=as_blocks)
        self._small = JavaFold(plan, as_blocks=False)

    def fold(self, lines: DataFrame, offsets: int) -> BatchCounts:
        """Fold lines that cover this many offsets."""
        if self.is_local and offsets <= SMALL_BATCH_LINES:
            return self.fold_in_driver(lines)
        return self.fold_in_tasks(lines, self.tasks(lines.sparkSession, offsets))

    def tasks(self, session: SparkSession, offsets: int) -> int | None:
        """Return how many tasks should read this number of offsets; None lets Spark decide.

        In a local driver, Spark's own number of tasks already uses all cores.
        """
        return (
            None if self.is_local else tasks_for(offsets, session.sparkContext.defaultParallelism)
        )

    def fold_here(self, session: SparkSession, span: Span, offsets: int) -> BatchCounts:
        """Read and fold the lines of an offset range in the driver.

        `offsets` is their approximate number.
        """
        fold = self._small if offsets <= SMALL_BATCH_LINES else self._large
        return fold.of_span(session, span, self._judge(session))

    def fold_in_driver(self, lines: DataFrame) -> BatchCounts:
        """Judge and fold a few lines in the driver. All cells come as rows."""
        return self._small.of_few(lines, self._judge(lines.sparkSession))

    def fold_in_tasks(self, lines: DataFrame, tasks: int | None = None) -> BatchCounts:
        """Judge and fold lines in Spark's tasks. A second stage then combines their cells.

        The second stage has one task per core, or `tasks` if that is fewer.
        """
        session = lines.sparkSession
        cores = session.sparkContext.defaultParallelism
        return self._large.of_many(lines, self._judge(session), min(cores, tasks or cores), cores)

    def _judge(self, session: SparkSession) -> Judging:
        if self._judging is None:
            self._judging = Judging(session, self._plan)
        return self._judging
