"""Judges lines, by projections that Spark makes once.

To Spark each batch is a query, to be optimised and planned; the query that judges lines takes it
some tenths of a second, whatever the lines are. So lines are put through the projections of that
query, which Spark has planned when the first of them came: a few in the driver, which they are
brought to, and many in the tasks that read them.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from pyspark.serializers import BatchedSerializer, CPickleSerializer
from pyspark.sql import SparkSession
from pyspark.util import _load_from_socket

from stream.fold.compile import LINES_VIEW, FoldPlan
from stream.source.kafka import COLUMNS_DDL

# How rows come from the JVM.
_LISTS = BatchedSerializer(CPickleSerializer())  # type: ignore[no-untyped-call]  # untyped in PySpark


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

    def judge(self, rows: Any) -> Sequence[Sequence[Any]]:
        """The judged lines, their values in the order of `plan.columns`.

        `rows` is Java's array of Spark's rows, with the columns of `sources.COLUMNS_DDL`; lines of
        one partition keep their order. Raises OSError where the JVM has not sent all.
        """
        with _load_from_socket(self.java.judge(rows), _LISTS) as sent:
            found = list(sent)
        if len(found) != len(rows):
            # To PySpark a socket that broke is the end of the rows.
            raise ConnectionResetError(f"Java has sent {len(found)} of {len(rows)} judged lines")
        return found
