"""The room's only file that talks to the brokers: lines and positions out, positions back at start.

Floor: beside `outbox` and `checkpoints`. The producer is idempotent and never gives up by itself: a
broker that restarts delays batches and neither loses nor doubles them. What a broker refuses for
good comes back as an exception of the batch's future; the file still has the lines.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence

from collector.checkpoints import decode_key
from collector.config import (
    BATCH_OVERHEAD_BYTES,
    DEAD_LETTERS_TOPIC,
    POSITIONS_TOPIC,
    CollectorSettings,
)
from collector.encode import encode
from collector.outbox import Batch
from protocol.client.admin import Admin
from protocol.client.admin_types import ConfigResource, TopicSpec
from protocol.client.cluster import Cluster
from protocol.client.errors import raise_for
from protocol.client.fetcher import Fetcher
from protocol.client.partitioner import partition_for_key
from protocol.client.producer import BatchMetadata, Producer
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from protocol.wire.compression import Codec
from protocol.wire.records import assemble_batch

INPUT_PARTITIONS = 3  # of an input's topic that the configuration says nothing about
MAX_MESSAGE_BYTES = "max.message.bytes"
DEFAULT_MESSAGE_BYTES = 1_048_588
REQUEST_BYTES_MAX = 8 << 20
REACH_TIMEOUT_MS = 3_000
START_TIMEOUT_MS = 10_000
POLL_MS = 500

POSITIONS_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 << 20),
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "3600000",
}


def topic_specs(settings: CollectorSettings) -> list[TopicSpec]:
    """The topics that must exist: those of the configuration, the inputs' and our own."""
    specs = {
        POSITIONS_TOPIC: TopicSpec(POSITIONS_TOPIC, 1, None, POSITIONS_SETTINGS),
        DEAD_LETTERS_TOPIC: TopicSpec(DEAD_LETTERS_TOPIC, 1),
    }
    for name in settings.section.topics:
        specs[name] = TopicSpec(name, INPUT_PARTITIONS)
    for topic in settings.topics:
        specs[topic.name] = TopicSpec(
            topic.name, topic.partitions, topic.replication, topic.settings
        )
    return list(specs.values())


