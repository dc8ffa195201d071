"""Spark's Kafka source logs in over TLS, and shows its password nowhere (pitfall 23)."""

import os
import stat
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from protocol.security.cluster_security import ClusterEntry, ClusterSecurity
from protocol.security.scram import Mechanism
from sinks.rows import OffsetRange
from stream.config.settings import StreamSection
from stream.source.admission import Admission
from stream.source.checkpoint import CheckpointFolder
from stream.source.entry import entry_options, with_password_file
from stream.source.kafka import Divider, kafka_options, offsets_since, read_kafka, read_ranges
from tests.harness.broker import BrokerProcess
from tests.harness.certificates import TestAuthority
from tests.harness.secured import give_password
from tests.interop.stream_spark import has_connector, spark

pytestmark = pytest.mark.live

TOPIC = "logs.t"
USER, CANARY = "shop", 'canary, "horse" \\ battery'
LINES = 20
TIMEOUT_S = 120.0
SECTION = StreamSection.model_validate(
    {"from": {"t": {"topic": TOPIC, "format": "raw"}}, "metrics": []}
)


def entry_of(broker: BrokerProcess, authority: TestAuthority, password: str) -> ClusterEntry:
    security = ClusterSecurity(ca=str(authority.file), user=USER, password=password)
    return ClusterEntry(broker.net_bootstrap, security)


@pytest.mark.skipif(not has_connector(), reason="set-up has not fetched Spark's Kafka connector")
def test_pitfall_23_the_source_logs_in_and_shows_no_password(
    tmp_path: Path, authority: TestAuthority
) -> None:
    checkpoint = CheckpointFolder(tmp_path / "checkpoint")
    read: list[bytes] = []
    shown: list[str] = []
    done = threading.Event()

    def note(frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("value").collect()
        read.extend(bytes(row[0]) for row in rows)
        shown.append(str(frame._jdf.queryExecution().toString()))
        if len(read) >= LINES:
            done.set()

    with BrokerProcess(
        tmp_path / "broker", {"num.partitions": 1}, tls=authority.write(), needs_login=True
    ) as broker:
        give_password(broker.bootstrap, USER, CANARY, Mechanism.SHA_512)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        lines = [b"line %d" % number for number in range(LINES)]
        for line in lines:
            producer.produce(TOPIC, line, partition=0)
        producer.flush(30)
        stated = entry_of(broker, authority, CANARY)
        assert offsets_since(stated, "test", [TOPIC], None)[TOPIC, 0] == 0
        entry = with_password_file(stated, tmp_path)
        assert entry.security is not None and entry.security.password_file is not None
        assert stat.S_IMODE(os.stat(entry.security.password_file).st_mode) == 0o600
        options = kafka_options(SECTION, entry, {TOPIC: {"0": 0}})
        query = (
            read_kafka(spark(), options, Divider(Admission(9_000), lambda _: None))
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", checkpoint.location)
            .start()
        )
        try:
            assert done.wait(TIMEOUT_S), query.exception()
            query.processAllAvailable()
            shown += [str(query.recentProgress), str(query.lastProgress)]
            shown.append(str(query._jsq.toString()))
        finally:
            query.stop()
        again = read_ranges(spark(), options, [OffsetRange(TOPIC, 0, 0, LINES)])
        assert [bytes(row.value) for row in again.select("value").collect()] == lines
        shown.append(str(again._jdf.queryExecution().toString()))
    assert sorted(read) == sorted(lines)
    shown += map(str, spark().sparkContext.getConf().getAll())
    shown += [str(options), repr(entry), repr(stated)]
    shown += [
        path.read_bytes().decode(errors="replace")
        for path in checkpoint.folder.rglob("*")
        if path.is_file()
    ]
    assert len(shown) > 10
    assert [text for text in shown if "canary" in text or "horse" in text] == []


def test_names_are_quoted_in_the_options_of_the_login() -> None:
    security = ClusterSecurity(user='sh"op\\', password_file="/a b")
    assert entry_options(ClusterEntry("mill:9192", security))["kafka.sasl.jaas.config"] == (
        r'millrace.PasswordFile required username="sh\"op\\" passwordFile="/a b" changed="0";'
    )


def test_options_for_tls_without_a_login() -> None:
    entry = ClusterEntry("mill:9192", ClusterSecurity(ca="/mill/ca.pem"))
    assert entry_options(entry) == {
        "kafka.bootstrap.servers": "mill:9192",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/mill/ca.pem",
    }
    assert entry_options(ClusterEntry("mill:9092")) == {"kafka.bootstrap.servers": "mill:9092"}
