"""Judges lines, by projections that Spark makes once.

To Spark each batch is a query, to be optimised and planned; the query that judges lines takes it
some tenths of a second, whatever the lines are. So lines are put through the projections of that
query, which Spark has planned when the first of them came, wherever they are folded.
"""

from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession

from stream.fold.compile import LINES_VIEW, FoldPlan
from stream.source.kafka import COLUMNS_DDL


class Judging:
    """The projections of one plan; `java` is the Java object `Judge`."""

    def __init__(self, session: SparkSession, plan: FoldPlan) -> None:
        no_lines = session.createDataFrame(session.sparkContext.emptyRDD(), COLUMNS_DDL)
        no_lines.createOrReplaceTempView(LINES_VIEW)
        planned = session.sql(plan.lines_sql)._jdf.queryExecution().sparkPlan()
        jvm: Any = session._jvm
        self.java: Any = jvm.millrace.Judge(planned)
        self._context: Any = session.sparkContext._jsc.sc()

    @cached_property
    def shared(self) -> Any:
        """`java` for tasks, a broadcast variable of Spark's."""
        return self.java.shared(self._context)
