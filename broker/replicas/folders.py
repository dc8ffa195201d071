"""The folders of partitions: made, renamed and removed in the file thread.

Floor: replicas. Folders follow the metadata log slowly; roles follow it at once (`replicas`). What
the disk refuses for want of room is told, kept and tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.config import InForce
from broker.metadata.image import METADATA_TOPIC, MetadataImage, PartitionImage, TopicImage
from broker.metadata.records import TOPIC_RESOURCE
from broker.storage.dropped import DroppedFiles
from broker.storage.errors import DiskError
from broker.storage.log import Log
from broker.storage.log_manager import DAMAGED_SUFFIX, STRAY_SUFFIX, LogManager
from broker.world import Clock, Jobs
from protocol.log import fields
from protocol.types import NO_NODE, TopicPartition, Uuid

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Made:
    """The logs of one topic by partition, and why some could not be made."""

    topic: TopicImage
    logs: dict[int, Log]
    refused: dict[TopicPartition, str]


class Folders:
    """What is done to folders. At most one job at a time: the thread is one."""

    def __init__(self, settings: InForce, clock: Clock, logs: LogManager, worker: Jobs) -> None:
        self._settings = settings
        self._clock = clock
        self._logs = logs
        self._worker = worker
        self._unforgotten: list[DroppedFiles] = []
        """Folders of deleted partitions that a checkpoint may still name; the thread's alone."""

    def own_indexes(self, topic: TopicImage) -> list[int]:
        """The partitions of a topic of which this broker is a replica."""
        node_id = self._settings.config.node_id
        return [
            index
            for index, partition in enumerate(topic.partitions)
            if node_id in partition.replicas
        ]

    def is_missing(self, topic: TopicImage, index: int) -> bool:
        """Whether a log that is not there should be made: one that is damaged only where its
        records are to be had from another broker."""
        is_offline = TopicPartition(topic.name, index) in self._logs.offline
        return not is_offline or self._is_led_elsewhere(topic.partitions[index])

    def _is_led_elsewhere(self, partition: PartitionImage) -> bool:
        """Whether another broker leads it, and this one does not count as having all of it.

        Whoever leads was in sync or eligible, so it holds all that was ever acknowledged, or was
        chosen by a person who knew that it may not.
        """
        me = self._settings.config.node_id
        counts = me in (*partition.in_sync_replicas, *partition.eligible_leader_replicas)
        return partition.leader not in (NO_NODE, me) and not counts

    def finish_removals(self, image: MetadataImage, removed_ids: set[Uuid]) -> list[DroppedFiles]:
        """At start, before the thread has anything to do; returns what may be unlinked.

        A folder of a topic that the metadata log has removed is a deletion cut short and is
        finished. One whose topic the image does not know is put aside as stray: the broker has
        replayed its own registration, so all that was committed when the folder was made.
        """
        for topic_partition, log in self._logs.logs.items():
            topic = image.topics.get(topic_partition.topic)
            if topic is not None and topic.topic_id == log.topic_id:
                continue
            if log.topic_id in removed_ids:
                files = self._logs.delete(topic_partition)
                self._unforgotten.extend([files] if files is not None else [])
            elif topic_partition.topic != METADATA_TOPIC:
                logger.warning(
                    "folder belongs to no topic; it is put aside",
                    extra=fields(
                        folder=log.folder,
                        topic_id=log.topic_id,
                        kept_in=self._logs.put_aside(topic_partition, STRAY_SUFFIX),
                    ),
                )
        return self._forget()

    def change(
        self,
        removed: Sequence[TopicImage],
        wanted: Sequence[TopicImage],
        image: MetadataImage,
        done: Callable[[list[Made]], None],
    ) -> None:
        """Remove the folders of some topics, then make what is missing of others."""

        def job() -> tuple[list[DroppedFiles], list[Made]]:
            return self._remove(removed), [self.make(topic, image) for topic in wanted]

        def finish(result: tuple[list[DroppedFiles], list[Made]]) -> None:
            dropped, made = result
            self._unlink_all(dropped)
            done(made)

        self._worker.run(job, finish, _never)

    def retry_forgetting(self) -> None:
        """Try again to let go of folders that a full disk has kept."""
        if self._unforgotten:
            self._worker.run(self._forget, self._unlink_all, _never)

    def unlink(self, files: DroppedFiles) -> None:
        """Remove dropped files in the thread: freeing a large one takes long."""

        def failed(error: Exception) -> None:
            logger.warning("files could not be removed", extra=fields(error=error))

        self._worker.run(files.perform, lambda _: None, failed)

    def _unlink_all(self, dropped: list[DroppedFiles]) -> None:
        for files in dropped:
            self.unlink(files)

    def _remove(self, topics: Sequence[TopicImage]) -> list[DroppedFiles]:
        """Put the folders of topics out of the way; one that stays goes at the next start."""
        for topic in topics:
            for index in range(len(topic.partitions)):
                topic_partition = TopicPartition(topic.name, index)
                try:
                    files = self._logs.delete(topic_partition)
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
                self._logs.checkpoint(frees_room=True).perform()
        except DiskError as error:
            if error.is_final:
                raise
            logger.warning("checkpoint not written", extra=fields(error=error))
            return []
        forgotten, self._unforgotten = self._unforgotten, []
        return forgotten

    def make(self, topic: TopicImage, image: MetadataImage) -> Made:
        """The logs of a topic, missing ones made; in a thread, so nothing here is changed."""
        config = self._settings.config.log_config(image.settings(TOPIC_RESOURCE, topic.name))
        made = Made(topic, {}, {})
        wanted = []
        for index in self.own_indexes(topic):
            topic_partition = TopicPartition(topic.name, index)
            log = self._logs.get(topic_partition)
            if topic_partition in self._logs.offline and not self._put_aside(topic, index, made):
                continue
            if log is not None and log.topic_id == topic.topic_id:
                made.logs[index] = log
            else:
                wanted.append(topic_partition)
        if wanted:
            now_ms = self._clock.now_ms()
            new, refused = self._logs.create_all(wanted, topic.topic_id, config, now_ms)
            made.logs.update({one.partition: log for one, log in new.items()})
            made.refused.update({one: str(error) for one, error in refused.items()})
        return made

    def _put_aside(self, topic: TopicImage, index: int, made: Made) -> bool:
        """Keep a damaged log out of the way, if its records are to be had; whether it is gone."""
        if not self.is_missing(topic, index):
            return False
        topic_partition = TopicPartition(topic.name, index)
        reason = self._logs.offline[topic_partition]
        try:
            kept_in = self._logs.put_aside(topic_partition, DAMAGED_SUFFIX)
        except DiskError as error:
            if error.is_final:
                raise
            made.refused[topic_partition] = str(error)
            return False
        logger.error(
            "damaged log put aside; it is fetched again from its leader",
            extra=fields(
                partition=topic_partition,
                reason=reason,
                kept_in=kept_in or "nowhere, its folder is missing",
                leader=topic.partitions[index].leader,
            ),
        )
        return True


def _never(error: Exception) -> None:
    """For jobs that deal with every refusal of the disk themselves."""
    raise error
