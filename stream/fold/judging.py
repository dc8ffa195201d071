"""Judges lines by projections that Spark plans only once.

Spark optimises and plans a query again for each batch. For the query that judges lines this takes
some tenths of a second, even if there are few lines. So this module lets Spark plan the query once,
takes the projections from that plan, and passes the lines of every batch through them.
"""

from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession

from stream.fold.compile import LINES_VIEW, FoldPlan
from stream.source.kafka import COLUMNS_DDL


class Judging:
    """The planned projections of one FoldPlan. `java` is the Java object `Judge` that has them."""

    def __init__(self, session: SparkSession, plan: FoldPlan) -> None:
        no_lines = session.createDataFrame(session.sparkContext.emptyRDD(), COLUMNS_DDL)
        no_lines.createOrReplaceTempView(LINES_VIEW)
        planned = session.sql(plan.lines_sql)._jdf.queryExecution().sparkPlan()
        jvm: Any = session._jvm
        self.java: Any = jvm.millrace.Judge(planned)
        self._context: Any = session.sparkContext._jsc.sc()

    @cached_property
    def shared(self) -> Any:
        """The object `java` as a broadcast variable, for Spark's tasks."""
        return self.java.shared(self._context)
