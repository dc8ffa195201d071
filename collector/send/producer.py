"""Talks to the brokers: sends transactions, and reads positions at the start.

The producer is transactional: what is sent between `begin` and `commit` becomes visible completely
or not at all. While a broker restarts, batches are delayed, but neither lost nor duplicated. A
permanent refusal is the exception of the batch's future. The outbox still has the lines of the
batch then.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from collector.config.input_section import DEAD_LETTERS_TOPIC, POSITIONS_TOPIC
from collector.config.limits import (
    DEFAULT_MESSAGE_BYTES,
    MAX_MESSAGE_BYTES,
    REQUEST_BYTES_MAX,
    to_raise,
    wanted_limits,
)
from collector.config.settings import (
    BATCH_OVERHEAD_BYTES,
    POSITIONS_BATCH_BYTES,
    TRANSACTION_TIMEOUT_MS,
    CollectorSettings,
)
from collector.send.claims import Claim, claim_key, encode_claim
from collector.send.lag_windows import ReadProgress
from collector.send.outbox import SendBatch
from collector.send.positions import Records, StoredPosition, gather
from collector.send.topics import routed_specs, topic_specs
from collector.text.encode import encode
from protocol.client.admin import Admin
from protocol.client.admin_types import ConfigResource
from protocol.client.errors import ClientError, raise_for
from protocol.client.fetch_core import IsolationLevel
from protocol.client.fetcher import Fetcher
from protocol.client.group import fetch_offsets
from protocol.client.partitioner import partition_for_key
from protocol.client.producer import BatchMetadata, Producer
from protocol.client.security import cluster_of
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, TopicPartition
from protocol.wire.compression import Codec
from protocol.wire.record import NewRecord
from protocol.wire.records import assemble_batch, build_batch

REACH_TIMEOUT_MS = 3_000
REQUEST_TIMEOUT_MS = 10_000
"""The time after which a request without an answer is sent again to the broker or its successor.

