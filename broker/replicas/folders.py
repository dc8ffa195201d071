"""Creates and removes the folders of partitions as the metadata requires.

Roles follow the metadata at once (`replicas`), but folders need time. A change has several steps.
It renames the folders of deleted topics and of replicas that were taken away, writes a checkpoint
without them, and creates missing folders. Each step is planned in the event loop and runs in the
file thread. Then the loop applies its result (`storage/folder_jobs`). Only one change runs at a
time, because the plan of a step depends on the result of the step before. Steps that a full disk
rejects are reported and retried.

`folder_rules` decides which folders to remove. The folder of a deleted topic is deleted at once.
The folder of a replica that was taken away is deleted after `file.delete.delay.ms` (decision 0130).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from broker.config import InForce, LogConfig
from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.records import TOPIC_RESOURCE
from broker.replicas.folder_rules import FolderRules
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
from protocol.types import TopicPartition, Uuid

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CreatedLogs:
    """The logs of one topic by partition, and the reason for each that could not be created."""

    topic: TopicImage
    logs: dict[int, Log]
    refused: dict[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class FolderChange:
    """A change: delete the folders of `removed` topics, and create missing folders of `wanted`
    topics."""

    removed: Sequence[TopicImage]
    wanted: Sequence[TopicImage]
    image: MetadataImage
    """The image with the settings of the wanted topics."""
    done: Callable[[list[CreatedLogs]], None]
    departed: Sequence[TopicPartition]
    """The replicas that were taken away from this broker. Their folders are deleted too."""


class Folders:
    """Creates and removes the partition folders of one broker."""

    def __init__(
        self,
        settings: InForce,
        clock: Clock,
        logs: LogManager,
        worker: Jobs,
        broker_epoch: int,
    ) -> None:
        """`broker_epoch` is the epoch under which this incarnation is registered."""
        self._settings = settings
        self._clock = clock
        self._logs = logs
        self._worker = worker
        self.rules = FolderRules(settings, logs, broker_epoch)
        self._unlink_when_due: Callable[[DroppedFiles], None] = self.unlink
        self._unforgotten: list[DroppedFiles] = []
        """The folders of deleted partitions that a checkpoint can still name."""
        self._not_removed: dict[TopicPartition, DiskError | FolderError] = {}
        """The replicas that were taken away and whose folders could not be renamed, with the error.
        Their logs are out of service. Each change tries to rename them again."""
        self._not_aside: dict[TopicPartition, DiskError | FolderError] = {}
        """The damaged logs whose folders could not be renamed, with the error."""
        self._changes: deque[FolderChange] = deque()
        """The changes that are not done. The first one is running."""

    def own_indexes(self, topic: TopicImage) -> list[int]:
        """Return the partitions of a topic of which this broker is a replica."""
        node_id = self._settings.config.node_id
        return [
            index
            for index, partition in enumerate(topic.partitions)
            if node_id in partition.replicas
        ]

    def is_missing(self, topic: TopicImage, index: int) -> bool:
        """Return True if a missing log must be created.

        A damaged log is created again only if its records can be fetched from another broker.
        """
        is_offline = TopicPartition(topic.name, index) in self._logs.offline
        return not is_offline or self.rules.is_led_elsewhere(topic.partitions[index])

    # At the start, before the file thread has work.

    def finish_removals(self, image: MetadataImage, removed_ids: set[Uuid]) -> list[DroppedFiles]:
        """Finish interrupted deletions. Return the files that can be deleted.

        They are the folders of topics that the metadata log has removed, and of replicas that were
        taken away. A folder whose topic is not in the image gets the suffix `-stray`.
        """
        for topic_partition in self.rules.unknown(image):
            if self._logs.logs[topic_partition].topic_id in removed_ids:
                files = self._logs.delete(topic_partition)
                self._unforgotten.extend([files] if files is not None else [])
        self._put_strays_aside(self.rules.strays(image))
        departed = self.rules.departed(self._logs.logs, image)
        for one in departed:
            # An opened log has the broker's settings, and the topic can have its own delay.
            self._logs.logs[one].use(self._log_config(one.topic, image))
        removal = self._logs.begin_removal(departed)
        if removal is not None:
            self._take_renamed(removal, removal.perform(), departed)
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
        """Rename folders that belong to no topic. A rename that the disk rejects is retried at the
        next start.

        A checkpoint without them is written first. A start treats a log in the checkpoint without
        its folder as lost. The broker never uses these folders again, and a later log with the same
        name must not be confused with them.
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
                "a folder belongs to no topic of the cluster; it was renamed and is kept",
                extra=fields(
                    partition=topic_partition,
                    topic_id=removal.logs[topic_partition].topic_id,
                    kept_in=path,
                ),
            )
        for topic_partition, refusal in done.refused.items():
            logger.warning(
                "a folder belongs to no topic of the cluster, and could not be renamed",
                extra=fields(partition=topic_partition, error=refusal),
            )

    def make(self, topic: TopicImage, image: MetadataImage) -> CreatedLogs:
        """Return the logs of a topic. Create the missing logs."""
        removal = self._logs.begin_removal(self.to_put_aside(topic, image), DAMAGED_SUFFIX)
        if removal is not None:
            self._put_aside(removal, removal.perform())
        making = self._plan(topic, image)
        return self._taken_over(topic, image, making, making.perform())

    # While the broker runs.

    def change(
        self,
        removed: Sequence[TopicImage],
        wanted: Sequence[TopicImage],
        image: MetadataImage,
        done: Callable[[list[CreatedLogs]], None],
        departed: Sequence[TopicPartition] = (),
    ) -> None:
        """Delete the folders of some topics and replicas, then create the folders of others."""
        self._changes.append(FolderChange(removed, wanted, image, done, departed))
        if len(self._changes) == 1:
            self._begin()

    def retry_forgetting(self) -> None:
        """Delete again the folders that stay in the checkpoint because the disk was full."""
        if self._unforgotten:
            self.change((), (), MetadataImage(), lambda made: None)

    def wait_with(self, unlink_when_due: Callable[[DroppedFiles], None]) -> None:
        """Set the function that gets files which are deleted only after a delay."""
        self._unlink_when_due = unlink_when_due

    def unlink(self, files: DroppedFiles) -> None:
        """Delete dropped files in the file thread, because the deletion of a large file takes
        long."""

        def failed(error: Exception) -> None:
            logger.warning("files of deleted logs could not be removed", extra=fields(error=error))

        self._worker.run(files.perform, lambda _: None, failed)

    # The steps of a change.

    def _begin(self) -> None:
        change = self._changes[0]
        departed = [*change.departed, *self._not_removed]
        removal = self._logs.begin_removal([*_partitions_of(change.removed), *departed])
        if removal is None:
            self._forget()
            return

        def renamed(done: RenamedFolders) -> None:
            self._take_renamed(removal, done, departed)
            self._forget()

        self._worker.run(removal.perform, renamed, _never)

    def _take_renamed(
        self, removal: FolderRemoval, done: RenamedFolders, departed: Sequence[TopicPartition]
    ) -> None:
        """Record the renamed folders. Those of `departed` partitions are deleted later."""
        self._unforgotten += self._logs.removed(removal, done, departed, self._clock.now_ms())
        for topic_partition, error in done.refused.items():
            if topic_partition not in self._not_removed:
                # For a replica that was taken away the next change retries this, else a start.
                logger.error(
                    "the folder of a removed replica could not be renamed; the broker retries",
                    extra=fields(partition=topic_partition, error=error),
                )
            if topic_partition in departed:
                self._not_removed[topic_partition] = error
        for topic_partition, path in done.paths.items():
            self._not_removed.pop(topic_partition, None)
            if topic_partition in departed:
                logger.info(
                    "this broker no longer has this replica; its folder will be deleted",
                    extra=fields(partition=topic_partition, folder=path),
                )

    def _forget(self) -> None:
        """Write a checkpoint without the deleted folders.

        If the disk has no room for it, the files stay. Otherwise a start would treat their logs as
        lost.
        """
        if not self._unforgotten:
            self._make_all()
            return

        def forgotten(_: None) -> None:
            files, self._unforgotten = self._unforgotten, []
            for one in files:
                self._unlink_when_due(one)
            self._make_all()

        def refused(error: Exception) -> None:
            _not_forgotten(error)
            self._make_all()

        self._worker.run(self._logs.checkpoint(frees_room=True).perform, forgotten, refused)

    def _make_all(self) -> None:
        change = self._changes[0]
        damaged = [one for topic in change.wanted for one in self.to_put_aside(topic, change.image)]
        removal = self._logs.begin_removal(damaged, DAMAGED_SUFFIX)
        if removal is None:
            self._make_wanted()
            return

        def renamed(done: RenamedFolders) -> None:
            self._put_aside(removal, done)
            self._make_wanted()

        self._worker.run(removal.perform, renamed, _never)

    def to_put_aside(self, topic: TopicImage, image: MetadataImage) -> list[TopicPartition]:
        """Return the damaged logs of a topic whose records other brokers have: another broker leads
        the partition, or this replica was taken away."""
        if not self._logs.offline:
            return []
        own = [(index, TopicPartition(topic.name, index)) for index in self.own_indexes(topic)]
        return [
            one for index, one in own if one in self._logs.offline and self.is_missing(topic, index)
        ] + self.rules.departed_damaged(topic, image)

    def _put_aside(self, removal: FolderRemoval, done: RenamedFolders) -> None:
        """Record the damaged logs whose folders were renamed. They can be created again.

        The renamed folders are never read or deleted. A log whose rename was rejected stays
        offline.
        """
        self._logs.removed(removal, done)
        for topic_partition, path in done.paths.items():
            logger.error(
                "a damaged log was renamed; its records are copied again from other brokers",
                extra=fields(
                    partition=topic_partition,
                    reason=removal.offline[topic_partition],
                    kept_in=path or "not kept, because the folder is missing",
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
                    self._taken_over(topic, change.image, making, one)
                    for (topic, making), one in zip(plans, done, strict=True)
                ]
            )

        self._worker.run(job, made, _never)

    def _end(self, made: list[CreatedLogs]) -> None:
        # During the callback this change is still the first, because the callback can add another
        # change.
        self._changes[0].done(made)
        self._changes.popleft()
        if self._changes:
            self._begin()

    def _plan(self, topic: TopicImage, image: MetadataImage) -> Making:
        own = [TopicPartition(topic.name, index) for index in self.own_indexes(topic)]
        # An offline log keeps its folder, and the folder says why it is offline. A folder that
        # could not be removed belongs to an earlier replica, which is never taken back.
        return self._logs.begin_making(
            [one for one in own if one not in self._logs.offline and one not in self._not_removed],
            topic.topic_id,
            self._log_config(topic.name, image),
            self._clock.now_ms(),
        )

    def _log_config(self, topic: str, image: MetadataImage) -> LogConfig:
        return self._settings.config.log_config(image.settings(TOPIC_RESOURCE, topic))

    def _taken_over(
        self, topic: TopicImage, image: MetadataImage, making: Making, done: MadeLogs
    ) -> CreatedLogs:
        logs, refused = self._logs.made(making, done)
        reasons = {topic_partition: str(error) for topic_partition, error in refused.items()}
        # Damaged logs whose folders could not be renamed are retried, like logs that could not be
        # created.
        for one in self.to_put_aside(topic, image):
            if one in self._not_aside:
                reasons[one] = f"{self._logs.offline[one]}; not renamed: {self._not_aside[one]}"
        for index in self.own_indexes(topic):
            one = TopicPartition(topic.name, index)
            if one in self._not_removed:
                reasons[one] = f"earlier replica's folder not removed: {self._not_removed[one]}"
        return CreatedLogs(
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
    logger.warning("could not write the checkpoint of the logs", extra=fields(error=error))


def _never(error: Exception) -> None:
    """Raise the error, because these jobs handle every disk error themselves."""
    raise error
