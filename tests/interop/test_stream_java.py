"""The stream's Java classes in a real JVM: how they divide a batch and write a checkpoint."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

from protocol.security.cluster_security import ClusterEntry
from stream.config.settings import StreamSection
from stream.fold.compile import compile_plan
from stream.fold.folding import Folding
from stream.source.admission import PACED_LINES_FIRST, Admission
from stream.source.checkpoint import CheckpointFolder, Offsets
from stream.source.kafka import Divider, kafka_options, read_kafka, span_of
from tests.harness.broker import BrokerProcess
from tests.interop.stream_spark import has_connector, spark

pytestmark = pytest.mark.live

OLD, LIVE = 20_000, 10
TIMEOUT_S = 120.0
SECTION = StreamSection.model_validate(
    {"from": {"t": {"topic": "logs.t", "format": "raw"}}, "metrics": []}
)
BY_LINE = StreamSection.model_validate(
    {
        "from": {"t": {"topic": "logs.t", "format": "raw"}},
        "metrics": [{"name": "lines", "from": "t", "key": "line", "measure": "count"}],
    }
)


@pytest.mark.skipif(not has_connector(), reason="set-up has not fetched Spark's Kafka connector")
def test_batches_are_divided_as_the_driver_says_and_leave_nothing_out(tmp_path: Path) -> None:
    batches: list[dict[int, int]] = []
    heard: list[Offsets] = []
    done = threading.Event()

    def note(frame: DataFrame, batch_id: int) -> None:
        rows = frame.groupBy("partition").count().collect()
        batches.append({row[0]: row[1] for row in rows})
        if sum(sum(batch.values()) for batch in batches) >= OLD + LIVE:
            done.set()

    with BrokerProcess(tmp_path, {"num.partitions": 2}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for partition, lines in enumerate((OLD, LIVE)):
            for number in range(lines):
                producer.produce("logs.t", f"{number}".encode(), partition=partition)
        producer.flush(30)
        options = kafka_options(
            SECTION, ClusterEntry(broker.bootstrap), {"logs.t": {"0": 0, "1": 0}}
        )
        checkpoint = CheckpointFolder(tmp_path / "a folder" / "checkpoint")
        query = (
            read_kafka(spark(), options, Divider(Admission(9_000), heard.append))
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", checkpoint.location)
            .start()
        )
        try:
            assert done.wait(TIMEOUT_S), query.exception()
        finally:
            query.stop()
    assert batches[0] == {0: PACED_LINES_FIRST - LIVE, 1: LIVE}, (
        "all of what is live, and little of what is old"
    )
    assert sum(batch.get(0, 0) for batch in batches) == OLD
    assert sum(batch.get(1, 0) for batch in batches) == LIVE
    assert heard[0] == {("logs.t", 0): OLD, ("logs.t", 1): LIVE}, "what waits is known at once"
    begun = checkpoint.resumption(["logs.t"])
    assert begun is not None
    assert checkpoint.ends(len(batches) - 1) == {("logs.t", 0): OLD, ("logs.t", 1): LIVE}


@pytest.mark.skipif(not has_connector(), reason="set-up has not fetched Spark's Kafka connector")
def test_the_driver_reads_what_a_frame_holds(tmp_path: Path) -> None:
    checkpoint = CheckpointFolder(tmp_path / "checkpoint")
    framed: Counter[str] = Counter()
    read: Counter[str] = Counter()
    folding = Folding(compile_plan(BY_LINE), as_blocks=False)
    done = threading.Event()

    def note(frame: DataFrame, batch_id: int) -> None:
        framed.update(row.line for row in frame.selectExpr("string(value) AS line").collect())
        span = span_of(list(checkpoint.ranges(batch_id).values()))
        for row in folding.fold_here(frame.sparkSession, span, offsets=1).rows:
            read[str(row.key[0])] += row.count
        if framed.total() == 40:
            done.set()

    with BrokerProcess(tmp_path, {"num.partitions": 2}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "some"})
        producer.init_transactions(30)
        for number in range(8):
            producer.begin_transaction()
            for partition in (0, 1):
                for line in range(5):
                    producer.produce("logs.t", f"{number} {line}", partition=partition)
            producer.flush(30)
            if number % 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
        options = kafka_options(
            SECTION, ClusterEntry(broker.bootstrap), {"logs.t": {"0": 0, "1": 0}}
        )
        query = (
            read_kafka(spark(), options, Divider(Admission(30), lambda _: None))
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", checkpoint.location)
            .start()
        )
        try:
            assert done.wait(TIMEOUT_S), query.exception()
        finally:
            query.stop()
    assert len(checkpoint.ends(1)) == 2, "several batches, their borders within transactions"
    assert read == framed


@pytest.fixture
def manager(tmp_path: Path) -> Any:
    jvm: Any = spark()._jvm
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    return jvm.millrace.LocalCheckpoint(hadoop_path(tmp_path), configuration)


def hadoop_path(path: Path) -> Any:
    jvm: Any = spark()._jvm
    return jvm.org.apache.hadoop.fs.Path(f"file://{path}")


def write(manager: Any, path: Path, text: str, *, overwrite: bool) -> None:
    stream = manager.createAtomic(hadoop_path(path), overwrite)
    stream.write(bytearray(text.encode()))
    stream.close()
    stream.close()


def test_a_second_driver_finds_the_file_of_the_first(manager: Any, tmp_path: Path) -> None:
    path = tmp_path / "offsets" / "7"
    write(manager, path, "first", overwrite=False)
    with pytest.raises(Py4JJavaError, match=r"FileAlreadyExistsException.*does another driver"):
        write(manager, path, "second", overwrite=False)
    assert path.read_text() == "first"
    assert [file.name for file in path.parent.iterdir()] == ["7"], "no draft, no checksum"


def test_a_file_may_be_replaced_and_is_whole_or_not_there(manager: Any, tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "metadata"
    write(manager, path, "first", overwrite=True)
    draft = manager.createAtomic(hadoop_path(path), True)
    draft.write(bytearray(b"sec"))
    assert path.read_text() == "first"
    draft.cancel()
    assert [file.name for file in path.parent.iterdir()] == ["metadata"]
    write(manager, path, "third", overwrite=True)
    assert path.read_text() == "third"
    assert manager.exists(hadoop_path(path))
    assert bytes(manager.open(hadoop_path(path)).readAllBytes()) == b"third"
