"""The source of lines: creates topics, asks the broker for offsets, and lets Spark read lines."""

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

from protocol.client.admin import Admin
from protocol.client.admin_types import TopicSpec
from protocol.client.cluster import Cluster
from protocol.client.fetch_core import IsolationLevel
from protocol.client.security import cluster_of
from protocol.errors import ApiError, ErrorCode
from protocol.security.cluster_security import ClusterEntry
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ZERO_UUID, TopicPartition
from sinks.rows import OffsetRange
from stream.config.settings import StreamSection, StreamTopicSettings
from stream.parse.host import headers_sql
from stream.source.admission import Admission
from stream.source.checkpoint import Offsets, decode_offsets, encode_offsets
from stream.source.entry import entry_options
from stream.spark.memory import lines_per_batch, machine_bytes

# Spark's consumer asks for offsets on the same connection on which its read-ahead fetch waits for
# data, and the broker answers the fetch first. With Kafka's default of 500 ms every batch would
# wait as long, so this is short. Our broker also ends such a fetch early (decision 0055); others do
# not.
FETCH_MAX_WAIT_MS = 5

# The most lines per task in a batch. A partition with more lines is read by several tasks. The
# number of tasks is a multiple of the number of cores.
LINES_PER_TASK = 60_000

# The least lines per task when the executors of a cluster share a batch, because starting a task
# takes time.
LINES_PER_TASK_MIN = 5_000

ASK_TIMEOUT_MS = 10_000

MADE_LINES = 300

T = TypeVar("T")

# The columns that are read from each record: all of Spark's Kafka source, in its order, because the
# driver reads rows of the source without a projection (`java/SharedKafka`).
_COLUMN_TYPES = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
COLUMNS = tuple(_COLUMN_TYPES)
COLUMNS_DDL = ", ".join(f"{name} {kind}" for name, kind in _COLUMN_TYPES.items())

# The options that only the streaming query uses. A read of some offset ranges sets others instead.
_STREAM_OPTIONS = ("subscribe", "startingOffsets", "maxOffsetsPerTrigger")


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """The first available offset and the end of every partition of the topics."""

    starts: Offsets
    ends: Offsets

    def partitions(self) -> dict[str, int]:
        """Return the number of partitions of each topic."""
        counts: dict[str, int] = {}
        for topic, _ in self.ends:
            counts[topic] = counts.get(topic, 0) + 1
        return counts


def _asked(entry: ClusterEntry, client_id: str, ask: Callable[[Cluster, Admin], Awaitable[T]]) -> T:
    """Run `ask` with a connection to the brokers; raises ApiError or ClientError if it fails."""

    async def asking() -> T:
        cluster = cluster_of(entry, client_id=client_id)
        try:
            await cluster.start(ASK_TIMEOUT_MS)
            return await ask(cluster, Admin(cluster))
        finally:
            await cluster.close()

    return asyncio.run(asking())


async def _partitions(cluster: Cluster, topics: Sequence[str]) -> list[TopicPartition]:
    metadata = await cluster.metadata(topics, refresh=True, timeout_ms=ASK_TIMEOUT_MS)
    return [
        TopicPartition(name, index) for name in topics for index in metadata.topics[name].partitions
    ]


def ask_topics(
    entry: ClusterEntry,
    client_id: str,
    topics: Sequence[str],
    wanted: Sequence[StreamTopicSettings],
) -> TopicOffsets:
    """Create missing topics, and return the offsets that the broker has of all topics.

    Raises ApiError and ClientError if the broker cannot be asked now.
    """
    specs = {spec.name: spec for spec in wanted}
    missing = [specs.get(name, StreamTopicSettings(name=name)) for name in topics]

    async def ask(cluster: Cluster, admin: Admin) -> TopicOffsets:
        await admin.ensure_topics(
            [
                TopicSpec(spec.name, spec.partitions, spec.replication, dict(spec.settings))
                for spec in missing
            ],
            timeout_ms=ASK_TIMEOUT_MS,
        )
        partitions = await _partitions(cluster, topics)
        starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
        return TopicOffsets(
            {(tp.topic, tp.partition): found.offset for tp, found in starts.items()},
            {(tp.topic, tp.partition): found.offset for tp, found in ends.items()},
        )

    return _asked(entry, client_id, ask)


@dataclass(frozen=True, slots=True)
class Readable:
    """The offsets of one topic that a reader of committed records can read.

    `id` is the topic's id, empty if the broker does not report one.
    """

    id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]