class Brokers:
    """One collector's connection to its cluster."""

    def __init__(self, settings: CollectorSettings, client_id: str):
        self._settings = settings
        self._codec = Codec[settings.section.compression.upper()]
        self._cluster = Cluster(settings.bootstrap_servers, client_id=client_id)
        self._admin = Admin(self._cluster)
        # Twice the window, so that the only place where lines wait is the outbox.
        self._producer = Producer(
            self._cluster,
            buffer_bytes=2 * settings.section.in_flight_bytes + REQUEST_BYTES_MAX,
            request_bytes_max=REQUEST_BYTES_MAX,
        )
        self._is_producing = False
        self._limits: dict[str, int] = {}

    async def reach(self, timeout_ms: int = REACH_TIMEOUT_MS) -> None:
        """Find the cluster; raises ClientError when none of its brokers answers in time."""
        await self._cluster.start(timeout_ms)

    async def prepare(self) -> None:
        """Make sure of the topics, learn their limits, and be ready to send.

        Raises ClientError or ApiError; calling it again is safe.
        """
        await self.ensure_topics()
        await self.learn_limits()
        if not self._is_producing:
            await self._producer.start()
            self._is_producing = True

    async def ensure_topics(self) -> None:
        """Create what is missing."""
        await self._admin.ensure_topics(topic_specs(self._settings), timeout_ms=START_TIMEOUT_MS)

    async def learn_limits(self) -> None:
        """Ask how large a batch each topic takes."""
        names = [*self._settings.section.topics, DEAD_LETTERS_TOPIC]
        found = await self._admin.describe_configs(
            [ConfigResource.topic(name) for name in names],
            [MAX_MESSAGE_BYTES],
            timeout_ms=START_TIMEOUT_MS,
        )
        for resource, entries in found.items():
            entry = entries.get(MAX_MESSAGE_BYTES)
            value = DEFAULT_MESSAGE_BYTES if entry is None else int(entry.value or 0)
            self._limits[resource.name] = value

    def batch_limit(self, topic: str) -> int:
        """The most bytes the records of one batch may take, not compressed."""
        limit = min(self._limits.get(topic, DEFAULT_MESSAGE_BYTES), REQUEST_BYTES_MAX)
        return max(limit - BATCH_OVERHEAD_BYTES, BATCH_OVERHEAD_BYTES)

    def partition_of(self, topic: str, key: bytes) -> TopicPartition:
        """The partition of a key, as Java's client chooses it."""
        known = self._cluster.current.topics.get(topic)
        count = len(known.partitions) if known is not None else 0
        return TopicPartition(topic, partition_for_key(key, count) if count else 0)

    async def send(self, batch: Batch) -> "asyncio.Future[BatchMetadata]":
        """Encode a batch and hand it over; its future tells when the brokers have it."""
        topic, partition = batch.partition
        payload, count = encode([entry.piece for entry in batch.entries])
        now_ms = time.time_ns() // 1_000_000
        encoded = assemble_batch(
            payload,
            record_count=count,
            base_timestamp_ms=now_ms,
            max_timestamp_ms=now_ms,
            codec=self._codec,
        )
        if len(encoded) > self.batch_limit(topic) + BATCH_OVERHEAD_BYTES // 2:
            # Bytes that do not compress: as they are they fit for certain.
            encoded = assemble_batch(
                payload,
                record_count=count,
                base_timestamp_ms=now_ms,
                max_timestamp_ms=now_ms,
                codec=Codec.NONE,
            )
        return await self._producer.send_batch(topic, partition, encoded, count)

    async def read_positions(self, instance: str) -> dict[str, bytes]:
        """The last position record of each generation of `instance`, up to the log's end now."""
        metadata = await self._cluster.metadata([POSITIONS_TOPIC], refresh=True)
        topic = metadata.topics[POSITIONS_TOPIC]
        partitions = [TopicPartition(POSITIONS_TOPIC, number) for number in topic.partitions]
        starts = await self._ends(partitions, EARLIEST_TIMESTAMP)
        ends = await self._ends(partitions, LATEST_TIMESTAMP)
        found: dict[str, bytes] = {}
        fetcher = Fetcher(self._cluster)
        open_ends = {tp: end for tp, end in ends.items() if starts[tp] < end}
        fetcher.assign({tp: starts[tp] for tp in open_ends})
        try:
            while any(fetcher.position(tp) < end for tp, end in open_ends.items()):
                for fetched in await fetcher.poll(POLL_MS):
                    for record in fetched.records:
                        _note(found, instance, record.key, record.value)
        finally:
            await fetcher.close()
        return found

    async def _ends(
        self, partitions: Sequence[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        found = await self._admin.list_offsets(dict.fromkeys(partitions, timestamp))
        for at in found.values():
            raise_for(at.error)
        return {tp: at.offset for tp, at in found.items()}

    async def write_positions(self, records: Mapping[bytes, bytes | None]) -> None:
        """Write position records (None: forget it) and return when the brokers have them."""
        futures = [
            await self._producer.send(POSITIONS_TOPIC, value, key=key)
            for key, value in records.items()
        ]
        await asyncio.gather(*futures)

    async def close(self, timeout_ms: int) -> None:
        """Stop; what is not acknowledged by then stays in its file."""
        if self._is_producing:
            await self._producer.close(timeout_ms)
        await self._cluster.close()


def _note(found: dict[str, bytes], instance: str, key: bytes | None, value: bytes | None) -> None:
    generation = None if key is None else decode_key(key, instance)
    if generation is None:
        return
    if value is None:
        found.pop(generation, None)
    else:
        found[generation] = value
