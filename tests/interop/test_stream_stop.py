"""A query that stops late is not taken for the end of the JVM."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from stream.overseer import stop_query
from tests.harness.wait import wait_until
from tests.interop.stream_spark import spark

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

STOP_TIMEOUT = "spark.sql.streaming.stopTimeout"


def test_a_query_that_does_not_stop_in_time_is_stopped_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark raises an error then, as if the JVM had ended. A query stops late while it waits for a
    broker or for a thread of Python."""
    session, begins, may_end = spark(), threading.Event(), threading.Event()

    def batch(_: DataFrame, __: int) -> None:
        begins.set()
        may_end.wait(120)

    before = session.conf.get(STOP_TIMEOUT)
    assert before is not None
    session.conf.set(STOP_TIMEOUT, "1s")
    query = (
        session.readStream.format("rate")
        .load()
        .writeStream.foreachBatch(batch)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        assert begins.wait(120)
        assert not stop_query(query)
        assert "the query has not stopped in time" in caplog.text
        may_end.set()
        wait_until(lambda: stop_query(query), 60, "the query stops")
        assert not query.isActive
    finally:
        may_end.set()
        session.conf.set(STOP_TIMEOUT, before)
