"""The group coordinator at work: shards loaded by replay, commits appended, then replayed.

Floor: server. Each partition of the offsets topic is one shard. A shard is loaded, a slice
a turn, when its partition comes into service; until then its groups answer
COORDINATOR_LOAD_IN_PROGRESS. An
outcome's records are appended as one batch, and when the high watermark has passed it they are
replayed into the shard and the reply leaves.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from broker.controller.image import OFFSETS_TOPIC
from broker.coordinators.offsets import GroupShard, shard_of
from broker.coordinators.outcome import CoordinatorRecord, Outcome
from broker.server.replica_manager import Partition
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.log import Log
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.log import fields
from protocol.wire.records import (
    NewRecord,
    build_batch,
    iterate_batches,
    iterate_records,
    read_header,
)

if TYPE_CHECKING:
    from broker.server.services import Services

logger = logging.getLogger(__name__)

LOAD_BYTES = 64 << 10
"""Replayed in one turn of the loop: a few milliseconds."""

Reply = Callable[[Any], None]
Refused = Callable[[ApiError], None]


class LoadedShard:
    """A shard and the outcomes that are written but not committed."""

    __slots__ = ("partition", "pending", "shard")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.shard: GroupShard | None = None
        """None while it is being loaded, or when its log cannot be read."""
        self.pending: deque[tuple[int, Sequence[CoordinatorRecord], Callable[[], None]]] = deque()


class GroupCoordinator:
    """All shards of this broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._shards: dict[int, LoadedShard] = {}

    def shards(self) -> Iterator[GroupShard]:
        """The shards that are loaded."""
        for loaded in self._shards.values():
            if loaded.shard is not None:
                yield loaded.shard

    @property
    def is_loading(self) -> bool:
        """Whether a shard is not there yet, so that a list of groups would have a hole."""
        return any(loaded.shard is None for loaded in self._shards.values())

    def find(self, group_id: str) -> LoadedShard:
        """Where a group's facts lie; refuses while that is loading, or is not here at all."""
        topic = self._services.metadata.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        loaded = self._shards.get(shard_of(group_id, len(topic.partitions)))
        if loaded is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if loaded.shard is None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return loaded

    def shard(self, group_id: str) -> GroupShard:
        """The shard of a group, to read from."""
        shard = self.find(group_id).shard
        assert shard is not None
        return shard

    # Loading.

    def follow(self) -> None:
        """Load the shards of partitions that have come into service; drop those that have gone."""
        present = {
            partition.index: partition
            for partition in self._services.replicas.partitions_of(OFFSETS_TOPIC)
        }
        for index in [one for one in self._shards if one not in present]:
            del self._shards[index]
        for index, partition in present.items():
            known = self._shards.get(index)
            if known is None or known.partition is not partition:
                self._load(index, partition)

    def _load(self, index: int, partition: Partition) -> None:
        loaded = self._shards[index] = LoadedShard(partition)
        config = self._services.config
        retention_ms = config.offsets_retention_minutes * 60_000

        shard = GroupShard(config.offset_metadata_max_bytes, retention_ms)
        self._load_slice(loaded, shard, partition.log.log_start_offset)

    def _load_slice(self, loaded: LoadedShard, shard: GroupShard, offset: int) -> None:
        """Replay a little, and the rest in later turns: a log must not be read in two threads."""
        log = loaded.partition.log
        if offset >= log.log_end_offset:
            loaded.shard = shard
            return
        try:
            offset = replay_slice(log, shard, offset)
        except (CorruptionError, DiskError, WireError, ApiError) as error:
            logger.error(
                "committed offsets cannot be loaded",
                extra=fields(partition=loaded.partition.topic_partition, error=error),
            )
            return
        self._services.loop.call_soon(self._load_slice, loaded, shard, offset)

    # Committing.

    def submit(
        self, loaded: LoadedShard, outcome: Outcome[Any], reply: Reply, refused: Refused
    ) -> None:
        """Append an outcome's records; `reply` comes when they are committed and replayed."""
        if not outcome.records:
            reply(outcome.reply)
            return
        partition = loaded.partition
        log = partition.log
        now_ms = self._services.clock.now_ms()
        batch = build_batch([NewRecord(one.key, one.value, now_ms) for one in outcome.records])
        if len(batch) > log.config.max_message_bytes:
            refused(ApiError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE))
            return
        view = memoryview(batch)
        try:
            appended = log.append_own(view, read_header(view), partition.leader_epoch, now_ms)
            log.write_staged(now_ms)
        except ApiError as error:
            refused(error)
            return
        except DiskError as error:
            self._services.metrics.write_failed(partition.topic_partition, error, now_ms)
            refused(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
            return
        loaded.pending.append(
            (appended.last_offset + 1, outcome.records, lambda: reply(outcome.reply))
        )
        self._services.replicas.written(partition)

    def advanced(self, partition: Partition) -> None:
        """The high watermark of an offsets partition has moved."""
        loaded = self._shards.get(partition.index)
        if loaded is None or loaded.partition is not partition:
            return
        pending = loaded.pending
        while pending and pending[0][0] <= partition.log.high_watermark:
            _, records, reply = pending.popleft()
            if loaded.shard is not None:
                for record in records:
                    loaded.shard.replay(record.key, record.value)
            reply()

    # Forgetting.

    def expire(self, now_ms: int) -> None:
        """Write tombstones for the offsets whose time is over."""
        self._forget(lambda shard: shard.expired(now_ms))

    def topics_removed(self, names: Collection[str]) -> None:
        """Write tombstones for the offsets of topics that are gone."""
        self._forget(lambda shard: shard.of_topics(names))

    def _forget(self, choose: Callable[[GroupShard], list[CoordinatorRecord]]) -> None:
        for loaded in self._shards.values():
            if loaded.shard is None:
                continue
            records = choose(loaded.shard)
            for start in range(0, len(records), FORGET_COUNT_MAX):
                outcome = Outcome(records[start : start + FORGET_COUNT_MAX], None)
                self.submit(loaded, outcome, lambda _: None, _not_forgotten)


FORGET_COUNT_MAX = 1_000
"""Tombstones in one batch."""


def _not_forgotten(error: ApiError) -> None:
    logger.warning("offsets could not be removed", extra=fields(error=error))


def replay_slice(log: Log, shard: GroupShard, offset: int) -> int:
    """Replay the batches from `offset` on, a slice's worth; returns where the next slice begins."""
    found = log.read(offset, LOAD_BYTES, log.log_end_offset).region
    if found is None:
        raise CorruptionError(log.folder, offset, "the log ends before its end offset")
    for header, batch in iterate_batches(found.read()):
        offset = header.last_offset + 1
        if header.is_control:
            continue
        for record in iterate_records(batch):
            if record.key is not None:
                shard.replay(record.key, record.value)
    return offset
