"""Spark's own Kafka connector against the broker: it writes, and reads what was written."""

from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.interop.stream_spark import has_connector, spark

pytestmark = pytest.mark.live

ROWS = 5_000


@pytest.mark.skipif(not has_connector(), reason="set-up has not fetched Spark's Kafka connector")
def test_spark_writes_and_reads(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"num.partitions": 3}) as broker:
        session = spark()
        rows = session.range(ROWS).selectExpr(
            "CAST(id AS STRING) AS key", "concat('line ', id) AS value"
        )
        options = {"kafka.bootstrap.servers": broker.bootstrap}
        patient = {"kafka.reconnect.backoff.ms": "60000", "kafka.reconnect.backoff.max.ms": "60000"}
        rows.write.format("kafka").options(**options, **patient, topic="spark").save()
        ends = [broker.partition("spark", number)["log_end_offset"] for number in range(3)]
        assert sum(ends) == ROWS
        assert all(ends)
        read = (
            session.read.format("kafka")
            .options(**options, subscribe="spark", **{"kafka.isolation.level": "read_committed"})
            .load()
            .selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
            .collect()
        )
        found = sorted((int(row.key), row.value) for row in read)
        assert found == [(number, f"line {number}") for number in range(ROWS)]
