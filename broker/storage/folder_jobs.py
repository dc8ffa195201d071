"""Jobs that create or rename the folders of partitions in a thread.

There are three steps. `LogManager` plans a job in the loop with all data that the job needs.
`perform` executes the job in a thread and changes no object that the loop uses. `LogManager` then
applies the result in the loop. Only one job runs at a time, and the next job is planned after it.
When a removal is planned, the folder's partition is removed from every later checkpoint (decision
0075).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from uuid import UUID

from broker.config import LogConfig
from broker.storage import checkpoint
from broker.storage.disk import Disk
from broker.storage.errors import DiskError, FolderError
from broker.storage.folder import folder_name
from broker.storage.leader_epochs import LeaderEpochs
from broker.storage.log import Log
from broker.storage.node_checkpoints import CheckpointJob
from broker.storage.producer_state import ProducerStateManager
from broker.storage.recovery import LoadedLog
from broker.storage.segment import Segment
from protocol.types import TopicPartition

DELETE_SUFFIX = "-delete"
DAMAGED_SUFFIX = "-damaged"
STRAY_SUFFIX = "-stray"
"""The suffixes of folders that were put aside. The broker never reads or removes them again."""
DELETE_STEM_MAX = 200
"""The number of characters of the old folder name that the new name keeps, so that it is below 255
bytes."""

DAMAGED_KEPT_MAX = 3
"""The largest number of damaged folders that are kept of one partition.

Above this number an operator must check the disk. Without a limit, a bad disk would fill up with
damaged copies.
"""

Refusals = dict[TopicPartition, DiskError | FolderError]


@dataclass(frozen=True, slots=True)
class RenamedFolders:
    """The result of a `FolderRemoval`."""

    paths: dict[TopicPartition, str | None]
    """The new paths of the folders; None for a folder that was missing."""
    refused: Refusals
    """The partitions whose folders were not renamed, with the reason."""


@dataclass(frozen=True, slots=True)
class FolderRemoval:
    """Folders to take out of service by renaming them. No flush of their logs may be in
    progress.
    """

    disk: Disk
    data_folder: str
    logs: Mapping[TopicPartition, Log]
    """The logs in these folders, already out of service. A partition that is offline has no log."""
    offline: Mapping[TopicPartition, str]
    """The offline partitions in these folders, with the reason."""
    suffix: str
    """The suffix of the new folder names."""

    def perform(self) -> RenamedFolders:
        """Rename the folders durably. Raises DiskError if the error is final."""
        done = RenamedFolders({}, {})
        for topic_partition in (*self.logs, *self.offline):
            name = folder_name(topic_partition)
            target = None
            try:
                if self.disk.exists(f"{self.data_folder}/{name}"):
                    target = self._free_path(name)
                    self.disk.rename(f"{self.data_folder}/{name}", target)
            except (DiskError, FolderError) as error:
                if isinstance(error, DiskError) and error.is_final:
                    raise
                done.refused[topic_partition] = error
            else:
                done.paths[topic_partition] = target
        if done.paths:
            try:
                self.disk.sync_folder(self.data_folder)
            except DiskError as error:
                # A non-final error is ignored: the later checkpoint and folder creation fsync the
                # same folder.
                if error.is_final:
                    raise
        return done

    def _free_path(self, name: str) -> str:
        """Return an unused path. Raises FolderError if too many damaged copies are kept."""
        stem = f"{self.data_folder}/{name[:DELETE_STEM_MAX]}"
        is_damaged = self.suffix == DAMAGED_SUFFIX
        for number in range(1, DAMAGED_KEPT_MAX + 1) if is_damaged else count(1):
            path = f"{stem}.{number:08d}{self.suffix}"
            if not self.disk.exists(path):
                return path
        reason = f"{DAMAGED_KEPT_MAX} damaged copies are kept already: check the disk and move them"
        raise FolderError(stem, reason)


@dataclass(frozen=True, slots=True)
class MadeLogs:
    """The created logs, and the reasons for those that could not be created."""

    new: dict[TopicPartition, Log]
    refused: Refusals


@dataclass(frozen=True, slots=True)
class Making:
    """The empty logs of one topic to create. They are fsynced together."""

    disk: Disk
    data_folder: str
    wanted: Sequence[TopicPartition]
    there: Mapping[TopicPartition, Log]
    """The requested logs that already exist."""
    impossible: Mapping[TopicPartition, FolderError]
    """The partitions that cannot be created, whatever the disk answers."""
    namesakes: Sequence[TopicPartition]
    """The partitions that the checkpoints still name, because a deleted partition had the same
    name. With its old recovery point, an empty log would look as if it had lost records."""
    forgetting: CheckpointJob | None
    """The checkpoint that must be written before any of the logs is created."""
    topic_id: UUID
    config: LogConfig
    expiration_ms: int
    producer_count_max: int
    now_ms: int

    def perform(self) -> MadeLogs:
        """Create the logs durably. Return the logs, and the reason for each that could not be
        created.

        Raises DiskError if the error is final.
        """
        done = MadeLogs({}, dict(self.impossible))
        done.refused.update(self._forget_namesakes())
        for topic_partition in self.wanted:
            if topic_partition in done.refused:
                continue
            try:
                done.new[topic_partition] = self._make(topic_partition)
            except DiskError as error:
                if error.is_final:
                    raise
                done.refused[topic_partition] = error
        try:
            self._sync(done.new)
        except DiskError as error:
            if error.is_final:
                raise
            done.refused.update(dict.fromkeys(done.new, error))
            done.new.clear()
        return done

    def _forget_namesakes(self) -> Refusals:
        try:
            if self.forgetting is not None:
                self.forgetting.perform()
        except DiskError as error:
            if error.is_final:
                raise
            return dict.fromkeys(self.namesakes, error)
        return {}

    def _make(self, topic_partition: TopicPartition) -> Log:
        """Create folder and files of an empty log, without fsyncing them."""
        disk = self.disk
        path = f"{self.data_folder}/{folder_name(topic_partition)}"
        disk.make_folder(path, is_durable=False)
        for leftover in disk.list_folder(path):
            disk.unlink(f"{path}/{leftover}")
        segment = Segment(disk, path, 0, self.config.index_interval_bytes, self.now_ms)
        segment.create()
        empty = LoadedLog(
            [segment],
            LeaderEpochs(),
            ProducerStateManager(self.expiration_ms, self.producer_count_max),
            log_start_offset=0,
            recovery_point=0,
            has_gap_mark=False,
        )
        metadata = checkpoint.encode_partition_metadata(self.topic_id)
        disk.replace(f"{path}/{checkpoint.PARTITION_METADATA}", metadata, is_durable=False)
        return Log(disk, path, topic_partition, self.topic_id, self.config, empty, 0)

    def _sync(self, new: Mapping[TopicPartition, Log]) -> None:
        folders = [log.folder for log in new.values()]
        files = [self.disk.open(f"{one}/{checkpoint.PARTITION_METADATA}") for one in folders]
        if folders:
            self.disk.sync_many(files, folders)
            self.disk.sync_folder(self.data_folder)
