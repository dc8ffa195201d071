"""All logs of a node, with the folder, the lock, the identity and the checkpoints that they share.

The methods are synchronous, over the `Disk` passed in. The folder of a partition is
`topic-partition`. Before a deletion it is renamed to `topic-partition.<number>-delete`; a folder
that is put aside is renamed to `topic-partition.<number>-damaged` or `-stray`. The checkpoints
(`node_checkpoints`) keep the values that the files of a log do not contain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from broker.config import BrokerConfig, LogConfig
from broker.storage import checkpoint, recovery, truncation
from broker.storage.cleaner import CleaningJob
from broker.storage.damage_mark import DamageMark, read_damage_mark
from broker.storage.disk import Disk, DiskFile, DiskSpace
from broker.storage.dropped import DroppedFiles
from broker.storage.errors import CorruptionError, DiskError, FolderError
from broker.storage.folder import folder_name, parse_folder_name
from broker.storage.folder_jobs import (
    DELETE_STEM_MAX,
    DELETE_SUFFIX,
    FolderRemoval,
    MadeLogs,
    Making,
    Refusals,
    RenamedFolders,
)
from broker.storage.gap_mark import gap_mark_path
from broker.storage.identity import read_topic_id, take_identity
from broker.storage.log import Log
from broker.storage.node_checkpoints import CheckpointJob, NodeCheckpoints, Offsets
from broker.storage.open_report import OpenReport
from broker.storage.stop_marks import StopMarks
from broker.storage.truncation import Truncation, TruncationPlan
from protocol.types import NO_BROKER_EPOCH, TopicPartition, Uuid

LOCK_FILE = ".lock"
UNSYNCED_MAX = 256
"""The largest number of index files that a clean stop keeps open before it fsyncs them together."""


class LogManager:
    """The logs under `config.log_dir`. The constructor takes the folder's lock and checks (or
    writes) meta.properties. It raises FolderError if the folder is in use or belongs to another
    cluster or node. Partitions in `offline` have no log: answer KAFKA_STORAGE_ERROR for them."""

    def __init__(self, disk: Disk, config: BrokerConfig, new_directory_id: Uuid) -> None:
        """An empty data folder gets the id `new_directory_id`."""
        self.logs: dict[TopicPartition, Log] = {}
        """The open logs. The dictionary is replaced and never changed in place, because threads
        read it."""
        self.offline: dict[TopicPartition, str] = {}
        self.marked: dict[Log, str] = {}
        """The logs that an earlier process found damaged, with the reason. They are in `logs`
        too."""
        self._disk = disk
        self._config = config
        self._folder = config.log_dir.rstrip("/") or "/"
        disk.make_folder(self._folder)
        self._lock = disk.lock(f"{self._folder}/{LOCK_FILE}")
        self._checkpoints = NodeCheckpoints(disk, self._folder)
        self.marks = StopMarks(disk, self._folder)
        try:
            self.directory_id = take_identity(disk, self._folder, config, new_directory_id)
        except BaseException:
            self._lock.release()
            raise

    def space(self) -> DiskSpace | None:
        """Return the space of the disk with the logs; None if it is unknown."""
        return self._disk.space(self._folder)

    def open_all(self, now_ms: int) -> OpenReport:
        """Open every partition folder. After an unclean stop, recover from the recovery point.

        The logs have the node's default settings. Once the metadata is known, assign `log.config`
        for each. A damaged partition goes offline. Damaged checkpoints raise CorruptionError,
        because without them damage cannot be told from a torn tail.
        """
        report = OpenReport(self.marks.take())
        found = self._checkpoints.read()
        points = found[checkpoint.RECOVERY_POINTS]
        high_watermarks = found[checkpoint.HIGH_WATERMARKS]
        cleaned = found[checkpoint.CLEANED_OFFSETS]
        dropped: list[str] = []
        for name in self._disk.list_folder(self._folder):
            path = f"{self._folder}/{name}"
            if name.endswith(DELETE_SUFFIX):
                dropped.append(path)
                continue
            topic_partition = parse_folder_name(name)
            if topic_partition is None or not self._disk.is_folder(path):
                continue
            try:
                topic_id = read_topic_id(self._disk, path)
                if topic_id is None:
                    self._disk.remove_folder(path)
                    continue
                rules = self._rules(path, topic_partition, found, report.was_clean, now_ms)
                loaded = recovery.load(self._disk, path, rules)
                damage = read_damage_mark(self._disk, path)
            except (CorruptionError, DiskError) as error:
                if isinstance(error, DiskError) and (error.is_flush or error.is_short):
                    # Without a free file descriptor the log cannot be examined, so it must not be
                    # treated as damaged.
                    raise
                self.offline[topic_partition] = str(error)
                continue
            log = self.logs[topic_partition] = Log(
                self._disk,
                path,
                topic_partition,
                topic_id,
                self._config.log_config(),
                loaded,
                high_watermarks.get(topic_partition, 0),
            )
            if damage is not None:
                self.marked[log] = damage
            log.cleaned_offset = min(cleaned.get(topic_partition, -1), log.log_end_offset)
            if loaded.truncated_reason:
                tail = (topic_partition, loaded.truncated_bytes, loaded.truncated_reason)
                report.truncated.append(tail)
        self._miss_folders(points, dropped)
        report.offline = dict(self.offline)
        if dropped:
            report.dropped = DroppedFiles(self._disk, folders=dropped)
        if not report.was_clean:
            self._vouch(frees_room=bool(dropped))
        return report

    def _rules(
        self,
        path: str,
        topic_partition: TopicPartition,
        found: Mapping[str, Offsets],
        was_clean: bool,
        now_ms: int,
    ) -> recovery.LoadRules:
        """Return the rules for opening one partition's folder, with the values of the
        checkpoints."""
        # At least one recovery point is written before any other checkpoint.
        points, watermarks = found[checkpoint.RECOVERY_POINTS], found[checkpoint.HIGH_WATERMARKS]
        return recovery.LoadRules(
            log_start_offset=found[checkpoint.LOG_START_OFFSETS].get(topic_partition, 0),
            recovery_point=points.get(topic_partition, 0),
            epochs=self._checkpoints.read_epochs(path),
            interval_bytes=self._config.log_config().index_interval_bytes,
            expiration_ms=self._config.producer_id_expiration_ms,
            producer_count_max=self._config.max_producers_per_partition,
            is_clean=was_clean,
            now_ms=now_ms,
            has_gaps=topic_partition in found[checkpoint.CLEANED_OFFSETS],
            has_gap_mark=self._disk.exists(gap_mark_path(path)),
            is_point_known=bool(points or not watermarks),
            is_start_known=self._disk.exists(f"{self._folder}/{checkpoint.LOG_START_OFFSETS}"),
        )

    def _vouch(self, *, frees_room: bool) -> None:
        """Write a checkpoint after recovery, so that the next recovery need not check the same
        batches again."""
        try:
            self.checkpoint(frees_room=frees_room).perform()
        except DiskError as error:
            # On a full disk the logs can still be read. The next recovery checks them again.
            if not error.is_full:
                raise

    def _miss_folders(self, points: Offsets, deleted: Sequence[str]) -> None:
        """Take partitions offline that had durable data and whose folder is missing.

        A partition that is being deleted has a renamed folder until no checkpoint names it any
        more, so it is not missing.
        """
        stems = {path.rpartition("/")[2].rpartition(".")[0] for path in deleted}
        for topic_partition, point in points.items():
            if point <= 0 or topic_partition in self.logs or topic_partition in self.offline:
                continue
            if folder_name(topic_partition)[:DELETE_STEM_MAX] in stems:
                continue
            self.offline[topic_partition] = (
                f"the folder {self._folder}/{folder_name(topic_partition)} is missing, but its "
                f"records up to offset {point} had been synced to the disk; put the folder back, "
                "or delete the topic"
            )

    def create(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig, now_ms: int
    ) -> Log:
        """Create an empty log durably, or return the existing log if it has the same id. Raises
        FolderError if the partition exists under another id, or is offline."""
        made, refused = self.create_all([topic_partition], topic_id, config, now_ms)
        for error in refused.values():
            raise error
        return made[topic_partition]

    def create_all(
        self,
        topic_partitions: Sequence[TopicPartition],
        topic_id: UUID,
        config: LogConfig,
        now_ms: int,
    ) -> tuple[dict[TopicPartition, Log], Refusals]:
        """Create many logs of one topic: `begin_making`, perform, `made`, in one call.

        Existing logs get these settings. Returns all logs that now exist, and the reason for each
        that could not be created. Raises DiskError if the error is final.
        """
        making = self.begin_making(topic_partitions, topic_id, config, now_ms)
        for log in making.there.values():
            log.use(config)
        return self.made(making, making.perform())

    def begin_making(
        self,
        topic_partitions: Sequence[TopicPartition],
        topic_id: UUID,
        config: LogConfig,
        now_ms: int,
    ) -> Making:
        """Plan the creation of empty logs of one topic. Perform it in a thread, then call `made`.

        No other job may be working on folders.
        """
        there: dict[TopicPartition, Log] = {}
        impossible: dict[TopicPartition, FolderError] = {}
        for topic_partition in topic_partitions:
            log, path = self.logs.get(topic_partition), self._path_of(topic_partition)
            if log is not None and log.topic_id != topic_id:
                reason = "contains a partition of another topic id"
                impossible[topic_partition] = FolderError(path, reason)
            elif log is not None:
                there[topic_partition] = log
            elif topic_partition in self.offline:
                impossible[topic_partition] = FolderError(path, self.offline[topic_partition])
        wanted = [tp for tp in topic_partitions if tp not in there and tp not in impossible]
        known = self._checkpoints.known().values()
        namesakes = [tp for tp in wanted if any(offsets.get(tp) for offsets in known)]
        return Making(
            self._disk,
            self._folder,
            wanted,
            there,
            impossible,
            namesakes,
            self.checkpoint(frees_room=True) if namesakes else None,
            topic_id,
            config,
            self._config.producer_id_expiration_ms,
            self._config.max_producers_per_partition,
            now_ms,
        )

    def made(self, making: Making, done: MadeLogs) -> tuple[dict[TopicPartition, Log], Refusals]:
        """Add the new logs. Return all requested logs that now exist, and the reason for each that
        does not."""
        self.logs = self.logs | done.new
        return {**making.there, **done.new}, done.refused

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def delete(self, topic_partition: TopicPartition) -> DroppedFiles | None:
        """Take a partition out of service: `begin_removal`, perform, `removed`, in one call.

        Returns None if the partition does not exist. Raises DiskError if the disk refuses.
        """
        removal = self.begin_removal([topic_partition])
        if removal is None:
            return None
        done = removal.perform()
        dropped = self.removed(removal, done)
        for error in done.refused.values():
            raise error
        return dropped[0]

    def begin_removal(
        self, topic_partitions: Iterable[TopicPartition], suffix: str = DELETE_SUFFIX
    ) -> FolderRemoval | None:
        """Plan to rename the folders of partitions. Perform it in a thread, then call `removed`.

        The partitions are out of service at once, and no checkpoint names them any more. No flush
        of them and no other job on folders may be in progress. Returns None if none exists.
        """
        gone = set(topic_partitions)
        logs = {tp: log for tp, log in self.logs.items() if tp in gone}
        offline = {tp: why for tp, why in self.offline.items() if tp in gone}
        if not logs and not offline:
            return None
        self.logs = {tp: log for tp, log in self.logs.items() if tp not in gone}
        self.offline = {tp: why for tp, why in self.offline.items() if tp not in gone}
        return FolderRemoval(self._disk, self._folder, logs, offline, suffix)

    def removed(
        self,
        removal: FolderRemoval,
        done: RenamedFolders,
        delayed: Collection[TopicPartition] = (),
        now_ms: int = 0,
    ) -> list[DroppedFiles]:
        """Record which folders were renamed. A partition whose renaming failed is back in service.

        The files can be removed only after a checkpoint that no longer names the partitions,
        because a recovery point without a folder is taken for a loss. The files of `delayed`
        partitions also wait for `file.delete.delay.ms`.
        """
        kept = done.refused
        self.logs = self.logs | {tp: log for tp, log in removal.logs.items() if tp in kept}
        self.offline = self.offline | {tp: why for tp, why in removal.offline.items() if tp in kept}
        dropped = []
        for topic_partition, path in done.paths.items():
            self._checkpoints.forget_folder(self._path_of(topic_partition))
            log = removal.logs.get(topic_partition)
            held = log.let_go() if log is not None else []
            folders = [] if path is None else [path]
            due_ms = 0
            if log is not None and topic_partition in delayed:
                due_ms = now_ms + log.config.file_delete_delay_ms
                # Close the files while they still have names. This is cheap, and frees their
                # descriptors now.
                held = []
            dropped.append(DroppedFiles(self._disk, folders=folders, held=held, due_ms=due_ms))
        return dropped

    def _path_of(self, topic_partition: TopicPartition) -> str:
        return f"{self._folder}/{folder_name(topic_partition)}"

    def damage_mark(self, log: Log, reason: str) -> DamageMark:
        """Return the job that marks a log as damaged, so that a restart does not serve it."""
        return DamageMark(self._disk, log.folder, reason)

    def take_offline(self, log: Log, reason: str) -> None:
        """Take a log out of service because it was found damaged. Its files stay as they are."""
        topic_partition = log.topic_partition
        assert self.logs.get(topic_partition) is log, "this log is not in service"
        self.logs = {tp: one for tp, one in self.logs.items() if tp != topic_partition}
        self.offline = {**self.offline, topic_partition: reason}
        log.let_go()

    def checkpoint(self, *, frees_room: bool = False) -> CheckpointJob:
        """Return the checkpoints as of now. Perform the job in a thread.

        With `frees_room` the checkpoint may use the reserve on a full disk, because files can be
        removed once it is written.
        """
        return self._checkpoints.take(self.logs, self.offline, frees_room=frees_room)

    def checkpoint_points(self) -> CheckpointJob:
        """Return a smaller checkpoint: only the recovery points and leader epochs."""
        only = checkpoint.RECOVERY_POINTS
        return self._checkpoints.take(self.logs, self.offline, only=only)

    def begin_truncation(self, log: Log, offset: int, now_ms: int) -> Truncation | None:
        """Plan to truncate the log to `offset`; None if no record is at or above it.

        Then call `Log.truncated`.
        """
        plan = truncation.begin_truncation(log, offset, now_ms)
        return None if plan is None else self._truncation(plan)

    def begin_reset(self, log: Log, offset: int, now_ms: int) -> Truncation:
        """Plan to remove all records and continue at `offset`. Then call `Log.truncated`."""
        return self._truncation(truncation.begin_reset(log, offset, now_ms))

    def _truncation(self, plan: TruncationPlan) -> Truncation:
        # A truncation frees space on a full disk, so it may use the reserve.
        return Truncation(self._disk, plan, self.checkpoint(frees_room=True))

    def clean(self, log: Log, job: CleaningJob) -> bool:
        """Do one slice of a cleaning in the thread that also deletes logs; True when committed.

        Raises FolderError if the log was deleted: its path can now belong to another log.
        """
        topic_partition = log.topic_partition
        if self.logs.get(topic_partition) is not log:
            raise FolderError(
                log.folder, "the partition was deleted while its log was being cleaned"
            )
        if not job.perform():
            return False
        # A start that finds missing offsets must know that they are not damage and not a torn tail.
        known = self._checkpoints.known()
        if topic_partition not in known.get(checkpoint.CLEANED_OFFSETS, {}):
            self.checkpoint().perform()
        elif known.get(checkpoint.RECOVERY_POINTS, {}).get(topic_partition, 0) < job.end_offset:
            self.checkpoint_points().perform()
        job.commit()
        return True

    def close_clean(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Flush all logs, write the checkpoints and the marker of a clean stop, and unlock the
        folder.

        The marker says that all batches written under `broker_epoch` are on this disk. If the disk
        refuses, DiskError is raised and no marker is written, so the next start recovers.
        """
        refused: DiskError | None = None
        unsynced: list[DiskFile] = []
        for log in self.logs.values():
            if (target := log.flush_target()) is not None:
                target.perform()
                log.flushed(target)
            try:
                unsynced += log.close()
            except DiskError as error:
                # Still close the other logs cleanly.
                refused = error
            if len(unsynced) >= UNSYNCED_MAX:
                self._disk.sync_many(unsynced, ())
                unsynced.clear()
        self._disk.sync_many(unsynced, ())
        self.checkpoint().perform()
        if refused is not None:
            raise refused
        if not self.offline:
            self.marks.stopped_clean(broker_epoch)
        self.release()

    def release(self) -> None:
        """Close files and release the lock without writing anything, as after a crash."""
        self.logs = {}
        self._lock.release()
