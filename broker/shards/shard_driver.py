"""Runs the shards of a coordinator: it loads them by replay, appends outcomes and replays them.

Each partition of the coordinator's internal topic is one shard, for one leader epoch. When this
broker becomes the leader, the shard is loaded up to the log's end, some bytes per iteration of the
event loop. It serves requests once the high watermark has reached this end, because records above
the high watermark can still be lost. Until then requests get COORDINATOR_LOAD_IN_PROGRESS.

An outcome's records are appended as one batch. When the batch is committed, the records are
replayed into the shard and the reply is sent. A client's wait has a deadline. A replay has no
deadline, because the shard must apply every decision in its log, whatever answer its client got. It
waits until the commit, or until this broker loses the leadership and drops the shard. The shard
gets whole batches with their headers, so it handles batches from a load and new batches in the same
way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Generic

from broker.coordinators.outcome import ShardOutcome
from broker.coordinators.placing import shard_of
from broker.replicas.replica import Replica
from broker.shards.loaded_shard import (
    ClientWait,
    LoadedShard,
    ProducerEpoch,
    Refused,
    ReplayWait,
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
"""The first sequence of each batch that is written for a producer.

Consumers do not check this value, but Kafka writes the same one, and DescribeProducers shows the
sequences that follow from it.
"""

COMMIT_MS_MAX = 5_000
"""The longest time for which a client waits for a commit: Kafka's `offsets.commit.timeout.ms`."""


