"""A coordinator at work: its shards loaded by replay, its outcomes appended, then replayed.

Floor: shards. Each partition of the coordinator's internal topic is one shard. A shard is loaded, a
slice a turn, when its partition comes into service; until then everything in it answers
COORDINATOR_LOAD_IN_PROGRESS. An outcome's records are appended as one batch, and when the high
watermark has passed it they are replayed into the shard and the reply leaves. Batches reach the
shard whole, with their header: what is replayed from the log and what was just written look alike.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from broker.coordinators.offsets import shard_of
from broker.coordinators.outcome import CoordinatorRecord, Outcome, Shard
from broker.metadata.image import MetadataImage
from broker.replicas.refusals import WriteFailed
from broker.replicas.replica_manager import Partition, ReplicaManager
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.log import Log
from broker.world import Clock, Soon
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.log import fields
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from protocol.wire.records import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    Marker,
    NewRecord,
    build_batch,
    iterate_batches,
    iterate_records,
    read_header,
    read_marker,
)

logger = logging.getLogger(__name__)

LOAD_BYTES = 64 << 10
"""Replayed in one turn of the loop: a few milliseconds."""

MARKER_ATTRIBUTES = 0x30
"""Transactional and control."""

OFFSETS_SEQUENCE = 0
"""The first sequence of every batch that is written in a producer's name. Nobody checks it, but it
is what Kafka writes there, and what DescribeProducers counts from."""

S = TypeVar("S", bound=Shard)

Reply = Callable[[Any], None]
Refused = Callable[[ApiError], None]


@dataclass(frozen=True, slots=True)
class ShardPorts:
    """What a coordinator needs around it."""

    clock: Clock
    soon: Soon
    image: Callable[[], MetadataImage]
    replicas: ReplicaManager
    write_failed: WriteFailed


class ProducerEpoch(NamedTuple):
    """Whose transaction a batch belongs to."""

    producer_id: int
    producer_epoch: int


class LoadedShard(Generic[S]):
    """A shard and what is written for it but not committed."""

    __slots__ = ("partition", "pending", "shard")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.shard: S | None = None
        """None while it is being loaded, or when its log cannot be read."""
        self.pending: deque[tuple[int, Callable[[], None], Sequence[CoordinatorRecord]]] = deque()
        """The high watermark that commits it, what is to be done then, and what was written; in
        the log's order."""

    @property
    def batch_bytes_max(self) -> int:
        """What the records of one batch may take: no more than is worked off in one turn."""
        return min(self.partition.log.config.max_message_bytes - HEADER_BYTES, LOAD_BYTES)

    def keys_under_way(self) -> set[bytes]:
        """The keys that are written and not committed: the shard does not know of them yet."""
        return {record.key for _, _, records in self.pending for record in records}