def ask_readable(entry: ClusterEntry, client_id: str, topics: Sequence[str]) -> dict[str, Readable]:
    """Return the readable offsets of each topic that exists.

    Raises ApiError or ClientError if the broker cannot tell the offsets of a partition.
    """

    async def ask(cluster: Cluster, admin: Admin) -> dict[str, Readable]:
        metadata = await cluster.metadata(topics, refresh=True, timeout_ms=ASK_TIMEOUT_MS)
        found: dict[str, Readable] = {}
        for name in topics:
            topic = metadata.topics[name]
            if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if topic.error:
                raise ApiError(topic.error, name)
            places = [TopicPartition(name, index) for index in sorted(topic.partitions)]
            bounds: list[dict[int, int]] = []
            for moment in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
                answer = await admin.list_offsets(
                    dict.fromkeys(places, moment), isolation_level=IsolationLevel.READ_COMMITTED
                )
                for place, one in answer.items():
                    if one.error:
                        raise ApiError(
                            one.error, f"{name}-{place.partition}: its offsets are unknown"
                        )
                bounds.append({place.partition: one.offset for place, one in answer.items()})
            topic_id = "" if topic.topic_id == ZERO_UUID else str(topic.topic_id)
            found[name] = Readable(topic_id, *bounds)
        return found

    return _asked(entry, client_id, ask)


def offsets_since(
    entry: ClusterEntry, client_id: str, topics: Sequence[str], time_ms: int | None
) -> dict[tuple[str, int], int]:
    """Return for each partition the first offset that arrived at or after a time.

    Without such an offset it is the end of the partition. If `time_ms` is None, it is the first
    offset that the broker has. Raises ApiError and ClientError.
    """

    async def ask(cluster: Cluster, admin: Admin) -> dict[tuple[str, int], int]:
        partitions = await _partitions(cluster, topics)
        moment = EARLIEST_TIMESTAMP if time_ms is None else time_ms
        found = await admin.list_offsets(dict.fromkeys(partitions, moment))
        ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
        return {
            (tp.topic, tp.partition): one.offset if one.offset >= 0 else ends[tp].offset
            for tp, one in found.items()
        }

    return _asked(entry, client_id, ask)


def lost_lines(wanted: Mapping[tuple[str, int], int], held: TopicOffsets) -> str | None:
    """Return in words why reading cannot continue at the `wanted` offsets.

    None if the broker has the lines from these offsets on.
    """
    for (topic, partition), offset in sorted(wanted.items()):
        start = held.starts.get((topic, partition))
        end = held.ends.get((topic, partition))
        where = f"{topic}-{partition} is counted up to offset {offset}"
        if start is None or end is None:
            return f"{where}, but the topic no longer has this partition: was it created again?"
        if offset > end >= 0:
            return (
                f"{where}, but the broker has it only up to offset {end}: was the topic created"
                " again?"
            )
        if 0 <= offset < start:
            return f"{where}, but retention has deleted its lines below offset {start}"
    return None


def passed_over(
    committed: Mapping[tuple[str, int], int],
    ledger: Mapping[tuple[str, int], int],
    held: TopicOffsets,
) -> str | None:
    """Return why the batch after `committed` cannot be read, if no line is lost by skipping it.

    This is so if the missing lines were counted before they were deleted. None if the batch can be
    read, or if lines are lost that were not counted. The ledger must include all of `committed`.
    """
    lost = lost_lines(committed, held)
    if lost is None or lost_lines({place: ledger[place] for place in committed}, held) is not None:
        return None
    return f"{lost}; but the sinks have counted these lines"


def kafka_options(
    section: StreamSection,
    entry: ClusterEntry,
    starting: Mapping[str, Mapping[str, int]] | None,
) -> dict[str, str]:
    """Return the options of Spark's Kafka source.

    `starting` are the first offsets of a query with a new checkpoint. It is None otherwise.
    """
    options = {
        **entry_options(entry),
        "subscribe": ",".join(section.topics),
        "kafka.fetch.max.wait.ms": str(FETCH_MAX_WAIT_MS),
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(lines_per_batch(section, machine_bytes())),
        "maxRecordsPerPartition": str(LINES_PER_TASK),
        # Kafka's admin client waits for a dead leader until its time-out, even if another broker
        # has become the leader. Only the next attempt asks the new leader, so the time-outs are
        # short. After six failed attempts the query ends and is restarted.
        "kafka.default.api.timeout.ms": "3000",
        "kafka.request.timeout.ms": "3000",
        "kafkaConsumer.pollTimeoutMs": "20000",
        "fetchOffset.numRetries": "6",
        "fetchOffset.retryIntervalMs": "200",
        "kafka.reconnect.backoff.max.ms": "500",
        "groupIdPrefix": "millrace-stream-spark",
    }
    if starting is not None:
        options["startingOffsets"] = json.dumps(starting)
    return options