class CoordinatorDriver(Generic[S]):
    """All shards of one coordinator on this broker.

    `too_large` is the error for an outcome that is larger than a batch may be.
    """

    def __init__(
        self,
        ports: ShardPorts,
        topic: str,
        make_shard: Callable[[], S],
        load_error: str,
        too_large: ErrorCode,
    ) -> None:
        self.ports = ports
        self._topic = topic
        self._make_shard = make_shard
        self._load_error = load_error
        self._too_large = too_large
        self.by_index: dict[int, LoadedShard[S]] = {}
        self._unread: dict[LoadedShard[S], tuple[S, int]] = {}
        """Shards whose log could not be read, with the offset at which to continue."""

    def loaded(self) -> Iterator[tuple[LoadedShard[S], S]]:
        """Yield the loaded shards, each with its `LoadedShard`."""
        for loaded in list(self.by_index.values()):
            if loaded.shard is not None:
                yield loaded, loaded.shard

    def shards(self) -> Iterator[S]:
        """Yield the states of all loaded shards."""
        for _, shard in self.loaded():
            yield shard

    @property
    def is_loading(self) -> bool:
        """True if a shard is still loading, so that a list of all groups would be incomplete."""
        return any(loaded.shard is None for loaded in self.by_index.values())

    def find(self, key: str) -> LoadedShard[S]:
        """Return the shard of a group or transaction.

        Raises ApiError while the shard is loading, or if this broker does not lead the shard's
        partition.
        """
        topic = self.ports.metadata.image.topics.get(self._topic)
        if topic is None:
            # Another broker can already know the new topic, and can have sent a client to this
            # broker.
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        loaded = self.by_index.get(shard_of(key, len(topic.partitions)))
        if loaded is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if loaded.shard is None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return loaded

    def coordinator_id(self, key: str) -> int:
        """Return the id of the broker that coordinates a group or transaction; NO_NODE if there is
        none."""
        topic = self.ports.metadata.image.topics.get(self._topic)
        if topic is None:
            return NO_NODE
        return topic.partitions[shard_of(key, len(topic.partitions))].leader

    def partition_of(self, key: str) -> TopicPartition:
        """Return the partition that stores a group or transaction. Raises ApiError if the topic is
        missing.
        """
        topic = self.ports.metadata.image.topics.get(self._topic)
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return TopicPartition(self._topic, shard_of(key, len(topic.partitions)))

    def shard(self, key: str) -> S:
        """Return the state of the shard for a group or transaction, in order to read from it."""
        return self.find(key).state

    def readable(self, key: str) -> S:
        """Return the state of a shard as `shard` does, for an answer that only reads.

        Raises NOT_COORDINATOR if another broker can have become the coordinator.
        """
        shard = self.shard(key)
        if not self.may_tell:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return shard

    @property
    def may_tell(self) -> bool:
        """True if this broker's shards may answer requests that only read.

        The rule is the same as for reads from a leader: no other broker can have become the leader.
        """
        return self.ports.replicas.place.may_read

    def told(self, refusal: ErrorCode) -> ErrorCode:
        """Return the error code to send to a client: NOT_COORDINATOR if this broker can have been
        deposed.

        A deposed broker does not know the members and producers that its successor has accepted
        since. The original error could stop them.
        """
        return refusal if self.may_tell else ErrorCode.NOT_COORDINATOR

    def serves(self, loaded: LoadedShard[S]) -> bool:
        """Return True if a shard is still loaded. Callers check this before they continue work
        later."""
        return self.by_index.get(loaded.replica.index) is loaded

    # Load shards.

    def follow(self) -> None:
        """Load the shards of partitions that this broker has started to lead. `resigned` drops
        shards."""
        for replica in list(self.ports.replicas.led_of(self._topic)):
            if replica.index not in self.by_index:
                loaded = self.by_index[replica.index] = LoadedShard[S](replica)
                self._load_slice(loaded, self._make_shard(), replica.log.log_start_offset)

    def _load_slice(self, loaded: LoadedShard[S], shard: S, offset: int) -> None:
        """Replay a part of the shard's log, and the remaining part in later iterations of the event
        loop.

        The log is not replayed in a thread, because two threads must not read one log.
        """
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
            self.ports.replicas.read_failed(loaded.replica, error)
            if isinstance(error, DiskError) and not is_damage(error):
                self._unread[loaded] = shard, offset
            return
        self.ports.soon(self._load_slice, loaded, shard, offset)

    def load_again(self) -> None:
        """Continue to load shards whose log could not be read, for example because no file
        descriptor was free."""
        unread, self._unread = self._unread, {}
        for loaded, (shard, offset) in unread.items():
            self._load_slice(loaded, shard, offset)

    def _await_commit(self, loaded: LoadedShard[S], shard: S, end_offset: int) -> None:
        """Start to serve requests once all records up to the log's end are committed."""
        replica = loaded.replica
        if replica.log.high_watermark >= end_offset:
            loaded.shard = shard
            self.on_loaded(loaded, shard)
            return

        def committed() -> None:
            # The end offset can have moved, because a marker was written in the meantime.
            self._load_slice(loaded, shard, end_offset)

        replica.committed.await_(end_offset, ReplayWait(committed), None)

    def on_loaded(self, loaded: LoadedShard[S], shard: S) -> None:
        """Resume the work of a loaded shard. Does nothing here; coordinators override this
        method."""

    def on_dropped(self, loaded: LoadedShard[S]) -> None:
        """End the waits of a dropped shard. Does nothing here; coordinators override this
        method."""

    def resigned(self, replica: Replica) -> None:
        """Drop the shard of a partition that this broker no longer leads, or leads in another
        epoch."""
        loaded = self.by_index.get(replica.index)
        if loaded is not None and loaded.replica is replica:
            del self.by_index[replica.index]
            self.on_dropped(loaded)

    # Commit records.

    def submit(
        self,
        loaded: LoadedShard[S],
        outcome: ShardOutcome[Any],
        reply: Reply,
        refused: Refused,
        producer: ProducerEpoch | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Append an outcome's records. `reply` is called when they are committed and replayed.

        `refused` is called instead after a timeout, or if the shard is dropped before. `then` is
        for work that must follow the decision. It is called after the commit, even if the client's
        wait has ended. Raises ApiError if nothing was written.

        With `producer` the records are part of this producer's transaction, which stays open until
        a marker comes. Such a batch is replayed as soon as it is written. It changes nothing yet,
        but a query for stable offsets must know at once that a commit is pending.

        If the outcome has no records, the reply is like the answer to a read, so the rules for
        reads apply to it.
        """
        if not outcome.records:
            if not self.may_tell:
                raise ApiError(ErrorCode.NOT_COORDINATOR)
            reply(outcome.reply)
            if then is not None:
                then()
            return
        end_offset = self._append(loaded, outcome, producer)
        ports = self.ports
        deadline_ms = ports.clock.monotonic_ms() + COMMIT_MS_MAX
        answering = ClientWait(reply, outcome.reply, refused)
        ports.waits.await_(loaded.replica.committed, end_offset, answering, deadline_ms)
        if then is not None:
            loaded.replica.committed.await_(end_offset, ReplayWait(then), None)
        loaded.replica.on_written()

    def submit_own(
        self, loaded: LoadedShard[S], outcome: ShardOutcome[Any], then: Callable[[], None]
    ) -> None:
        """Append an outcome's records that no client waits for. `then` is called after the commit,
        however long it takes.

        `then` is not called if the shard is dropped before. Raises ApiError if nothing was written.
        """
        if not outcome.records:
            then()
            return
        self._append(loaded, outcome, then=then)
        loaded.replica.on_written()

    def _append(
        self,
        loaded: LoadedShard[S],
        outcome: ShardOutcome[Any],
        producer: ProducerEpoch | None = None,
        then: Callable[[], None] | None = None,
    ) -> int:
        """Append an outcome's records, to be replayed once they are committed. `then` is called
        after the replay.

        Returns the end of their batch. The caller then calls `on_written`. Raises ApiError if
        nothing was written.
        """
        replica = loaded.replica
        if not replica.leads_in(loaded.leader_epoch):
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        log = replica.log
        now_ms = self.ports.clock.now_ms()
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
            if then is not None:
                then()

        loaded.under_way.append(records)
        replica.committed.await_(end_offset, ReplayWait(committed), None)
        return end_offset

    def marker_written(
        self, replica: Replica, offset: int, producer: ProducerEpoch, marker: Marker
    ) -> None:
        """Replay a marker once it is committed.

        If the shard is still being loaded, nothing needs to be done, because the load reads the
        marker from the log.
        """
        loaded = self.by_index.get(replica.index)
        if loaded is None or loaded.replica is not replica or loaded.shard is None:
            return
        header = marker_header(offset, producer, replica.leader_epoch)

        def committed() -> None:
            if loaded.shard is not None:
                loaded.shard.replay_marker(header, marker)

        replica.committed.await_(offset + 1, ReplayWait(committed), None)

    def write_failed(self, replica: Replica, error: DiskError, now_ms: int) -> ApiError:
        """Record a disk error, and return the error for the client."""
        self.ports.write_failed(replica.topic_partition, error, now_ms)
        return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
