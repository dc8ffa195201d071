"""A coordinator at work: its shards loaded by replay, its outcomes appended, then replayed.

Floor: shards. Each partition of the coordinator's internal topic is one shard, for one leader
epoch. It is loaded, a slice a turn, when its partition is led here, up to the log's end, and serves
when the high watermark has got there: what lies above may vanish with its leader, and nothing may
be decided on it. Until then everything in it answers COORDINATOR_LOAD_IN_PROGRESS.

An outcome's records are appended as one batch, and when that is committed they are replayed into
the shard and the reply leaves. A client's wait has a deadline; a replay has none, for the shard
must know of every decision that its log holds, whatever its client was told. Only the end of the
leadership ends that wait, and the shard with it. Batches reach the shard whole, with their header:
what is replayed from the log and what was just written look alike.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Generic

from broker.coordinators.outcome import Outcome
from broker.coordinators.placing import shard_of
from broker.replicas.replica import Replica
from broker.shards.loaded_shard import (
    Answering,
    LoadedShard,
    ProducerEpoch,
    Refused,
    Replay,
    Reply,
    S,
    ShardPorts,
)
from broker.shards.replaying import marker_header, replay_slice
from broker.storage.errors import CorruptionError, DiskError, is_damage
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.log import fields
from protocol.types import (
    NO_NODE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TopicPartition,
)
from protocol.wire.records import (
    Marker,
    NewRecord,
    build_batch,
    read_header,
)

logger = logging.getLogger(__name__)

OFFSETS_SEQUENCE = 0
"""The first sequence of every batch that is written in a producer's name. Nobody checks it, but it
is what Kafka writes there, and what DescribeProducers counts from."""

COMMIT_MS_MAX = 5_000
"""How long a client waits for a commit, as Kafka's `offsets.commit.timeout.ms`."""


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
        self._unread: dict[LoadedShard[S], tuple[S, int]] = {}
        """Those whose log the disk did not let be read, and the offset at which they go on."""

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
            # Another broker may have made it already, and sent a client here.
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        loaded = self._shards.get(shard_of(key, len(topic.partitions)))
        if loaded is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if loaded.shard is None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return loaded

    def coordinator_id(self, key: str) -> int:
        """The broker that leads where a group's or a transaction's facts lie; NO_NODE if none."""
        topic = self._ports.image().topics.get(self._topic)
        if topic is None:
            return NO_NODE
        return topic.partitions[shard_of(key, len(topic.partitions))].leader

    def partition_of(self, key: str) -> TopicPartition:
        """Where a group's or a transaction's facts lie, whoever leads that; refuses while there is
        no such topic."""
        topic = self._ports.image().topics.get(self._topic)
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return TopicPartition(self._topic, shard_of(key, len(topic.partitions)))

    def shard(self, key: str) -> S:
        """The shard that holds a group or a transaction, to read from."""
        shard = self.find(key).shard
        assert shard is not None
        return shard

    def readable(self, key: str) -> S:
        """The same, to tell what it holds: NOT_COORDINATOR where another may have it by now."""
        shard = self.shard(key)
        if not self.may_tell:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return shard

    @property
    def may_tell(self) -> bool:
        """Whether what a shard holds may be told to clients: as a leader may answer reads, only
        while it is sure that no other broker has its place."""
        return self._ports.replicas.place.may_read

    def told(self, refusal: ErrorCode) -> ErrorCode:
        """What a client is told of a refusal by what a shard holds: NOT_COORDINATOR in doubt.

        A member or producer that has come since, at the next coordinator, is not known here; the
        refusal itself could end it.
        """
        return refusal if self.may_tell else ErrorCode.NOT_COORDINATOR

    def serves(self, loaded: LoadedShard[S]) -> bool:
        """Whether a shard is still here, for what goes on in later turns."""
        return self._shards.get(loaded.replica.index) is loaded

    # Loading.

    def follow(self) -> None:
        """Load the shards of partitions that have come to be led here; `resigned` drops them."""
        for replica in list(self._ports.replicas.led_of(self._topic)):
            if replica.index not in self._shards:
                loaded = self._shards[replica.index] = LoadedShard[S](replica)
                self._load_slice(loaded, self._make_shard(), replica.log.log_start_offset)

    def _load_slice(self, loaded: LoadedShard[S], shard: S, offset: int) -> None:
        """Replay a little, and the rest in later turns: a log must not be read in two threads."""
        if not self.serves(loaded):
            return
        log = loaded.replica.log
        if offset >= log.log_end_offset:
            self._await_commit(loaded, shard, offset)
            return
        try:
            offset = replay_slice(log, shard, offset)
        except (CorruptionError, DiskError, WireError, ApiError) as error:
            logger.error(
                self._load_error,
                extra=fields(partition=loaded.replica.topic_partition, error=error),
            )
            self._ports.replicas.read_failed(loaded.replica, error)
            if isinstance(error, DiskError) and not is_damage(error):
                self._unread[loaded] = shard, offset
            return
        self._ports.soon(self._load_slice, loaded, shard, offset)

    def load_again(self) -> None:
        """Go on with what could not be read for a while, for want of descriptors, say."""
        unread, self._unread = self._unread, {}
        for loaded, (shard, offset) in unread.items():
            self._load_slice(loaded, shard, offset)

    def _await_commit(self, loaded: LoadedShard[S], shard: S, end_offset: int) -> None:
        """The log's end is reached: serve as soon as all of that is committed."""
        replica = loaded.replica
        if replica.log.high_watermark >= end_offset:
            loaded.shard = shard
            self.on_loaded(loaded, shard)
            return

        def committed() -> None:
            # A marker may have been written meanwhile.
            self._load_slice(loaded, shard, end_offset)

        replica.committed.await_(end_offset, Replay(committed), None)

    def on_loaded(self, loaded: LoadedShard[S], shard: S) -> None:
        """A shard has been loaded; for coordinators that have something to go on with."""

    def on_dropped(self, loaded: LoadedShard[S]) -> None:
        """A shard is not led here any more; for coordinators that have something to give up."""

    def resigned(self, replica: Replica) -> None:
        """A partition of the topic is not led here any more, or not in the epoch it was."""
        loaded = self._shards.get(replica.index)
        if loaded is not None and loaded.replica is replica:
            del self._shards[replica.index]
            self.on_dropped(loaded)

    # Committing.

    def submit(
        self,
        loaded: LoadedShard[S],
        outcome: Outcome[Any],
        reply: Reply,
        refused: Refused,
        producer: ProducerEpoch | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Append an outcome's records; `reply` comes when they are committed and replayed.

        `refused` comes instead where that takes too long, or the shard is dropped before. What must
        follow the decision whatever its client was told is `then`, which comes behind the reply.
        Raises ApiError where nothing has been written.

        With `producer` they are part of that producer's transaction: the log keeps it open until a
        marker comes. Such a batch is replayed as soon as it is written, not only once it is
        committed, for it takes nothing into force, and whoever asks for stable facts must know at
        once that something is under way.

        A reply to which nothing is written tells what the shard holds, as a read does.
        """
        if not outcome.records:
            if not self.may_tell:
                raise ApiError(ErrorCode.NOT_COORDINATOR)
            reply(outcome.reply)
            if then is not None:
                then()
            return
        end_offset = self._append(loaded, outcome, producer)
        ports = self._ports
        deadline_ms = ports.clock.monotonic_ms() + COMMIT_MS_MAX
        answering = Answering(reply, outcome.reply, refused)
        ports.waits.await_(loaded.replica.committed, end_offset, answering, deadline_ms)
        if then is not None:
            loaded.replica.committed.await_(end_offset, Replay(then), None)
        ports.replicas.counting.written(loaded.replica)

    def submit_own(
        self, loaded: LoadedShard[S], outcome: Outcome[Any], then: Callable[[], None]
    ) -> None:
        """The same for what no client waits for: `then` comes however long the commit takes.

        It does not come if the shard is dropped before. Raises ApiError where nothing has been
        written.
        """
        if not outcome.records:
            then()
            return
        end_offset = self._append(loaded, outcome)
        loaded.replica.committed.await_(end_offset, Replay(then), None)
        self._ports.replicas.counting.written(loaded.replica)

    def _append(
        self,
        loaded: LoadedShard[S],
        outcome: Outcome[Any],
        producer: ProducerEpoch | None = None,
    ) -> int:
        """Write an outcome's records, to be replayed once they are committed.

        Returns the end of their batch, to wait for; then `counting.written` is due. Raises ApiError
        where nothing has been written.
        """
        replica = loaded.replica
        if not replica.leads_in(loaded.leader_epoch):
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        log = replica.log
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
            raise ApiError(self._too_large)
        view = memoryview(batch)
        header = read_header(view)
        try:
            appended = log.append_own(view, header, loaded.leader_epoch, now_ms)
            log.write_staged(now_ms)
        except DiskError as error:
            raise self.write_failed(replica, error, now_ms) from error
        header = header._replace(base_offset=appended.base_offset)
        records = outcome.records
        end_offset = appended.last_offset + 1
        if producer is not None and loaded.shard is not None:
            loaded.shard.replay_batch(header, records)

        def committed() -> None:
            loaded.under_way.popleft()
            if producer is None and loaded.shard is not None:
                loaded.shard.replay_batch(header, records)

        loaded.under_way.append(records)
        replica.committed.await_(end_offset, Replay(committed), None)
        return end_offset

    def marker_written(
        self, replica: Replica, offset: int, producer: ProducerEpoch, marker: Marker
    ) -> None:
        """A transaction's marker stands in one of the topic's partitions; replay it once it is
        committed. A shard that is still loading will meet it in the log."""
        loaded = self._shards.get(replica.index)
        if loaded is None or loaded.replica is not replica or loaded.shard is None:
            return
        header = marker_header(offset, producer, replica.leader_epoch)

        def committed() -> None:
            if loaded.shard is not None:
                loaded.shard.replay_marker(header, marker)

        replica.committed.await_(offset + 1, Replay(committed), None)

    def write_failed(self, replica: Replica, error: DiskError, now_ms: int) -> ApiError:
        """Note that the disk has refused; what to tell whoever wanted to write."""
        self._ports.write_failed(replica.topic_partition, error, now_ms)
        return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
