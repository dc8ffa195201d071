"""Spark's own Kafka connector writes to the broker and reads the same records."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

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
        # The stream's session writes to Kafka by Spark's DataSource V2, which requires a save mode.
        to = rows.write.format("kafka").options(**options, **patient, topic="spark")
        to.mode("append").save()
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


@pytest.mark.skipif(not has_connector(), reason="set-up has not fetched Spark's Kafka connector")
def test_spark_reads_only_what_was_committed(tmp_path: Path) -> None:
    """Aborted records and markers leave gaps in the offsets. Spark must not report them as data
    loss."""
    with BrokerProcess(tmp_path, {"num.partitions": 1}) as broker:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": "for-spark"}
        )
        producer.init_transactions(30)
        for turn in range(6):
            producer.begin_transaction()
            for number in range(100):
                producer.produce("spark", value=f"{'aborted' if turn % 2 else turn} {number}")
            if turn % 2:
                producer.flush(30)
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "spark"}

        def read(isolation: str) -> list[str]:
            frame = (
                spark()
                .read.format("kafka")
                .options(**options, **{"kafka.isolation.level": isolation})
                .load()
            )
            return sorted(row.value for row in frame.selectExpr("CAST(value AS STRING)").collect())

        wanted = sorted(f"{turn} {number}" for turn in (0, 2, 4) for number in range(100))
        assert read("read_committed") == wanted
        assert len(read("read_uncommitted")) == 600
