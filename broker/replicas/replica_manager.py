"""The partitions this broker holds: their logs, their epochs, and how far they are committed.

Floor: replicas. With one replica per partition the high watermark follows the leader alone: with
`flush=ack` it is what has been synced, else what has been written. Whoever waits for it registers
with `on_advance`; nobody else moves it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from broker.config import BrokerConfig
from broker.metadata.image import MetadataDelta, MetadataImage, TopicImage
from broker.metadata.records import TOPIC_RESOURCE
from broker.replicas.flusher import Flusher
from broker.storage.dropped import DroppedFiles
from broker.storage.errors import DiskError
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.world import Clock, Jobs
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.types import TopicPartition, Uuid

logger = logging.getLogger(__name__)


READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""The isolation levels of Fetch and ListOffsets."""


class Partition:
    """One partition that this broker leads."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "index",
        "is_internal",
        "leader_epoch",
        "log",
        "topic",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, log: Log, leader_epoch: int, is_internal: bool
    ) -> None:
        self.topic_partition = topic_partition
        self.topic = topic_partition.topic
        self.index = topic_partition.partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_internal = is_internal
        self.bytes_in = 0
        """What clients have written here since the start of the process."""
        self.bytes_out = 0
        """What they have been sent from here."""

    def readable_end(self, isolation_level: int) -> int:
        """Where a client's reading ends: at the high watermark, or before what is undecided."""
        if isolation_level == READ_COMMITTED:
            return self.log.last_stable_offset
        return self.log.high_watermark

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the record at an offset was written.

        The epoch of the record, not the current one: on a quiet topic a client that knows an older
        epoch would take the current one for a truncation and wait for ever. Where there is no
        record, the next one there will be of the current epoch.
        """
        log = self.log
        if not log.log_start_offset <= offset < log.log_end_offset:
            return self.leader_epoch
        return log.leader_epochs.epoch_of(offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch not above the one asked for, its end offset), or (-1, -1)."""
        return self.log.end_offset_for_epoch(leader_epoch, self.leader_epoch)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client whose metadata is older, or newer, than ours; -1 asks for no check."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)


@dataclass(frozen=True, slots=True)
class Made:
    """The logs of one topic by partition, and why some could not be made."""

    topic: TopicImage
    logs: dict[int, Log]
    refused: dict[TopicPartition, str]


