"""The fold of one batch's lines: in the driver while they are few, in Spark's tasks when many.

It is one fold (`java_fold.py`), and what comes here are cells. On a cluster tasks do all of it, for
the driver would be what all executors wait for.
"""

from pyspark.sql import DataFrame, SparkSession

from stream.fold.compile import FoldPlan
from stream.fold.counts import Counts
from stream.fold.java_fold import JavaFold
from stream.fold.judging import Judging
from stream.source.kafka import Span, tasks_for

# The cells of so many lines come as rows, which cost 130 microseconds each where one in a block
# costs 10, but need no look at what the server made of them.
SMALL_BATCH_LINES = 1_000

# Up to this many lines of the running stream are read by a local driver: a job takes 0.15 s.
READ_HERE_LINES = 20_000


class Folding:
    """Folds the lines of one query's batches; they have the columns of `kafka.COLUMNS_DDL`.

    `as_blocks` says whether the sinks take cells as text; without, all cells come as rows.
    `is_local` says that tasks run in the driver's own process.
    """

    def __init__(self, plan: FoldPlan, *, as_blocks: bool, is_local: bool = True) -> None:
        self.is_local = is_local
        self._plan = plan
        self._judging: Judging | None = None
        self._large = JavaFold(plan, as_blocks=as_blocks)
        self._small = JavaFold(plan, as_blocks=False)

    def fold(self, lines: DataFrame, offsets: int) -> Counts:
        """Fold lines that cover so many offsets."""
        if self.is_local and offsets <= SMALL_BATCH_LINES:
            return self.fold_in_driver(lines)
        return self.fold_in_tasks(lines, self.tasks(lines.sparkSession, offsets))

    def tasks(self, session: SparkSession, offsets: int) -> int | None:
        """By how many tasks lines that cover so many offsets are read; None: it does not matter.

        In the driver's process they are never so few that they could not fill all its cores.
        """
        return (
            None if self.is_local else tasks_for(offsets, session.sparkContext.defaultParallelism)
        )

    def fold_here(self, session: SparkSession, span: Span, offsets: int) -> Counts:
        """Read and fold what the running stream has in a span, which covers so many offsets."""
        fold = self._small if offsets <= SMALL_BATCH_LINES else self._large
        return fold.of_span(session, span, self._judge(session))

    def fold_in_driver(self, lines: DataFrame) -> Counts:
        """Judge and fold lines that are few, brought to the driver; all cells come as rows."""
        return self._small.of_few(lines, self._judge(lines.sparkSession))

    def fold_in_tasks(self, lines: DataFrame, tasks: int | None = None) -> Counts:
        """Let Spark's tasks judge and fold the lines; their cells meet in one on each core."""
        session = lines.sparkSession
        cores = session.sparkContext.defaultParallelism
        return self._large.of_many(lines, self._judge(session), min(cores, tasks or cores), cores)

    def _judge(self, session: SparkSession) -> Judging:
        if self._judging is None:
            self._judging = Judging(session, self._plan)
        return self._judging
