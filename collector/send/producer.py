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
from collections.abc import Collection, Sequence
from typing import Any

from collector.config.input_section import DEAD_LETTERS_TOPIC
from collector.config.limits import (
    DEFAULT_MESSAGE_BYTES,
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
from collector.send.position_log import PositionLog
from collector.send.positions import Records, StoredPosition, gather
from collector.send.report_log import ReportLog
from collector.send.rights import NotAllowed, denial_of, topic_denied, transactions_denied
from collector.send.topic_access import START_TIMEOUT_MS, TopicAccess, set_batch_limits
from collector.send.topics import routed_specs, topic_specs
from collector.text.encode import encode
from protocol.client.admin import Admin
from protocol.client.errors import ClientError, EntryRefused, raise_for
from protocol.client.group import fetch_offsets
from protocol.client.partitioner import partition_for_key
from protocol.client.producer import BatchMetadata, Producer
from protocol.client.security import cluster_of
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.types import LATEST_TIMESTAMP, NO_OFFSET, TopicPartition
from protocol.wire.compression import Codec
from protocol.wire.record import NewRecord
from protocol.wire.records import assemble_batch, build_batch

REACH_TIMEOUT_MS = 3_000
REQUEST_TIMEOUT_MS = 10_000
"""The time after which a request without an answer is sent again to the broker or its successor.

A frozen broker keeps its connections open, so only this limit ends the wait. It is a third of the
default in Kafka's clients, because live lines must not wait longer than a broker's session lasts.
"""

logger = logging.getLogger(__name__)


class Brokers:
    """The connections of one collector. `name` is its client id and transactional id."""

    def __init__(self, settings: CollectorSettings, name: str):
        self._settings = settings
        self.user = None if settings.security is None else settings.security.user
        """The user name of the collector's login; None if it does not log in."""
        self._name = name
        self._codec = Codec[settings.section.compression.upper()]
        self._cluster = cluster_of(
            settings.entry, client_id=name, request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        self._admin = Admin(self._cluster)
        self._positions = PositionLog(self._cluster, self._admin, settings.section.group)
        self._instance = ""
        """The instance that was taken over."""
        self._producer: Producer | None = None
        self.reports = ReportLog(self._cluster, self.user)
        self._topics = TopicAccess(self._cluster, self._admin, self.user, self._positions.topic)
        self._routed: dict[str, None] = {}
        """The topics that templates have named, in the order of their creation."""
        self._ready: set[str] = set()
        """The topics that exist and whose batch limits are known."""

    @property
    def refusal(self) -> EntryRefused | None:
        """The reason why no broker accepts a connection, if a broker has refused it."""
        return self._cluster.refusal

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
        """Create the missing topics, and read the batch limits of all topics. Files of topics that
        are not accessible wait. Raises ClientError or ApiError. The call can be repeated safely."""
        denied = await self.ensure_topics()
        topics = [name for name in self._written if name not in denied]
        await self.learn_limits(topics)
        self._ready.update(topics)

    async def make_topics(self, names: Collection[str]) -> None:
        """Create the missing topics that templates named, and read their batch limits. Raises
        ClientError or ApiError. In that case no line can be sent to any of these topics."""
        specs = routed_specs(self._settings, names)
        if denied := await self._topics.ensure(specs):
            raise NotAllowed("; ".join(denied.values()))
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
        try:
            await self._producer.start()
            await self._producer.init_transactions()
            self._instance = instance
            ends = await self._claim(instance, claim, host)
            records = await self._positions.read(ends)
        except (ClientError, ApiError) as error:
            code = denial_of(error)
            if code is None:
                raise
            if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise NotAllowed(transactions_denied(self.user, self._name)) from error
            topic = self._positions.topic
            raise NotAllowed(topic_denied(self.user, topic, "read,write")) from error
        return gather(instance, records, since)

    async def _claim(self, instance: str, claim: Claim, host: str) -> dict[TopicPartition, int]:
        """Commit the claim to every partition with positions of the instance. Return the offset
        after each claim."""
        partitions = await self._positions.partitions(instance)
        value = encode_claim(claim, host, time.time_ns() // 1_000_000)
        ends: dict[TopicPartition, int] = {}
        while len(ends) < len(partitions):
            # Repeat the claim in partitions where the broker had the record already and returned no
            # offset.
            left = [tp for tp in partitions if tp not in ends]
            self.begin()
            futures = {
                tp: await self._transactional.send(
                    tp.topic, value, key=claim_key(instance), partition=tp.partition
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

    async def ensure_topics(self) -> dict[str, str]:
        """Create the topics that are missing. Return the topics for lines that are not accessible,
        each with the reason. Raises NotAllowed if the collector cannot work without a topic."""
        denied = await self._topics.ensure(topic_specs(self._settings, self._routed))
        for name in (self._positions.topic, DEAD_LETTERS_TOPIC):
            if name in denied:
                raise NotAllowed(denied[name])
        return denied

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
        unset = await self._topics.read_limits(names)
        raised = to_raise(wanted_limits(self._settings.section, self._routed), unset)
        if not raised:
            return
        try:
            await set_batch_limits(self._admin, raised, START_TIMEOUT_MS)
        except (ClientError, ApiError) as error:
            logger.warning(
                "could not raise max.message.bytes, so the longest lines are overlong",
                extra=fields(topics=",".join(raised), reason=str(error)),
            )
        await self._topics.read_limits(names)

    def batch_limit(self, topic: str) -> int:
        """Return the most bytes that the records of one batch can take, uncompressed."""
        limit = min(self._topics.limits.get(topic, DEFAULT_MESSAGE_BYTES), REQUEST_BYTES_MAX)
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
        partitions = await self._positions.partitions(self._instance)
        groups: dict[TopicPartition, list[list[NewRecord]]] = {}
        held: Counter[TopicPartition] = Counter()
        for key, value in records.items():
            partition = partitions[partition_for_key(key, len(partitions))]
            lists = groups.setdefault(partition, [[]])
            size = len(key) + len(value or b"")
            if held[partition] + size > POSITIONS_BATCH_BYTES and lists[-1]:
                lists.append([])
                held[partition] = 0
            held[partition] += size
            lists[-1].append(NewRecord(key, value, now_ms))
        futures = [
            await self._transactional.send_batch(
                tp.topic, tp.partition, build_batch(group, codec=self._codec), len(group)
            )
            for tp, lists in groups.items()
            for group in lists
        ]
        for future in futures:
            future.add_done_callback(_retrieved)
        return futures

    async def read_positions(self, instance: str, since: Claim | None = None) -> StoredPosition:
        """Return the committed positions of an instance without taking it over."""
        partitions = await self._positions.partitions(instance, refresh=True)
        ends = await self._positions.ends(partitions)
        return gather(instance, await self._positions.read(ends), since)

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
