"""The room's only file that talks to the brokers: transactions out, positions back at the start.

Floor: beside `outbox` and `checkpoints`. The producer is transactional: what is sent between
`begin` and `commit` is there as a whole or not at all. A broker that restarts delays batches and
neither loses nor doubles them. What a broker refuses for good comes back as an exception of the
batch's future; the outbox still has the lines.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from collector.config.limits import (
    DEFAULT_MESSAGE_BYTES,
    MAX_MESSAGE_BYTES,
    REQUEST_BYTES_MAX,
    to_raise,
    wanted_limits,
)
from collector.config.settings import (
    BATCH_OVERHEAD_BYTES,
    DEAD_LETTERS_TOPIC,
    POSITIONS_BATCH_BYTES,
    POSITIONS_TOPIC,
    TRANSACTION_TIMEOUT_MS,
    CollectorSettings,
)
from collector.send.claims import Claim, claim_key, encode_claim
from collector.send.lag_windows import Progress
from collector.send.outbox import Batch
from collector.send.positions import Records, Stored, gather
from collector.send.topics import routed_specs, topic_specs
from collector.text.encode import encode
from protocol.client.admin import Admin
from protocol.client.admin_types import ConfigResource
from protocol.client.cluster import Cluster
from protocol.client.errors import ClientError, raise_for
from protocol.client.fetch_core import IsolationLevel
from protocol.client.fetcher import Fetcher
from protocol.client.group import fetch_offsets
from protocol.client.partitioner import partition_for_key
from protocol.client.producer import BatchMetadata, Producer
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, TopicPartition
from protocol.wire.compression import Codec
from protocol.wire.record import NewRecord
from protocol.wire.records import assemble_batch, build_batch

REACH_TIMEOUT_MS = 3_000
REQUEST_TIMEOUT_MS = 10_000
"""How long a broker may take to answer before it is asked again, or its successor. A broker that is
frozen keeps its connections: nothing but this ends the wait for it. A third of what Kafka's clients
take, for who tails live files is not to stand still longer than a session of a broker lasts."""
START_TIMEOUT_MS = 10_000
POLL_MS = 500

logger = logging.getLogger(__name__)


class Brokers:
    """One collector's connection to its cluster; `name` is its client id and transactional id."""

    def __init__(self, settings: CollectorSettings, name: str):
        self._settings = settings
        self._name = name
        self._codec = Codec[settings.section.compression.upper()]
        self._cluster = Cluster(
            settings.bootstrap_servers, client_id=name, request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        self._admin = Admin(self._cluster)
        self._producer: Producer | None = None
        self._limits: dict[str, int] = {}
        self._routed: dict[str, None] = {}
        """The topics that templates have made names of, in the order of their making."""
        self._ready: set[str] = set()
        """The topics that are there, and whose limits are known."""

    async def reach(self, timeout_ms: int = REACH_TIMEOUT_MS) -> None:
        """Find the cluster; raises ClientError when none of its brokers answers in time."""
        await self._cluster.start(timeout_ms)

    async def change_topics(self, settings: CollectorSettings) -> None:
        """Make sure of the topics of other settings; those of before stay if that raises."""
        before, routed = self._settings, self._routed
        self._settings = settings
        self._routed = {name: None for name in routed if settings.section.may_write(name)}
        try:
            await self.prepare()
        except BaseException:
            self._settings, self._routed = before, {**routed, **self._routed}
            raise

    async def prepare(self) -> None:
        """Make sure of the topics and learn their limits.

        Raises ClientError or ApiError; calling it again is safe.
        """
        await self.ensure_topics()
        await self.learn_limits(self._written)
        self._ready.update(self._written)

    async def make_topics(self, names: Collection[str]) -> None:
        """Make sure of topics that templates name, and learn their limits.

        Raises ClientError or ApiError, and then none of them can be written to.
        """
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
    ) -> Stored:
        """Become the instance's only collector, and return what its positions are.

        The order is what matters (KIP-618): first every older producer of the id is fenced, and
        what it left open is ended; then a claim is committed; then positions are read, up to that
        claim: nothing of one's own can lie behind it. The end of the log would not do, where
        another instance's open transaction stands before it.
        """
        await self.let_go(1)
        # Twice the window, so that the only place where lines wait is the outbox.
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
        """Commit the claim in every partition of positions; the offset behind each."""
        partitions = await self._position_partitions()
        value = encode_claim(claim, host, time.time_ns() // 1_000_000)
        ends: dict[TopicPartition, int] = {}
        while len(ends) < len(partitions):
            # Again where the broker knew the record already, and does not say where it is.
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
        """All that is sent from here on belongs together."""
        self._transactional.begin_transaction()

    async def commit(self, timeout_ms: int) -> None:
        """Make it visible. Errors are those of the producer's `commit_transaction`."""
        await self._transactional.commit_transaction(timeout_ms)

    async def abort(self, timeout_ms: int) -> None:
        """Take all of it back. May be repeated after a time-out."""
        await self._transactional.abort_transaction(timeout_ms)

    async def let_go(self, timeout_ms: int) -> None:
        """End the producer; what is open is given up."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(timeout_ms)

    async def ensure_topics(self) -> None:
        """Create what is missing."""
        await self._admin.ensure_topics(
            topic_specs(self._settings, self._routed), timeout_ms=START_TIMEOUT_MS
        )

    @property
    def _written(self) -> list[str]:
        """The topics that lines and dead letters go to."""
        return [*self._settings.section.topics, *self._routed, DEAD_LETTERS_TOPIC]

    async def _present(self) -> list[str]:
        """Those of them that are there: one that was deleted is made again by who writes to it."""
        names = self._written
        found = await self._cluster.metadata(names, refresh=True, timeout_ms=START_TIMEOUT_MS)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return [name for name in names if found.topics[name].error != unknown]

    async def learn_limits(self, topics: Collection[str] | None = None) -> None:
        """Ask how large a batch these topics take, or all that are there, and raise what is too
        small and nobody's choice.

        A cluster that refuses that keeps its limits.
        """
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
                "max.message.bytes not raised, the longest lines are overlong",
                extra=fields(topics=",".join(raised), reason=str(error)),
            )
        await self._ask_limits(names)

    async def _ask_limits(self, names: Collection[str]) -> dict[str, int]:
        """Take over what is in force; returns the limits that nobody has set."""
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
        """The most bytes the records of one batch may take, not compressed."""
        limit = min(self._limits.get(topic, DEFAULT_MESSAGE_BYTES), REQUEST_BYTES_MAX)
        return max(limit - BATCH_OVERHEAD_BYTES, BATCH_OVERHEAD_BYTES)

    def partition_of(self, topic: str, key: bytes) -> TopicPartition | None:
        """The partition of a key, as Java's client chooses it; None: the topic is to be made.

        Also where it is not known how many it has, for it was deleted, say: a file's lines would go
        to another one later. Dead letters wait for nothing.
        """
        known = self._cluster.current.topics.get(topic)
        count = len(known.partitions) if known is not None else 0
        if topic == DEAD_LETTERS_TOPIC:
            count = count or 1
        if topic not in self._ready or not count:
            return None
        return TopicPartition(topic, partition_for_key(key, count))

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
        return await self._transactional.send_batch(topic, partition, encoded, count)

    async def send_positions(self, records: Records) -> "list[asyncio.Future[BatchMetadata]]":
        """Hand over position records; the futures tell when the brokers have them."""
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

    async def read_positions(self, instance: str, since: Claim | None = None) -> Stored:
        """What is committed of an instance's positions at this moment, without taking over."""
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
        """Key and value of all committed position records below `ends`."""
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
        """An end of each log, the last one as a reader of committed records has it."""
        found = await self._admin.list_offsets(
            dict.fromkeys(partitions, timestamp), isolation_level=IsolationLevel.READ_COMMITTED
        )
        for at in found.values():
            raise_for(at.error)
        return {tp: at.offset for tp, at in found.items()}

    async def progress_of(
        self, group: str, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Progress]:
        """How far a group has read partitions, and their ends. Raises ClientError, ApiError."""
        # In this order, and with what is not committed: so no less seems to be left than there is.
        committed = await fetch_offsets(self._cluster, group, places)
        ends = await self._admin.list_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
        found: dict[TopicPartition, Progress] = {}
        for tp, end in ends.items():
            raise_for(end.error)
            at = committed[tp]
            found[tp] = Progress(None if at is None else at.offset, end.offset)
        return found

    async def close(self, timeout_ms: int) -> None:
        """Stop; what is not committed by then stays in its file."""
        await self.let_go(timeout_ms)
        await self._cluster.close()


def _retrieved(future: "asyncio.Future[Any]") -> None:
    """The transaction says as well what failed in it: nobody need ask every future."""
    if not future.cancelled():
        future.exception()


def _octets(value: bytes | memoryview | None) -> bytes | None:
    return None if value is None else bytes(value)
