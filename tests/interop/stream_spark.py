"""A shared JVM for all tests that need Spark, and helpers that run lines through the real fold."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import cycle
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sinks.config import SinksSettings
from stream.config.settings import StreamSection, StreamSettings
from stream.fold.compile import compile_plan
from stream.fold.counts import BatchCounts
from stream.fold.folding import Folding
from stream.source.kafka import COLUMNS_DDL
from stream.spark import java_classes
from stream.spark.jars import jar_paths, missing_jars, pinned_jars
from stream.spark.session import start_session
from tests.harness.stream import JARS

ARRIVAL = datetime(2026, 8, 1, 12, 0, 0, tzinfo=UTC)

Line = str | bytes | None
Headers = Sequence[tuple[str, bytes | None]] | None
"""The headers of a record."""


def has_connector() -> bool:
    """Return True if set-up has downloaded Spark's Kafka connector."""
    return not missing_jars(JARS, pinned_jars())


@cache
def spark() -> SparkSession:
    """Return the Spark session of this test process, with the stream's own settings."""
    folder = Path(mkdtemp(prefix="millrace-spark-"))
    settings = StreamSettings.model_validate(
        {
            "section": {"heap": "1GiB"},
            "sinks": SinksSettings(),
            "bootstrap_servers": "127.0.0.1:1",
            "data_dir": folder,
            "jars": [str(path) for path in jar_paths(JARS)] if has_connector() else [],
        }
    )
    # Spark keeps a Kafka producer for ten minutes. When the broker of a test has gone, the producer
    # would try to connect for all that time, so drop producers after a second.
    short = {
        "spark.kafka.producer.cache.timeout": "1s",
        "spark.kafka.producer.cache.evictorThreadRunInterval": "1s",
    }
    session = start_session(settings, short)
    java_classes.load(session, folder)
    return session


def frame(
    lines: Iterable[Line],
    topic: str = "logs.t",
    file: str | bytes | None = "t/t.log",
    start: int = 0,
    partition: int = 0,
    headers: Sequence[Headers] = (None,),
) -> DataFrame:
    """Return lines in the form of Spark's Kafka source. One task reads all of them.

    The records of the lines have these `headers` in turn.
    """
    return (
        spark()
        .createDataFrame(_rows(lines, topic, file, start, partition, headers), COLUMNS_DDL)
        .coalesce(1)
    )


def frame_for_tasks(lines: Iterable[Line], tasks: int) -> DataFrame:
    """Return lines like `frame`, but divided in order among several tasks."""
    rows = spark().sparkContext.parallelize(_rows(lines, "logs.t", "t/t.log", 0, 0), tasks)
    return spark().createDataFrame(rows, COLUMNS_DDL)


def _rows(
    lines: Iterable[Line],
    topic: str,
    file: str | bytes | None,
    start: int,
    partition: int,
    headers: Sequence[Headers] = (None,),
) -> list[tuple[Any, ...]]:
    return [
        (
            bytearray(file.encode() if isinstance(file, str) else file)
            if file is not None
            else None,
            bytearray(line.encode() if isinstance(line, str) else line)
            if line is not None
            else None,
            topic,
            partition,
            start + place,
            ARRIVAL,
            0,
            of_record,
        )
        for place, (line, of_record) in enumerate(zip(lines, cycle(headers), strict=False))
    ]


def count_lines(section: dict[str, Any], lines: Iterable[Line], **where: Any) -> BatchCounts:
    """Fold some lines with this configuration in the driver, and return their counts."""
    plan = compile_plan(StreamSection.model_validate(section))
    return Folding(plan, as_blocks=False).fold_in_driver(frame(lines, **where))


def one_input(input_section: dict[str, Any], *metrics: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with one input `t` for the topic `logs.t`."""
    return {
        "from": {"t": {"topic": "logs.t", **input_section}},
        "defaults": {"windows": ["all"]},
        "metrics": [{"from": "t", "measure": "count", **metric} for metric in metrics],
    }


def keys(counts: BatchCounts, metric: str) -> dict[Any, int]:
    """Return the counts of one metric by key. A key of one column is the bare value. () is the key
    of a metric without key columns."""
    found: dict[Any, int] = {}
    for row in counts.rows:
        if row.metric == metric:
            key = row.key[0] if len(row.key) == 1 else row.key
            found[key] = found.get(key, 0) + row.count
    return found


def reasons(counts: BatchCounts) -> dict[str, int]:
    """Return the number of lines that were not parsed, by reason."""
    found: dict[str, int] = {}
    for row in counts.unparsed:
        found[row.reason] = found.get(row.reason, 0) + row.count
    return found
