"""The folders of partitions follow the metadata log slowly; roles follow it at once (`replicas`).

Floor: replicas. A change is done in steps, each of them decided here in the loop, done in the file
thread and taken over here (`storage/folder_jobs`): folders are put out of the way, a checkpoint
forgets them, others are made. One change at a time, for a step is decided by what the one before it
has left. What the disk refuses for want of room is told, kept and tried again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from broker.config import InForce
from broker.metadata.image import METADATA_TOPIC, MetadataImage, PartitionImage, TopicImage
from broker.metadata.records import TOPIC_RESOURCE
from broker.storage.dropped import DroppedFiles
from broker.storage.errors import DiskError, FolderError
from broker.storage.folder_jobs import (
    DAMAGED_SUFFIX,
    STRAY_SUFFIX,
    FolderRemoval,
    MadeLogs,
    Making,
    RenamedFolders,
)
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
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


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be done to folders: these topics' go, and what these others lack is made."""

    removed: Sequence[TopicImage]
    wanted: Sequence[TopicImage]
    image: MetadataImage
    """With the settings of those that are wanted."""
    done: Callable[[list[Made]], None]


class Folders:
    """What is done to folders."""

    def __init__(self, settings: InForce, clock: Clock, logs: LogManager, worker: Jobs) -> None:
        self._settings = settings
        self._clock = clock
        self._logs = logs
        self._worker = worker
        self._unforgotten: list[DroppedFiles] = []
        """Folders of deleted partitions that a checkpoint may still name."""
        self._not_aside: dict[TopicPartition, DiskError | FolderError] = {}
        """Damaged logs that were to be put aside and could not be."""
        self._changes: deque[Change] = deque()
        """The first is under way."""

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
        return not is_offline or self.is_led_elsewhere(topic.partitions[index])

    def is_led_elsewhere(self, partition: PartitionImage) -> bool:
        """Whether another broker leads it, and this one does not count as having all of it.

        Whoever leads was in sync or eligible, so it holds all that was ever acknowledged, or was
        chosen by a person who knew that it may not.
        """
        me = self._settings.config.node_id
        counts = me in (*partition.in_sync_replicas, *partition.eligible_leader_replicas)
        return partition.leader not in (NO_NODE, me) and not counts

    # At the start, before the thread has anything to do.

    def finish_removals(
        self, image: MetadataImage, removed_ids: set[Uuid], *, is_caught_up: bool
    ) -> list[DroppedFiles]:
        """Finish what deletions were cut short; returns what may be unlinked.

        A folder of a topic that the metadata log has removed is one. One whose topic the image does
        not know is put aside as stray if the broker has replayed its own registration
        (`is_caught_up`), so all that was committed when the folder was made.
        """
        strays = []
        for topic_partition, log in self._logs.logs.items():
            topic = image.topics.get(topic_partition.topic)
            if topic is not None and topic.topic_id == log.topic_id:
                continue
            if log.topic_id in removed_ids:
                files = self._logs.delete(topic_partition)
                self._unforgotten.extend([files] if files is not None else [])
            elif is_caught_up and topic_partition.topic != METADATA_TOPIC:
                strays.append(topic_partition)
        self._put_strays_aside(strays)
        if not self._unforgotten:
            return []
        try:
            self._logs.checkpoint(frees_room=True).perform()
        except DiskError as error:
            if error.is_final:
                raise
            _not_forgotten(error)
            return []
        forgotten, self._unforgotten = self._unforgotten, []
        return forgotten

    def _put_strays_aside(self, strays: Sequence[TopicPartition]) -> None:
        """Rename folders that belong to no topic; those that the disk keeps go at the next start.

        The checkpoint forgets them first. A start takes a log without its folder for lost, and
        these must not have it look away: they are there for good, and a later log of the same name
        may be lost as well.
        """
        removal = self._logs.begin_removal(strays, STRAY_SUFFIX)
        if removal is None:
            return
        try:
            self._logs.checkpoint(frees_room=True).perform()
        except DiskError as error:
            if error.is_final:
                raise
            done = RenamedFolders({}, dict.fromkeys(strays, error))
        else:
            done = removal.perform()
        self._logs.removed(removal, done)
        for topic_partition, path in done.paths.items():
            logger.warning(
                "folder belongs to no topic; it is put aside",
                extra=fields(
                    partition=topic_partition,
                    topic_id=removal.logs[topic_partition].topic_id,
                    kept_in=path,
                ),
            )
        for topic_partition, refusal in done.refused.items():
            logger.warning(
                "folder belongs to no topic, and cannot be put aside",
                extra=fields(partition=topic_partition, error=refusal),
            )

    def make(self, topic: TopicImage, image: MetadataImage) -> Made:
        """The logs of a topic, missing ones made."""
        removal = self._logs.begin_removal(self._to_put_aside(topic), DAMAGED_SUFFIX)
        if removal is not None:
            self._put_aside(removal, removal.perform())
        making = self._plan(topic, image)
        return self._taken_over(topic, making, making.perform())

    # While the broker runs.

    def change(
        self,
        removed: Sequence[TopicImage],
        wanted: Sequence[TopicImage],
        image: MetadataImage,
        done: Callable[[list[Made]], None],
    ) -> None:
        """Remove the folders of some topics, then make what is missing of others."""
        self._changes.append(Change(removed, wanted, image, done))
        if len(self._changes) == 1:
            self._begin()

    def retry_forgetting(self) -> None:
        """Try again to let go of folders that a full disk has kept."""
        if self._unforgotten:
            self.change((), (), MetadataImage(), lambda made: None)

    def unlink(self, files: DroppedFiles) -> None:
        """Remove dropped files in the thread: freeing a large one takes long."""

        def failed(error: Exception) -> None:
            logger.warning("files could not be removed", extra=fields(error=error))

        self._worker.run(files.perform, lambda _: None, failed)

    # The steps of a change.

    def _begin(self) -> None:
        removal = self._logs.begin_removal(_partitions_of(self._changes[0].removed))
        if removal is None:
            self._forget()
        else:
            self._worker.run(removal.perform, partial(self._renamed, removal), _never)

    def _renamed(self, removal: FolderRemoval, done: RenamedFolders) -> None:
        self._unforgotten += self._logs.removed(removal, done)
        for topic_partition, error in done.refused.items():
            # It goes at the next start.
            logger.error(
                "folder cannot be removed", extra=fields(partition=topic_partition, error=error)
            )
        self._forget()

    def _forget(self) -> None:
        """Write that deleted folders are no longer expected.

        Without room for that nothing of them goes yet: a start would take the folders for lost.
        """
        if not self._unforgotten:
            self._make_all()
            return

        def forgotten(_: None) -> None:
            files, self._unforgotten = self._unforgotten, []
            for one in files:
                self.unlink(one)
            self._make_all()

        def refused(error: Exception) -> None:
            _not_forgotten(error)
            self._make_all()

        self._worker.run(self._logs.checkpoint(frees_room=True).perform, forgotten, refused)

    def _make_all(self) -> None:
        damaged = [one for topic in self._changes[0].wanted for one in self._to_put_aside(topic)]
        removal = self._logs.begin_removal(damaged, DAMAGED_SUFFIX)
        if removal is None:
            self._make_wanted()
            return

        def renamed(done: RenamedFolders) -> None:
            self._put_aside(removal, done)
            self._make_wanted()

        self._worker.run(removal.perform, renamed, _never)

    def _to_put_aside(self, topic: TopicImage) -> list[TopicPartition]:
        """The damaged logs of a topic whose records are to be had from another broker."""
        own = [(index, TopicPartition(topic.name, index)) for index in self.own_indexes(topic)]
        return [
            one for index, one in own if one in self._logs.offline and self.is_missing(topic, index)
        ]

    def _put_aside(self, removal: FolderRemoval, done: RenamedFolders) -> None:
        """Damaged logs are out of the way, so that they can be made anew; nothing reads or removes
        them again. One that the disk does not let be renamed stays offline."""
        self._logs.removed(removal, done)
        for topic_partition, path in done.paths.items():
            logger.error(
                "damaged log put aside; it is fetched again from its leader",
                extra=fields(
                    partition=topic_partition,
                    reason=removal.offline[topic_partition],
                    kept_in=path or "nowhere, its folder is missing",
                ),
            )
        self._not_aside = done.refused

    def _make_wanted(self) -> None:
        change = self._changes[0]
        if not change.wanted:
            self._end([])
            return
        plans = [(topic, self._plan(topic, change.image)) for topic in change.wanted]

        def job() -> list[MadeLogs]:
            return [making.perform() for _, making in plans]

        def made(done: list[MadeLogs]) -> None:
            self._end(
                [
                    self._taken_over(topic, making, one)
                    for (topic, making), one in zip(plans, done, strict=True)
                ]
            )

        self._worker.run(job, made, _never)

    def _end(self, made: list[Made]) -> None:
        # While it is told, this one is still the first: who hears of it may ask for more.
        self._changes[0].done(made)
        self._changes.popleft()
        if self._changes:
            self._begin()

    def _plan(self, topic: TopicImage, image: MetadataImage) -> Making:
        wanted = [TopicPartition(topic.name, index) for index in self.own_indexes(topic)]
        return self._logs.begin_making(
            # What is offline has its place, and says there why.
            [one for one in wanted if one not in self._logs.offline],
            topic.topic_id,
            self._settings.config.log_config(image.settings(TOPIC_RESOURCE, topic.name)),
            self._clock.now_ms(),
        )

    def _taken_over(self, topic: TopicImage, making: Making, done: MadeLogs) -> Made:
        logs, refused = self._logs.made(making, done)
        reasons = {topic_partition: str(error) for topic_partition, error in refused.items()}
        # What could not be put aside is tried again like what could not be made.
        for one in self._to_put_aside(topic):
            if one in self._not_aside:
                reasons[one] = f"{self._logs.offline[one]}; not put aside: {self._not_aside[one]}"
        return Made(
            topic,
            {topic_partition.partition: log for topic_partition, log in logs.items()},
            reasons,
        )


def _partitions_of(topics: Iterable[TopicImage]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic in topics
        for index in range(len(topic.partitions))
    ]


def _not_forgotten(error: Exception) -> None:
    logger.warning("checkpoint not written", extra=fields(error=error))


def _never(error: Exception) -> None:
    """For jobs that deal with every refusal of the disk themselves."""
    raise error
