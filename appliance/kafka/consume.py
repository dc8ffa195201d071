"""Reads records, in a group or without one, from a given beginning to a given end."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from appliance.kafka.topics import Matcher
from appliance.output import CommandError, Exit
from protocol.client.cluster import Cluster
from protocol.client.consumer import Consumer
from protocol.client.consumer_settings import ConsumerRecord, ConsumerSettings, OffsetReset
from protocol.client.errors import UnreadableBatch, raise_for
from protocol.client.fetch_core import BatchOrigin, FetchedBatch
from protocol.client.offsets_by_time import list_offsets
from protocol.client.topic_details import list_topics
from protocol.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    TopicPartition,
)

POLL_MS = 250
RECORDS_PER_POLL = 2_000


class BeginAt(StrEnum):
    """The position at which reading begins if there is no committed offset."""

    START = "start"
    END = "end"
    OFFSET = "offset"
    LAST = "last"
    """A number of offsets before the end of the log."""
    TIME = "time"
    """The first record at or after a time in Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The position at which reading begins.

    `value` is an offset, a number of records or a time, depending on `at`.
    """

    kind: BeginAt
    value: int = 0


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The records to read, and the conditions for the end.

    - `pattern`: read the topics whose whole name matches, instead of `topics`.
    - `partitions`: only these partitions of each topic; not with a group.
    - `group_id`: None assigns the partitions without a group, and commits nothing.
    - `count_max`: end after this many records; None: no limit.
    - `idle_ms`: end when no record came for this many milliseconds; None: no limit.
    - `ends`: end at the offset at which each partition ended when it was first read.
    - `past_open`: that offset is the log end offset, so reading waits for open transactions.
    - `skipped`: a function that is called for a batch that cannot be read, which is then skipped.
      None: such a batch ends the reading with an error.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[int, ...] | None = None
    beginning: Beginning = Beginning(BeginAt.END)
    group_id: str | None = None
    auto_commit: bool = True
    isolation_level: int = 0
    count_max: int | None = None
    idle_ms: int | None = None
    ends: bool = False
    past_open: bool = False
    skipped: Callable[[UnreadableBatch], None] | None = None


class ReadRecord(NamedTuple):
    """A record, and the batch from which it was read."""

    record: ConsumerRecord
    leader_epoch: int
    is_log_append_time: bool


class BatchOfRecord:
    """Stores the batch of each fetched record until the record is passed on."""

    def __init__(self) -> None:
        self._batches: dict[TopicPartition, deque[BatchOrigin]] = {}

    def note(self, fetched: Iterable[FetchedBatch]) -> None:
        """Add fetched batches."""
        for one in fetched:
            if one.records:
                self._batches.setdefault(one.tp, deque()).extend(one.origins)

    def of(self, record: ConsumerRecord) -> ReadRecord:
        """Return a record with its batch. Call this for the records of a partition in their
        order."""
        batches = self._batches.get(TopicPartition(record.topic, record.partition), deque())
        while batches and batches[0].last_offset < record.offset:
            batches.popleft()
        origin = batches[0] if batches else BatchOrigin(record.offset, NO_LEADER_EPOCH, False)
        return ReadRecord(record, origin.leader_epoch, origin.is_log_append_time)


async def read(
    cluster: Cluster, wanted: ReadRequest, hand_out: Callable[[ReadRecord], None]
) -> int:
    """Pass records to `hand_out` until the wanted end; return the number of records.

    With a group, offsets are committed at the end, and from time to time during the reading. Raises
    CommandError for topics or partitions that do not exist, ApiError and ClientError.
    """
    resets = OffsetReset.EARLIEST if wanted.beginning.kind is BeginAt.START else OffsetReset.LATEST
    settings = ConsumerSettings(
        group_id=wanted.group_id,
        auto_commit=wanted.auto_commit,
        offset_reset=resets,
        isolation_level=wanted.isolation_level,
        max_poll_records=RECORDS_PER_POLL,
    )
    reading = _RecordReader(Consumer(cluster, settings), cluster, wanted, hand_out)
    async with reading.consumer:
        if wanted.group_id is None:
            await reading.begin_by_hand()
        else:
            await reading.begin_in_group()
        await reading.run()
    return reading.count


class _RecordReader:
    """The state of one run of `read`."""

    def __init__(
        self,
        consumer: Consumer,
        cluster: Cluster,
        wanted: ReadRequest,
        hand_out: Callable[[ReadRecord], None],
    ) -> None:
        self.consumer = consumer
        self.count = 0
        self._cluster = cluster
        self._wanted = wanted
        self._hand_out = hand_out
        self._origins = BatchOfRecord()
        self._ends: dict[TopicPartition, int] = {}
        consumer.watch_batches(self._origins.note)

    async def begin_by_hand(self) -> None:
        """Assign all wanted partitions without a group, and start each at its beginning."""
        tps = await self._partitions()
        self.consumer.assign(tps)
        for tp, offset in (await beginnings(self._cluster, tps, self._wanted)).items():
            self.consumer.seek(tp, offset)

    async def begin_in_group(self) -> None:
        """Subscribe in the group. If no topic matches the pattern yet, wait for one."""
        if self._wanted.pattern is None:
            await self._partitions()
        self.consumer.subscribe(self._wanted.topics, pattern=self._wanted.pattern)

    async def run(self) -> None:
        """Read until a condition for the end is met."""
        wanted, idle_since_s = self._wanted, time.monotonic()
        while wanted.count_max is None or self.count < wanted.count_max:
            if wanted.ends and await self._is_at_end():
                return
            left = RECORDS_PER_POLL
            if wanted.count_max is not None:
                left = min(left, wanted.count_max - self.count)
            wait_ms = POLL_MS if wanted.idle_ms is None else min(POLL_MS, wanted.idle_ms)
            try:
                found = await self.consumer.getmany(timeout_ms=wait_ms, max_records=left)
            except UnreadableBatch as error:
                self._pass_over(error)
                continue
            now_s = time.monotonic()
            for records in found.values():
                for record in records:
                    self._hand_out(self._origins.of(record))
                    self.count += 1
            if found:
                idle_since_s = now_s
            elif wanted.idle_ms is not None and (now_s - idle_since_s) * 1000 >= wanted.idle_ms:
                return

    def _pass_over(self, error: UnreadableBatch) -> None:
        """Skip a batch whose records cannot be read, or raise its error."""
        if self._wanted.skipped is None or error.next_offset is None:
            raise error
        self._wanted.skipped(error)
        self.consumer.seek(error.tp, error.next_offset)

    async def _partitions(self) -> list[TopicPartition]:
        topics = await list_topics(self._cluster)
        names: Sequence[str] = self._wanted.topics
        if self._wanted.pattern is not None:
            matches = Matcher(self._wanted.pattern)
            names = [name for name, one in topics.items() if matches(name) and not one.is_internal]
        tps = []
        for name in names:
            if name not in topics:
                raise CommandError(f"topic {name!r} does not exist", Exit.NOT_FOUND)
            there = [one.partition for one in topics[name].partitions]
            for partition in self._wanted.partitions or there:
                if partition not in there:
                    text = f"topic {name!r} has no partition {partition}, it has {len(there)}"
                    raise CommandError(text, Exit.NOT_FOUND)
                tps.append(TopicPartition(name, partition))
        return tps

    async def _is_at_end(self) -> bool:
        """Return whether all records have been read that existed when their partitions were first
        assigned."""
        tps = self.consumer.assignment
        if new := [tp for tp in tps if tp not in self._ends]:
            self._ends.update(await self._ends_of(new))
        for tp in tps:
            if await self.consumer.position(tp) < self._ends[tp]:
                return False
        return bool(tps) or self._wanted.group_id is None

    async def _ends_of(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not self._wanted.past_open:
            return await self.consumer.end_offsets(*tps)
        found = await list_offsets(self._cluster, dict.fromkeys(tps, LATEST_TIMESTAMP))
        for at in found.values():
            raise_for(at.error)
        return {tp: at.offset for tp, at in found.items()}


async def beginnings(
    cluster: Cluster, tps: Sequence[TopicPartition], wanted: ReadRequest
) -> dict[TopicPartition, int]:
    """Return the position at which to begin in each partition: an offset, or a timestamp that
    stands for the start or the end of the log."""
    kind, value = wanted.beginning.kind, wanted.beginning.value
    if kind is BeginAt.START:
        return dict.fromkeys(tps, EARLIEST_TIMESTAMP)
    if kind is BeginAt.END:
        return dict.fromkeys(tps, LATEST_TIMESTAMP)
    if kind is BeginAt.OFFSET:
        return dict.fromkeys(tps, value)
    asked = LATEST_TIMESTAMP if kind is BeginAt.LAST else value
    found = await list_offsets(
        cluster, dict.fromkeys(tps, asked), isolation_level=wanted.isolation_level
    )
    starts = await list_offsets(cluster, dict.fromkeys(tps, EARLIEST_TIMESTAMP))
    begins: dict[TopicPartition, int] = {}
    for tp in tps:
        offset = found[tp].offset
        if kind is BeginAt.LAST:
            begins[tp] = max(starts[tp].offset, offset - value)
        else:
            begins[tp] = LATEST_TIMESTAMP if offset == NO_OFFSET else offset
    return begins
