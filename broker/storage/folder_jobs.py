"""What is done to the folders of partitions in a thread: put out of the way, or made.

Floor: storage. Three steps: `LogManager` plans a job in the loop, with all that it needs to know;
`perform` does it, and changes nothing that the loop can see; what came of it is given back to
`LogManager`, which takes it over. One job at a time: the next is planned when that is done. The
plan takes a folder that is about to be removed out of every checkpoint (decision 0075).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from uuid import UUID

from broker.config import LogConfig
from broker.storage import checkpoint, recovery
from broker.storage.disk import Disk
from broker.storage.errors import DiskError, FolderError
from broker.storage.folder import folder_name
from broker.storage.log import Log
from broker.storage.node_checkpoints import Checkpoint
from protocol.types import TopicPartition

DELETE_SUFFIX = "-delete"
DAMAGED_SUFFIX = "-damaged"
STRAY_SUFFIX = "-stray"
"""End the names of folders that were put aside: nothing here ever reads or removes them again."""
DELETE_STEM_MAX = 200
"""Characters of a folder's name that its new name keeps, so that it stays below 255 bytes."""

DAMAGED_KEPT_MAX = 3
"""Damaged folders of one partition that are kept. One more, and the disk has to be looked at by a
person: else a bad one would be filled with copies of what it cannot hold."""

Refusals = dict[TopicPartition, DiskError | FolderError]


@dataclass(frozen=True, slots=True)
class Renamed:
    """What came of a `Removal`."""

    paths: dict[TopicPartition, str | None]
    """Where the folders are by now; None for one that was missing."""
    refused: Refusals
    """Those that are where they were."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Folders to be put out of the way by renaming them. No flush of them may be under way."""

    disk: Disk
    data_folder: str
    logs: Mapping[TopicPartition, Log]
    """Their logs, taken out of service; none of one that is offline."""
    offline: Mapping[TopicPartition, str]
    """The others, and why they are offline."""
    suffix: str
    """Ends their new names."""

    def perform(self) -> Renamed:
        """Rename them, for good. Raises a DiskError that is final."""
        done = Renamed({}, {})
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
                # The checkpoint that forgets them, and what is made in their place, are synced
                # with the same folder.
                if error.is_final:
                    raise
        return done

    def _free_path(self, name: str) -> str:
        """A path that nothing of a namesake has taken; FolderError when too many are kept."""
        stem = f"{self.data_folder}/{name[:DELETE_STEM_MAX]}"
        is_damaged = self.suffix == DAMAGED_SUFFIX
        for number in range(1, DAMAGED_KEPT_MAX + 1) if is_damaged else count(1):
            path = f"{stem}.{number:08d}{self.suffix}"
            if not self.disk.exists(path):
                return path
        reason = (
            f"{DAMAGED_KEPT_MAX} damaged copies are kept already: look at the disk, and move them"
        )
        raise FolderError(stem, reason)


@dataclass(frozen=True, slots=True)
class MadeLogs:
    """What came of a `Making`."""

    new: dict[TopicPartition, Log]
    refused: Refusals


@dataclass(frozen=True, slots=True)
class Making:
    """Empty logs of one topic to be made, which wait for the device together."""

    disk: Disk
    data_folder: str
    wanted: Sequence[TopicPartition]
    there: Mapping[TopicPartition, Log]
    """Those that need not be made."""
    impossible: Mapping[TopicPartition, FolderError]
    """Those that cannot be made, whatever the disk says."""
    namesakes: Sequence[TopicPartition]
    """Those of whose deleted namesakes the checkpoints still tell: a recovery point would make an
    empty log look like a loss."""
    forgetting: Checkpoint | None
    """What must be written before any of these is made."""
    topic_id: UUID
    config: LogConfig
    expiration_ms: int
    producer_count_max: int
    now_ms: int

    def perform(self) -> MadeLogs:
        """Make them, durably, or say why not. Raises a DiskError that is final."""
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
        """Folder and files of an empty log, not synced."""
        disk = self.disk
        path = f"{self.data_folder}/{folder_name(topic_partition)}"
        disk.make_folder(path, is_durable=False)
        for leftover in disk.list_folder(path):
            disk.unlink(f"{path}/{leftover}")
        rules = recovery.LoadRules(
            log_start_offset=0,
            recovery_point=0,
            epochs=[],
            interval_bytes=self.config.index_interval_bytes,
            expiration_ms=self.expiration_ms,
            producer_count_max=self.producer_count_max,
            is_clean=False,
            now_ms=self.now_ms,
        )
        loaded = recovery.load(disk, path, rules)
        metadata = checkpoint.encode_partition_metadata(self.topic_id)
        disk.replace(f"{path}/{checkpoint.PARTITION_METADATA}", metadata, is_durable=False)
        return Log(disk, path, topic_partition, self.topic_id, self.config, loaded, 0)

    def _sync(self, new: Mapping[TopicPartition, Log]) -> None:
        folders = [log.folder for log in new.values()]
        files = [self.disk.open(f"{one}/{checkpoint.PARTITION_METADATA}") for one in folders]
        if folders:
            self.disk.sync_many(files, folders)
            self.disk.sync_folder(self.data_folder)
