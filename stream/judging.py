"""Judges a small batch of lines in the driver, by projections that Spark makes once.

To Spark each batch is a query, to be optimised and planned; the query that judges lines takes it a
tenth of a second, whatever the lines are. So a few lines are brought here as they came, and put
through the projections of that query, which Spark has planned when the first of them came.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.serializers import BatchedSerializer, CPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.util import _load_from_socket

from stream.compile import LINES_VIEW, FoldPlan
from stream.sources import COLUMNS_DDL

# How rows come from the JVM.
_LISTS = BatchedSerializer(CPickleSerializer())  # type: ignore[no-untyped-call]  # untyped in PySpark


def judged(lines: DataFrame, plan: FoldPlan) -> DataFrame:
    """Lines, with the columns of `sources.COLUMNS_DDL`, as judged lines of Spark's."""
    lines.createOrReplaceTempView(LINES_VIEW)
    return lines.sparkSession.sql(plan.lines_sql)


class Judging:
    """The projections of one plan."""

    def __init__(self, session: SparkSession, plan: FoldPlan) -> None:
        no_lines = session.createDataFrame(session.sparkContext.emptyRDD(), COLUMNS_DDL)
        planned = judged(no_lines, plan)._jdf.queryExecution().sparkPlan()
        jvm: Any = session._jvm
        self._judge = jvm.millrace.Judge(planned)

    def judge(self, lines: DataFrame) -> Sequence[Sequence[Any]]:
        """The judged lines, their values in the order of `plan.columns`.

        `lines` has the columns of `sources.COLUMNS_DDL`; lines of one partition keep their order.
        Raises OSError where the JVM has not sent all.
        """
        rows = lines._jdf.queryExecution().executedPlan().executeCollect()
        with _load_from_socket(self._judge.judge(rows), _LISTS) as sent:
            found = list(sent)
        if len(found) != len(rows):
            # To PySpark a socket that broke is the end of the rows.
            raise ConnectionResetError(f"Java has sent {len(found)} of {len(rows)} judged lines")
        return found
