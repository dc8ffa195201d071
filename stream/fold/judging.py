"""Judges lines by projections that Spark plans only once.

For Spark each batch is a query that must be optimised and planned. For the query that judges lines
this takes some tenths of a second, however few the lines are. So lines are passed through
projections of that query, which Spark planned for the first batch.
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
        """`java` for tasks, as a broadcast variable of Spark."""
        return self.java.shared(self._context)