class ReplicaManager:
    """Finds partitions, opens and closes them as the metadata says, and commits what is written."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        logs: LogManager,
        flusher: Flusher,
        worker: Jobs,
        on_advance: Callable[[Partition], None],
        on_gone: Callable[[Partition], None],
    ) -> None:
        self.config = config
        self.logs = logs
        self._clock = clock
        self._flusher = flusher
        self._worker = worker
        self._on_advance = on_advance
        self._on_gone = on_gone
        self._topics: dict[str, dict[int, Partition]] = {}
        self._by_log: dict[Log, Partition] = {}
        self.unmade: dict[TopicPartition, str] = {}
        """Partitions of the metadata whose folder the disk has refused so far, with the reason."""
        self._unforgotten: list[DroppedFiles] = []
        """Folders of deleted partitions that a checkpoint may still name; the thread's alone."""
        self._elsewhere: set[TopicPartition] = set()
        """Partitions of which this broker is no replica."""
        self._checkpoint_next: list[tuple[Callable[[], None], Callable[[Exception], None]]] = []
        """Who has asked for a checkpoint since the last one began."""
        self._next_frees_room = False
        self._is_checkpointing = False

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._topics.values():
            yield from partitions.values()

    def find(self, topic: str, index: int) -> Partition:
        """The partition, or why there is none to be had here."""
        partitions = self._topics.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        if partition is not None:
            return partition
        topic_partition = TopicPartition(topic, index)
        if topic_partition in self.logs.offline or topic_partition in self.unmade:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        if topic_partition in self._elsewhere:
            # UNKNOWN_TOPIC_OR_PARTITION would tell the client that there is no such partition.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, where it is served here."""
        partitions = self._topics.get(topic)
        return partitions.get(index) if partitions is not None else None

    def partitions_of(self, topic: str) -> Collection[Partition]:
        """What this broker holds of a topic."""
        return self._topics.get(topic, {}).values()

    def written(self, partition: Partition) -> None:
        """Something has been written to the log: commit it now, or once it is synced."""
        log = partition.log
        config = log.config
        if config.is_flushed_before_ack:
            self._flusher.mark(log)
            return
        log.advance_high_watermark(log.written_end_offset)
        if log.is_flush_due(self._clock.now_ms()):
            self._flusher.mark(log)
        self._on_advance(partition)

    def flushed(self, log: Log) -> None:
        """The log's recovery point has moved."""
        partition = self._by_log.get(log)
        if partition is None:
            return
        # What is staged does not count, even if the flusher has been fast.
        offset = min(log.recovery_point, log.written_end_offset)
        if offset > log.high_watermark:
            log.advance_high_watermark(offset)
            self._on_advance(partition)

    def flush_overdue(self, now_ms: int) -> None:
        """Sync the logs that their `flush.ms` or `flush.messages` asks for."""
        for partition in self:
            if partition.log.is_flush_due(now_ms):
                self._flusher.mark(partition.log)

    def flush_all(self) -> None:
        """Sync everything that is written, whatever its topic's settings."""
        for partition in self:
            if partition.log.recovery_point < partition.log.written_end_offset:
                self._flusher.mark(partition.log)

    def checkpoint(
        self,
        done: Callable[[], None],
        failed: Callable[[Exception], None],
        *,
        frees_room: bool = False,
    ) -> None:
        """Write the offsets every log starts at, and is safe up to, in the thread; then `done`.

        One is under way at a time, and the next is for all who have asked by then: clients may ask
        faster than the disk writes, and go away before they are answered. `frees_room`: so that
        files may go; it may use the reserve on a full disk.
        """
        self._checkpoint_next.append((done, failed))
        self._next_frees_room |= frees_room
        if not self._is_checkpointing:
            self._checkpoint()

    def _checkpoint(self) -> None:
        asked, self._checkpoint_next = self._checkpoint_next, []
        frees_room, self._next_frees_room = self._next_frees_room, False
        self._is_checkpointing = True

        checkpoint = self.logs.checkpoint(frees_room=frees_room)

        def written(_: None) -> None:
            self._is_checkpointing = False
            for done, _failed in asked:
                done()
            go_on()

        def refused(error: Exception) -> None:
            self._is_checkpointing = False
            for _done, failed in asked:
                failed(error)
            go_on()

        def go_on() -> None:
            if self._checkpoint_next and not self._is_checkpointing:
                self._checkpoint()

        self._worker.run(checkpoint.perform, written, refused)

    # The metadata has changed.

    def open_all(self, image: MetadataImage, removed_ids: set[Uuid]) -> list[DroppedFiles]:
        """At start: take every partition of the image into service; returns what may be unlinked.

        A folder of a topic that the metadata log has removed is a deletion cut short and is
        finished. A folder the metadata log has never heard of is left alone, and named.
        """
        for topic_partition, log in self.logs.logs.items():
            topic = image.topics.get(topic_partition.topic)
            if topic is not None and topic.topic_id == log.topic_id:
                continue
            if log.topic_id in removed_ids:
                files = self.logs.delete(topic_partition)
                self._unforgotten.extend([files] if files is not None else [])
            elif topic_partition.topic != "__cluster_metadata":
                logger.warning(
                    "folder belongs to no topic; it is left alone",
                    extra=fields(folder=log.folder, topic_id=log.topic_id),
                )
        dropped = self._forget()
        for topic in image.topics.values():
            self._adopt(self._make(topic, image), image)
        return dropped

    def apply(self, delta: MetadataDelta, image: MetadataImage, done: Callable[[], None]) -> None:
        """Follow a commit: folders are made and renamed in a thread, then `done` is called."""
        retired: list[Log] = []
        for topic in delta.removed:
            for index in range(len(topic.partitions)):
                topic_partition = TopicPartition(topic.name, index)
                self.unmade.pop(topic_partition, None)
                self._elsewhere.discard(topic_partition)
            for partition in self._topics.pop(topic.name, {}).values():
                self._by_log.pop(partition.log, None)
                partition.log.retire()
                retired.append(partition.log)
                self._on_gone(partition)
        touched = [image.topics[name] for name in sorted(delta.touched) if name in image.topics]

        def job() -> tuple[list[DroppedFiles], list[Made]]:
            return self._remove(delta.removed), [self._make(topic, image) for topic in touched]

        def finish(result: tuple[list[DroppedFiles], list[Made]]) -> None:
            dropped, made = result
            for one in made:
                self._adopt(one, image)
            for files in dropped:
                self.unlink(files)
            done()

        if delta.removed or touched:
            # A flush under way works in the folder by its path, which a namesake may get.
            self._flusher.drain(retired, lambda: self._worker.run(job, finish, _never))
        else:
            done()

    def reconfigure(self, config: BrokerConfig, image: MetadataImage) -> None:
        """Put settings of the node in force that were changed at run time, for all topics."""
        self.config = config
        for name, partitions in self._topics.items():
            settings = config.log_config(image.settings(TOPIC_RESOURCE, name))
            for partition in partitions.values():
                partition.log.config = settings

    def retry(self, current: Callable[[], MetadataImage], done: Callable[[], None]) -> None:
        """Try again to make what the disk has refused; `done` comes when something may have been
        made, which is in service then."""
        image = current()
        names = sorted({one.topic for one in self.unmade})
        topics = [image.topics[name] for name in names if name in image.topics]

        def finish(made: list[Made]) -> None:
            now = current()
            for one in made:
                # The topic may have gone meanwhile, or be another of the same name. While it is
                # being deleted it is out of service, and the image does not say so yet.
                topic = now.topics.get(one.topic.name)
                if topic is None or topic.topic_id != one.topic.topic_id:
                    continue
                if topic.name in self._topics:
                    self._adopt(Made(topic, one.logs, one.refused), now)
            done()

        def forgotten(dropped: list[DroppedFiles]) -> None:
            for files in dropped:
                self.unlink(files)

        if self._unforgotten:
            self._worker.run(self._forget, forgotten, _never)
        if topics:
            self._worker.run(lambda: [self._make(topic, image) for topic in topics], finish, _never)

    def unlink(self, files: DroppedFiles) -> None:
        """Remove dropped files in the thread: freeing a large one takes long."""

        def failed(error: Exception) -> None:
            logger.warning("files could not be removed", extra=fields(error=error))

        self._worker.run(files.perform, lambda _: None, failed)

    def _remove(self, topics: Sequence[TopicImage]) -> list[DroppedFiles]:
        """Put the folders of topics out of the way; one that stays goes at the next start."""
        for topic in topics:
            for index in range(len(topic.partitions)):
                topic_partition = TopicPartition(topic.name, index)
                try:
                    files = self.logs.delete(topic_partition)
                except DiskError as error:
                    if error.is_final:
                        raise
                    logger.error(
                        "folder cannot be removed",
                        extra=fields(partition=topic_partition, error=error),
                    )
                    continue
                self._unforgotten.extend([files] if files is not None else [])
        return self._forget()

    def _forget(self) -> list[DroppedFiles]:
        """Write that deleted folders are no longer expected; returns what may go now.

        Without room for that nothing goes yet: a start would take the folders for lost.
        """
        try:
            if self._unforgotten:
                self.logs.checkpoint(frees_room=True).perform()
        except DiskError as error:
            if error.is_final:
                raise
            logger.warning("checkpoint not written", extra=fields(error=error))
            return []
        forgotten, self._unforgotten = self._unforgotten, []
        return forgotten

    def _make(self, topic: TopicImage, image: MetadataImage) -> Made:
        """The logs of a topic, new ones made; in a thread, so nothing here is changed."""
        config = self.config.log_config(image.settings(TOPIC_RESOURCE, topic.name))
        made = Made(topic, {}, {})
        wanted = []
        for index in self._own_indexes(topic):
            topic_partition = TopicPartition(topic.name, index)
            log = self.logs.get(topic_partition)
            if topic_partition in self.logs.offline:
                continue
            if log is not None and log.topic_id == topic.topic_id:
                made.logs[index] = log
            else:
                wanted.append(topic_partition)
        if wanted:
            now_ms = self._clock.now_ms()
            new, refused = self.logs.create_all(wanted, topic.topic_id, config, now_ms)
            made.logs.update({one.partition: log for one, log in new.items()})
            made.refused.update({one: str(error) for one, error in refused.items()})
        return made

    def _own_indexes(self, topic: TopicImage) -> list[int]:
        """The partitions of a topic of which this broker is a replica."""
        node_id = self.config.node_id
        return [
            index
            for index, partition in enumerate(topic.partitions)
            if node_id in partition.replicas
        ]

    def _adopt(self, made: Made, image: MetadataImage) -> None:
        topic = made.topic
        config = self.config.log_config(image.settings(TOPIC_RESOURCE, topic.name))
        partitions = self._topics.setdefault(topic.name, {})
        own = self._own_indexes(topic)
        self._elsewhere.update(
            TopicPartition(topic.name, index)
            for index in range(len(topic.partitions))
            if index not in own
        )
        for topic_partition, reason in made.refused.items():
            if topic_partition not in self.unmade:
                logger.error(
                    "partition cannot be made",
                    extra=fields(partition=topic_partition, reason=reason),
                )
            self.unmade[topic_partition] = reason
        for index, log in made.logs.items():
            self.unmade.pop(TopicPartition(topic.name, index), None)
            log.config = config
            leader_epoch = topic.partitions[index].leader_epoch
            known = partitions.get(index)
            if known is not None and known.log is log:
                known.leader_epoch = leader_epoch
                continue
            partition = Partition(
                TopicPartition(topic.name, index), log, leader_epoch, topic.is_internal
            )
            partitions[index] = partition
            self._by_log[log] = partition
            # What survived the restart is all there is: one replica's end is everybody's.
            if not config.is_flushed_before_ack or log.recovery_point >= log.log_end_offset:
                log.advance_high_watermark(log.log_end_offset)
            else:
                self._flusher.mark(log)


def _never(error: Exception) -> None:
    """For jobs that deal with every refusal of the disk themselves."""
    raise error
