"""A batch can be processed in four ways, and each gives the same cells as the second fold, for
every format and measure.

Either the driver reads the batch itself, and its cells come as rows or as text. Or Spark brings the
lines to the driver. Or Spark's tasks fold the lines. The second fold uses the results of Spark's
own plan of the judging query for the same lines (decision 0089).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from protocol.security.cluster_security import ClusterEntry
from sinks.values import Measure
from stream.config.settings import StreamSection
from stream.fold.compile import FoldPlan, compile_plan
from stream.fold.counts import BatchCounts
from stream.fold.folding import READ_HERE_LINES, SMALL_BATCH_LINES, Folding
from stream.source.admission import Admission
from stream.source.checkpoint import CheckpointFolder
from stream.source.kafka import Divider, kafka_options, read_kafka, span_of
from tests.harness.broker import BrokerProcess
from tests.harness.reference_fold import reference_counts
from tests.harness.seed import seeded
from tests.harness.wait import wait_until
from tests.interop.stream_spark import has_connector, spark
from tests.interop.test_stream_folds import cells
from tests.interop.test_stream_fuzz import FORMATS, metrics

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not has_connector(), reason="set-up has not fetched Spark's connector"),
]

PARTITIONS = 2
LINES_OF_PARTITION = 700
COUNTED_S = 120.0
HEADERS: list[list[tuple[str, str | bytes | None]]] = [
    [],
    [("env", b"test")],
    [("millrace.host", b"web-1"), ("env", b"test")],
    [("millrace.host", b"web-2")],
]
BY_HOST = [{"name": "by_host", "from": "t", "key": "collector_host", "measure": "count"}]
# The parts of the lines. Most of them are numbers or times, so that every measure counts lines.
TAME = [
    "0", "1", "7", "-7", "3.25", "-0.5", "1e3", "200", "404", "12345678901", "9007199254740993",
    "-", "", "true", "a", "b", "a b", "/a", "%2Fa", "x/y", "it's", "back\\slash", "é", "😀",
    "Asia/Kolkata", "Europe/Berlin", "2026-08-01",
    "1785578401", "1785578461.5", "1785578520000", "2026-08-01T10:00:00Z",
    "2026-08-01T12:59:59+02:00", "2026-08-01 10:02:00,5", "20260801T100300Z",
]  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"num.partitions": PARTITIONS}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker


class Ways:
    """Folds each batch of a stream once in every way, and keeps all counts."""

    def __init__(self, plan: FoldPlan, checkpoint: CheckpointFolder) -> None:
        self.batches: list[Mapping[str, BatchCounts]] = []
        self._plan = plan
        self._folding = Folding(plan, as_blocks=True)
        self._checkpoint = checkpoint

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        session, folding = batch.sparkSession, self._folding
        span = span_of(list(self._checkpoint.ranges(batch_id).values()))
        self.batches.append(
            {
                "reference": reference_counts(batch, self._plan),
                "here, as rows": folding.fold_here(session, span, SMALL_BATCH_LINES),
                "here, as text": folding.fold_here(session, span, READ_HERE_LINES),
                "brought here": folding.fold_in_driver(batch),
                "in tasks": folding.fold_in_tasks(batch),
            }
        )

    @property
    def lines(self) -> int:
        return sum(batch["reference"].lines for batch in self.batches)


@pytest.mark.parametrize("line_format", FORMATS)
def test_every_way_gives_the_same_cells(
    broker: BrokerProcess, tmp_path: Path, line_format: str
) -> None:
    given, make = FORMATS[line_format]
    chance, topic = seeded(f"stream-ways-{line_format}"), f"logs.{line_format}"
    section = StreamSection.model_validate(
        {
            "from": {"t": {"topic": topic, "format": line_format, **given}},
            "defaults": {"windows": ["1m", "all"]},
            "metrics": [*metrics(line_format), *BY_HOST],
        }
    )
    plan = compile_plan(section)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(PARTITIONS):
        for _ in range(LINES_OF_PARTITION):
            line = make(chance, lambda: chance.choice(TAME))
            producer.produce(
                topic,
                line.encode(),
                key=f"{partition}.log",
                partition=partition,
                headers=chance.choice(HEADERS),
            )
    assert producer.flush(30) == 0
    checkpoint = CheckpointFolder(tmp_path / "checkpoint")
    starts = {topic: {str(partition): 0 for partition in range(PARTITIONS)}}
    options = kafka_options(section, ClusterEntry(broker.bootstrap), starts)
    ways = Ways(plan, checkpoint)
    query = (
        read_kafka(spark(), options, Divider(Admission(READ_HERE_LINES), lambda _: None))
        .writeStream.foreachBatch(ways)
        .option("checkpointLocation", checkpoint.location)
        .start()
    )
    try:
        wait_until(
            lambda: not query.isActive or ways.lines >= PARTITIONS * LINES_OF_PARTITION,
            COUNTED_S,
            "all lines folded",
        )
        assert query.isActive, query.exception()
    finally:
        query.stop()
    compare(plan, ways)
    hosts = {
        row.key
        for batch in ways.batches
        for row in batch["reference"].rows
        if row.metric == "by_host"
    }
    assert hosts == {(None,), ("web-1",), ("web-2",)}


def compare(plan: FoldPlan, ways: Ways) -> None:
    """Compare every cell of every batch, and the lines not counted, with the reference fold."""
    definitions = {metric.name: metric.definition for metric in plan.metrics}
    measures: set[str] = set()
    for batch in ways.batches:
        reference = cells(batch["reference"], definitions, are_few=False)
        measures |= {definitions[cell_id.metric].measure for cell_id in reference}
        for way, counts in batch.items():
            found = cells(counts, definitions, are_few=False)
            differing = {
                cell_id: (reference.get(cell_id), found.get(cell_id))
                for cell_id in reference.keys() | found.keys()
                if reference.get(cell_id) != found.get(cell_id)
            }
            assert differing == {}, way
            assert counts.partitions == batch["reference"].partitions, way
            assert counts.unparsed == batch["reference"].unparsed, way
            assert bool(counts.blocks) is (way in ("here, as text", "in tasks")), way
    assert measures == set(Measure)