class Divider:
    """Divides a batch among the partitions when the JVM asks (`java/SharedKafka.java`).

    `hear_ends` is called with the topics' ends each time a batch is planned. `cores` returns the
    number of cores of a cluster's executors; it is None for a local driver.
    """

    def __init__(
        self,
        admission: Admission,
        hear_ends: Callable[[Offsets], None],
        cores: Callable[[], int] | None = None,
    ) -> None:
        self._admission = admission
        self._hear_ends = hear_ends
        self._cores = cores

    def ends(self, starts: str, latest: str) -> str | None:
        """Return the ends of the next batch, as `Admission.ends` does.

        All offsets are JSON in the format of Spark's Kafka source.
        """
        topics_end = decode_offsets(latest)
        self._hear_ends(topics_end)
        cores = None if self._cores is None else self._cores()
        ends = self._admission.ends(decode_offsets(starts), topics_end, time.monotonic(), cores)
        return None if ends is None else encode_offsets(ends)

    class Java:
        """The Java interface that this object implements for Py4J."""

        implements = ("millrace.SharedKafka$Admission",)


def read_kafka(session: SparkSession, options: Mapping[str, str], divider: Divider) -> DataFrame:
    """Return the stream of records, with the columns COLUMNS."""
    jvm: Any = session._jvm
    jvm.millrace.SharedKafka.admitBy(divider)
    lines = session.readStream.format("millrace.SharedKafka").options(**options).load()
    return lines.select(*COLUMNS)


def tasks_for(offsets: int, cores: int) -> int:
    """Return the number of tasks to read this many offsets.

    It is a multiple of `cores`, unless tasks would get fewer than LINES_PER_TASK_MIN offsets.
    """
    most = max(1, offsets // LINES_PER_TASK_MIN)
    return min(most, math.ceil(offsets / LINES_PER_TASK / cores) * cores)


def read_ranges(
    session: SparkSession,
    options: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    tasks: int | None = None,
) -> DataFrame:
    """Return the records of some offset ranges, with the columns COLUMNS.

    `ranges` has at most one range per partition, and none is empty. About `tasks` tasks read them.
    If `tasks` is None, each task reads up to LINES_PER_TASK offsets.
    """
    partitions: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for one in ranges:
        partitions.setdefault(one.topic, []).append(one.partition)
        starts.setdefault(one.topic, {})[str(one.partition)] = one.start
        ends.setdefault(one.topic, {})[str(one.partition)] = one.end
    offsets = sum(one.end - one.start for one in ranges)
    if tasks is None and offsets > LINES_PER_TASK:
        tasks = tasks_for(offsets, session.sparkContext.defaultParallelism)
    in_task = LINES_PER_TASK if tasks is None else math.ceil(offsets / tasks)
    same = {name: value for name, value in options.items() if name not in _STREAM_OPTIONS}
    own = {
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "maxRecordsPerPartition": str(in_task),
    }
    return session.read.format("kafka").options(**{**same, **own}).load().select(*COLUMNS)


# The first offsets and the end offsets of lines that the driver reads itself. Both are JSON in the
# format of Spark's Kafka source.
Span = tuple[str, str]


def span_of(ranges: Sequence[OffsetRange]) -> Span:
    """Return offset ranges in Spark's encoding: (start offsets, end offsets).

    Each partition has at most one range.
    """
    starts = {(one.topic, one.partition): one.start for one in ranges}
    ends = {(one.topic, one.partition): one.end for one in ranges}
    return encode_offsets(starts), encode_offsets(ends)


def made_lines(session: SparkSession, topics: Sequence[str]) -> DataFrame:
    """Return made-up lines of every topic, with the columns COLUMNS."""
    listed = ", ".join(f"'{topic}'" for topic in topics)
    return session.range(0, MADE_LINES, 1, 1).selectExpr(
        "CAST('made/up' AS BINARY) AS key",
        "CAST(concat('line ', id, ' {\"a\": 1} k=v') AS BINARY) AS value",
        f"element_at(array({listed}), CAST(id % {len(topics)} + 1 AS INT)) AS topic",
        "0 AS partition",
        "id AS offset",
        "current_timestamp() AS timestamp",
        "0 AS timestampType",
        headers_sql("X'61'") + " AS headers",
    )