A frozen broker keeps its connections open, so only this limit ends the wait. It is a third of the
default in Kafka's clients, because live lines must not wait longer than a broker's session lasts.
"""
START_TIMEOUT_MS = 10_000
POLL_MS = 500

logger = logging.getLogger(__name__)


class Brokers:
    """The connections of one collector. `name` is its client id and transactional id."""

    def __init__(self, settings: CollectorSettings, name: str):
        self._settings = settings
        self._name = name
        self._codec = Codec[settings.section.compression.upper()]
        self._cluster = cluster_of(
            settings.bootstrap_servers,
            settings.security,
            client_id=name,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        self._admin = Admin(self._cluster)
        self._producer: Producer | None = None
        self._limits: dict[str, int] = {}
        self._routed: dict[str, None] = {}
        """The topics that templates have named, in the order of their creation."""
        self._ready: set[str] = set()
        """The topics that exist and whose batch limits are known."""

    async def reach(self, timeout_ms: int = REACH_TIMEOUT_MS) -> None:
        """Connect to the cluster. Raises ClientError if none of its brokers answers in time."""
        await self._cluster.start(timeout_ms)

    async def change_topics(self, settings: CollectorSettings) -> None:
        """Create missing topics of changed settings. If that fails, the old settings remain in
        force."""
        before, routed = self._settings, self._routed
        self._settings = settings
        self._routed = {name: None for name in routed if settings.section.may_write(name)}
        try:
            await self.prepare()
        except BaseException:
            self._settings, self._routed = before, {**routed, **self._routed}
            raise

    async def prepare(self) -> None:
        """Create the missing topics, and read the batch limits of all topics. Raises ClientError or
        ApiError. The call can be repeated safely."""
        await self.ensure_topics()
        await self.learn_limits(self._written)
        self._ready.update(self._written)

    async def make_topics(self, names: Collection[str]) -> None:
        """Create the missing topics that templates named, and read their batch limits. Raises
        ClientError or ApiError. In that case no line can be sent to any of these topics."""
        specs = routed_specs(self._settings, names)
        await self._admin.ensure_topics(specs, timeout_ms=START_TIMEOUT_MS)
        fresh = [name for name in names if name not in self._written]
        self._routed |= dict.fromkeys(fresh)
        try:
            await self.learn_limits(names)
        except BaseException:
            for name in fresh:
                self._routed.pop(name, None)
            raise
        self._ready.update(names)

    async def take_over(
        self, instance: str, claim: Claim, host: str, since: Claim | None
    ) -> StoredPosition:
        """Become the instance's only collector, and return its stored positions.

        The order of the steps matters (KIP-618). First every older producer with this transactional
        id is fenced, and its open transaction is ended. Then a claim is committed. Then positions
        are read up to that claim, because all positions of the instance precede it. Reading to the
        end of the log would not be correct, because an open transaction of another instance can be
        before that end.
        """
        await self.let_go(1)
        # The buffer has twice the in-flight limit, so lines wait only in the outbox, never here.
        self._producer = Producer(
            self._cluster,
            buffer_bytes=2 * self._settings.section.in_flight_bytes + REQUEST_BYTES_MAX,
            request_bytes_max=REQUEST_BYTES_MAX,
            transactional_id=self._name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        await self._producer.start()
        await self._producer.init_transactions()
        ends = await self._claim(instance, claim, host)
        records = await self._read(ends)
        return gather(instance, records, since)

    async def _claim(self, instance: str, claim: Claim, host: str) -> dict[TopicPartition, int]:
        """Commit the claim to every partition of the positions topic. Return the offset after each
        claim."""
        partitions = await self._position_partitions()
        value = encode_claim(claim, host, time.time_ns() // 1_000_000)
        ends: dict[TopicPartition, int] = {}
        while len(ends) < len(partitions):
            # Repeat the claim in partitions where the broker had the record already and returned no
            # offset.
            left = [tp for tp in partitions if tp not in ends]
            self.begin()
            futures = {
                tp: await self._transactional.send(
                    POSITIONS_TOPIC, value, key=claim_key(instance), partition=tp.partition
                )
                for tp in left
            }
            for future in futures.values():
                future.add_done_callback(_retrieved)
            await self.commit(START_TIMEOUT_MS)
            for tp, future in futures.items():
                if (offset := (await future).offset) != NO_OFFSET:
                    ends[tp] = offset + 1
        return ends

    # --- transactions -------------------------------------------------------------------------

    @property
    def _transactional(self) -> Producer:
        assert self._producer is not None, "nothing was taken over"
        return self._producer

    def begin(self) -> None:
        """Begin a transaction."""
        self._transactional.begin_transaction()

    async def commit(self, timeout_ms: int) -> None:
        """Commit the open transaction. Raises the errors of the producer's `commit_transaction`."""
        await self._transactional.commit_transaction(timeout_ms)

    async def abort(self, timeout_ms: int) -> None:
        """Abort the open transaction. The call can be repeated after a time-out."""
        await self._transactional.abort_transaction(timeout_ms)

    async def let_go(self, timeout_ms: int) -> None:
        """Close the producer. An open transaction is abandoned."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(timeout_ms)

    async def ensure_topics(self) -> None:
        """Create the topics that are missing."""
        await self._admin.ensure_topics(
            topic_specs(self._settings, self._routed), timeout_ms=START_TIMEOUT_MS
        )

    @property
    def _written(self) -> list[str]:
        """The topics for lines and dead letters."""
        return [*self._settings.section.topics, *self._routed, DEAD_LETTERS_TOPIC]

    async def _present(self) -> list[str]:
        """Return the topics for lines and dead letters that exist. A deleted topic is created again
        when a file writes to it."""
        names = self._written
        found = await self._cluster.metadata(names, refresh=True, timeout_ms=START_TIMEOUT_MS)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return [name for name in names if found.topics[name].error != unknown]

    async def learn_limits(self, topics: Collection[str] | None = None) -> None:
        """Read the batch limits of topics (by default of all that exist), and raise low defaults. A
        limit that was set explicitly is kept. If the cluster refuses to raise a limit, the limit
        stays."""
        names = await self._present() if topics is None else topics
        unset = await self._ask_limits(names)
        raised = to_raise(wanted_limits(self._settings.section, self._routed), unset)
        if not raised:
            return
        try:
            await self._admin.alter_configs(
                {
                    ConfigResource.topic(topic): {MAX_MESSAGE_BYTES: str(limit)}
                    for topic, limit in raised.items()
                },
                timeout_ms=START_TIMEOUT_MS,
            )
        except (ClientError, ApiError) as error:
            logger.warning(
                "could not raise max.message.bytes, so the longest lines are overlong",
                extra=fields(topics=",".join(raised), reason=str(error)),
            )
        await self._ask_limits(names)

    async def _ask_limits(self, names: Collection[str]) -> dict[str, int]:
        """Store the batch limits of topics, and return the limits that are defaults."""
        unset: dict[str, int] = {}
        found = await self._admin.describe_configs(
            [ConfigResource.topic(name) for name in names],
            [MAX_MESSAGE_BYTES],
            timeout_ms=START_TIMEOUT_MS,
        )
        for resource, entries in found.items():
            entry = entries.get(MAX_MESSAGE_BYTES)
            value = DEFAULT_MESSAGE_BYTES if entry is None else int(entry.value or 0)
            self._limits[resource.name] = value
            if entry is not None and entry.is_default:
                unset[resource.name] = value
        return unset

    def batch_limit(self, topic: str) -> int:
        """Return the most bytes that the records of one batch can take, uncompressed."""
        limit = min(self._limits.get(topic, DEFAULT_MESSAGE_BYTES), REQUEST_BYTES_MAX)
        return max(limit - BATCH_OVERHEAD_BYTES, BATCH_OVERHEAD_BYTES)

    def partition_of(self, topic: str, key: bytes) -> TopicPartition | None:
        """Return the partition of a key, which is the same that Java's client chooses.

        Return None if the topic must be created first, or if its number of partitions is unknown,
        for example because the topic was deleted. Otherwise the lines of a file could go to another
        partition later. Dead letters do not wait for this.
        """
        known = self._cluster.current.topics.get(topic)
        count = len(known.partitions) if known is not None else 0
        if topic == DEAD_LETTERS_TOPIC:
            count = count or 1
        if topic not in self._ready or not count:
            return None
        return TopicPartition(topic, partition_for_key(key, count))

    async def send(self, batch: SendBatch) -> "asyncio.Future[BatchMetadata]":
        """Encode and send a batch. Its future completes when the brokers have acknowledged it."""
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
            # The payload does not become smaller by compression. Uncompressed it certainly fits.
            encoded = assemble_batch(
                payload,
                record_count=count,
                base_timestamp_ms=now_ms,
                max_timestamp_ms=now_ms,
                codec=Codec.NONE,
            )
        return await self._transactional.send_batch(topic, partition, encoded, count)

    async def send_positions(self, records: Records) -> "list[asyncio.Future[BatchMetadata]]":
        """Send position records. The futures complete when the brokers have acknowledged them."""
        now_ms = time.time_ns() // 1_000_000
        count = len(await self._position_partitions())
        groups: dict[int, list[list[NewRecord]]] = {}
        held: Counter[int] = Counter()
        for key, value in records.items():
            partition = partition_for_key(key, count)
            lists = groups.setdefault(partition, [[]])
            size = len(key) + len(value or b"")
            if held[partition] + size > POSITIONS_BATCH_BYTES and lists[-1]:
                lists.append([])
                held[partition] = 0
            held[partition] += size
            lists[-1].append(NewRecord(key, value, now_ms))
        futures = [
            await self._transactional.send_batch(
                POSITIONS_TOPIC, partition, build_batch(group, codec=self._codec), len(group)
            )
            for partition, lists in groups.items()
            for group in lists
        ]
        for future in futures:
            future.add_done_callback(_retrieved)
        return futures

    async def read_positions(self, instance: str, since: Claim | None = None) -> StoredPosition:
        """Return the committed positions of an instance without taking it over."""
        partitions = await self._position_partitions(refresh=True)
        ends = await self._offsets(partitions, LATEST_TIMESTAMP)
        return gather(instance, await self._read(ends), since)

    async def _position_partitions(self, *, refresh: bool = False) -> list[TopicPartition]:
        known = self._cluster.current.topics.get(POSITIONS_TOPIC)
        if known is None or not known.partitions or refresh:
            metadata = await self._cluster.metadata([POSITIONS_TOPIC], refresh=True)
            known = metadata.topics[POSITIONS_TOPIC]
        return [TopicPartition(POSITIONS_TOPIC, number) for number in known.partitions]

    async def _read(
        self, ends: Mapping[TopicPartition, int]
    ) -> list[tuple[bytes | None, bytes | None]]:
        """Return the keys and values of all committed position records below `ends`."""
        starts = await self._offsets(list(ends), EARLIEST_TIMESTAMP)
        open_ends = {tp: end for tp, end in ends.items() if starts[tp] < end}
        fetcher = Fetcher(self._cluster, isolation_level=IsolationLevel.READ_COMMITTED)
        fetcher.assign({tp: starts[tp] for tp in open_ends})
        found: list[tuple[bytes | None, bytes | None]] = []
        try:
            while any(fetcher.position(tp) < end for tp, end in open_ends.items()):
                for fetched in await fetcher.poll(POLL_MS):
                    for record in fetched.records:
                        if record.offset < open_ends[fetched.tp]:
                            found.append((_octets(record.key), _octets(record.value)))
        finally:
            await fetcher.close()
        return found

    async def _offsets(
        self, partitions: Sequence[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Return the start or end offset of each log, as a reader of committed records sees it."""
        found = await self._admin.list_offsets(
            dict.fromkeys(partitions, timestamp), isolation_level=IsolationLevel.READ_COMMITTED
        )
        for at in found.values():
            raise_for(at.error)
        return {tp: at.offset for tp, at in found.items()}

    async def progress_of(
        self, group: str, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ReadProgress]:
        """Return the committed offsets of a group, and the logs' end offsets. Raises ClientError or
        ApiError."""
        # The end offsets are read after the commits, and they include uncommitted records. So the
        # lag can be shown too large, but never too small.
        committed = await fetch_offsets(self._cluster, group, places)
        ends = await self._admin.list_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
        found: dict[TopicPartition, ReadProgress] = {}
        for tp, end in ends.items():
            raise_for(end.error)
            at = committed[tp]
            found[tp] = ReadProgress(None if at is None else at.offset, end.offset)
        return found

    async def close(self, timeout_ms: int) -> None:
        """Close the connections. Lines that are not committed yet stay in their files."""
        await self.let_go(timeout_ms)
        await self._cluster.close()


def _retrieved(future: "asyncio.Future[Any]") -> None:
    """Mark the exception of a future as retrieved, because the transaction reports the same
    failure."""
    if not future.cancelled():
        future.exception()


def _octets(value: bytes | memoryview | None) -> bytes | None:
    return None if value is None else bytes(value)