class CoordinatorDriver(Generic[S]):
    """All shards of one coordinator on this broker.

    `too_large` is the refusal of an outcome that is larger than a batch may be.
    """

    def __init__(
        self,
        ports: ShardPorts,
        topic: str,
        make_shard: Callable[[], S],
        load_error: str,
        too_large: ErrorCode,
    ) -> None:
        self._ports = ports
        self._topic = topic
        self._make_shard = make_shard
        self._load_error = load_error
        self._too_large = too_large
        self._shards: dict[int, LoadedShard[S]] = {}

    def loaded(self) -> Iterator[tuple[LoadedShard[S], S]]:
        """The shards that are loaded, each with its place."""
        for loaded in list(self._shards.values()):
            if loaded.shard is not None:
                yield loaded, loaded.shard

    def shards(self) -> Iterator[S]:
        """The shards that are loaded."""
        for _, shard in self.loaded():
            yield shard

    @property
    def is_loading(self) -> bool:
        """Whether a shard is not there yet, so that a list of all would have a hole."""
        return any(loaded.shard is None for loaded in self._shards.values())

    def find(self, key: str) -> LoadedShard[S]:
        """Where a group's or a transaction's facts lie; refuses while that is loading, or is not
        here at all."""
        topic = self._ports.image().topics.get(self._topic)
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        loaded = self._shards.get(shard_of(key, len(topic.partitions)))
        if loaded is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if loaded.shard is None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return loaded

    def shard(self, key: str) -> S:
        """The shard that holds a group or a transaction, to read from."""
        shard = self.find(key).shard
        assert shard is not None
        return shard

    def serves(self, loaded: LoadedShard[S]) -> bool:
        """Whether a shard is still here, for what goes on in later turns."""
        return self._shards.get(loaded.partition.index) is loaded

    # Loading.

    def follow(self) -> None:
        """Load the shards of partitions that have come into service; drop those that have gone."""
        present = {
            partition.index: partition
            for partition in self._ports.replicas.partitions_of(self._topic)
        }
        for index in [one for one in self._shards if one not in present]:
            del self._shards[index]
        for index, partition in present.items():
            known = self._shards.get(index)
            if known is None or known.partition is not partition:
                self._load(index, partition)

    def _load(self, index: int, partition: Partition) -> None:
        loaded = self._shards[index] = LoadedShard[S](partition)
        self._load_slice(loaded, self._make_shard(), partition.log.log_start_offset)

    def _load_slice(self, loaded: LoadedShard[S], shard: S, offset: int) -> None:
        """Replay a little, and the rest in later turns: a log must not be read in two threads."""
        log = loaded.partition.log
        if offset >= log.log_end_offset:
            loaded.shard = shard
            self.on_loaded(loaded, shard)
            return
        try:
            offset = replay_slice(log, shard, offset)
        except (CorruptionError, DiskError, WireError, ApiError) as error:
            logger.error(
                self._load_error,
                extra=fields(partition=loaded.partition.topic_partition, error=error),
            )
            return
        self._ports.soon(self._load_slice, loaded, shard, offset)

    def on_loaded(self, loaded: LoadedShard[S], shard: S) -> None:
        """A shard has been loaded; for coordinators that have something to go on with."""

    # Committing.

    def submit(
        self,
        loaded: LoadedShard[S],
        outcome: Outcome[Any],
        reply: Reply,
        refused: Refused,
        producer: ProducerEpoch | None = None,
    ) -> None:
        """Append an outcome's records; `reply` comes when they are committed and replayed.

        With `producer` they are part of that producer's transaction: the log keeps it open until a
        marker comes. Such a batch is replayed as soon as it is written, not only once it is
        committed, for it takes nothing into force, and whoever asks for stable facts must know at
        once that something is under way.
        """
        if not outcome.records:
            reply(outcome.reply)
            return
        partition = loaded.partition
        log = partition.log
        now_ms = self._ports.clock.now_ms()
        producer_id, producer_epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        batch = build_batch(
            [NewRecord(one.key, one.value, now_ms) for one in outcome.records],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=NO_SEQUENCE if producer is None else OFFSETS_SEQUENCE,
            is_transactional=producer is not None,
        )
        if len(batch) > log.config.max_message_bytes:
            refused(ApiError(self._too_large))
            return
        view = memoryview(batch)
        header = read_header(view)
        try:
            appended = log.append_own(view, header, partition.leader_epoch, now_ms)
            log.write_staged(now_ms)
        except ApiError as error:
            refused(error)
            return
        except DiskError as error:
            refused(self.write_failed(partition, error, now_ms))
            return
        header = header._replace(base_offset=appended.base_offset)
        records = outcome.records

        def replay() -> None:
            if loaded.shard is not None:
                loaded.shard.replay_batch(header, records)

        def committed() -> None:
            if producer is None:
                replay()
            reply(outcome.reply)

        if producer is not None:
            replay()
        loaded.pending.append((appended.last_offset + 1, committed, records))
        self._ports.replicas.written(partition)

    def marker_written(
        self, partition: Partition, offset: int, producer: ProducerEpoch, marker: Marker
    ) -> None:
        """A transaction's marker stands in one of the topic's partitions; replay it once it is
        committed. A shard that is still loading will meet it in the log."""
        loaded = self._shards.get(partition.index)
        if loaded is None or loaded.partition is not partition or loaded.shard is None:
            return
        header = marker_header(offset, producer, partition.leader_epoch)

        def committed() -> None:
            if loaded.shard is not None:
                loaded.shard.replay_marker(header, marker)

        loaded.pending.append((offset + 1, committed, ()))

    def write_failed(self, partition: Partition, error: DiskError, now_ms: int) -> ApiError:
        """Note that the disk has refused; what to tell whoever wanted to write."""
        self._ports.write_failed(partition.topic_partition, error, now_ms)
        return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))

    def advanced(self, partition: Partition) -> None:
        """The high watermark of one of the topic's partitions has moved."""
        loaded = self._shards.get(partition.index)
        if loaded is None or loaded.partition is not partition:
            return
        pending = loaded.pending
        while pending and pending[0][0] <= partition.log.high_watermark:
            pending.popleft()[1]()


def marker_header(offset: int, producer: ProducerEpoch, leader_epoch: int) -> BatchHeader:
    """What the log says around a marker, as far as a shard may ask."""
    return BatchHeader(
        base_offset=offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=MARKER_ATTRIBUTES,
        last_offset_delta=0,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )


def replay_slice(log: Log, shard: Shard, offset: int) -> int:
    """Replay the batches from `offset` on, a slice's worth; returns where the next slice begins."""
    found = log.read(offset, LOAD_BYTES, log.log_end_offset).region
    if found is None:
        # A cleaning has left nothing from here to the end.
        return log.log_end_offset
    for header, batch in iterate_batches(found.read()):
        offset = header.last_offset + 1
        if header.is_control:
            for record in iterate_records(batch):
                marker = read_marker(record)
                if marker is not None:
                    shard.replay_marker(header, marker)
            continue
        shard.replay_batch(
            header,
            [
                CoordinatorRecord(record.key, record.value)
                for record in iterate_records(batch)
                if record.key is not None
            ],
        )
    return offset
