"""An expression that raises on a line is NULL for that line: Catalyst's TryEval under a name.

Spark's SQL has no function for it, so `register` gives a session one.
"""

from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

FUNCTION = "millrace_try"


class _Builder:
    """What Spark's analyser calls to make the expression; the JVM holds it by reference."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm

    def apply(self, arguments: Any) -> Any:
        """The expression for a call of the function with one argument."""
        return self._jvm.org.apache.spark.sql.catalyst.expressions.TryEval(arguments.apply(0))

    class Java:
        """Which interface of the JVM's this object stands for."""

        implements = ("scala.Function1",)


def attempt(sql: str) -> str:
    """The expression, NULL where evaluating it raises an exception."""
    return f"{FUNCTION}({sql})"


def register(session: SparkSession) -> None:
    """Let the session, and those cloned from it, know the function."""
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = SparkContext._gateway
    assert gateway is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # untyped in PySpark
    registry = session._jsparkSession.sessionState().functionRegistry()
    registry.createOrReplaceTempFunction(FUNCTION, _Builder(session._jvm), "built-in")
