"""Cleans compacted partitions: the dirtiest first, in slices, with a pause after each slice.

The slices run in the file thread, which also deletes folders. A thread takes processor time from
the event loop, so it pauses twice as long as it has worked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.config import InForce
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.storage.cleaner import CleaningJob
from broker.storage.dropped import DroppedFiles
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.log_cleaning import adopt_cleaned, cleaning_failed, dirt_in, plan_cleaning
from broker.world import Jobs, World
from protocol.log import fields

logger = logging.getLogger(__name__)

REST_SHARE = 2
"""The milliseconds of pause for each millisecond of work."""

REST_MS_MIN = 1


class Cleaner:
    """Cleans at most one partition at a time.

    A partition is skipped until the next start if its log is damaged or its files could not be
    replaced. `unlink` deletes dropped files when they are due.
    """

    def __init__(
        self,
        settings: InForce,
        world: World,
        replicas: Replicas,
        worker: Jobs,
        unlink: Callable[[DroppedFiles], None],
    ) -> None:
        self._settings = settings
        self._world = world
        self._replicas = replicas
        self._worker = worker
        self._unlink = unlink
        self._is_busy = False
        self._left_alone: set[Replica] = set()

    def look(self) -> None:
        """Start to clean the dirtiest partition, if its log is dirty enough."""
        if self._is_busy or not self._settings.config.log_cleaner_enable:
            return
        now_ms = self._world.clock.now_ms()
        dirtiest: tuple[float, Replica] | None = None
        for partition in self._replicas:
            if partition in self._left_alone or (dirt := dirt_in(partition.log, now_ms)) is None:
                continue
            if dirtiest is None or dirt.ratio > dirtiest[0]:
                dirtiest = dirt.ratio, partition
        if dirtiest is None:
            return
        partition = dirtiest[1]
        map_bytes = self._settings.config.log_cleaner_dedupe_buffer_size
        try:
            job = plan_cleaning(partition.log, now_ms, map_bytes)
        except (CorruptionError, DiskError) as error:
            self._report(partition, error)
            return
        if job is not None:
            self._is_busy = True
            self._slice(partition, job)

    def _slice(self, partition: Replica, job: CleaningJob) -> None:
        if partition.log.cleaning is not job:
            self._given_up(job)
            return
        world = self._world
        began_ms = world.clock.monotonic_ms()

        def done(is_committed: bool) -> None:
            if is_committed:
                self._swap(partition, job)
                return
            worked_ms = world.clock.monotonic_ms() - began_ms
            rest_ms = max(worked_ms * REST_SHARE, REST_MS_MIN)
            world.later(rest_ms, lambda: self._slice(partition, job))

        logs = self._replicas.logs
        self._worker.run(
            lambda: logs.clean(partition.log, job),
            done,
            lambda error: self._failed(partition, job, error),
        )

    def _swap(self, partition: Replica, job: CleaningJob) -> None:
        log = partition.log
        if log.cleaning is not job:
            self._given_up(job)
            return
        size_bytes = log.size_bytes
        try:
            dropped = adopt_cleaned(log, job, self._world.clock.now_ms())
        except DiskError as error:
            self._failed(partition, job, error, is_over=True)
            return
        self._is_busy = False
        logger.info(
            "compacted a log",
            extra=fields(
                partition=partition.topic_partition,
                size_bytes=log.size_bytes,
                before_bytes=size_bytes,
                cleaned_offset=log.cleaned_offset,
            ),
        )
        self._unlink(dropped)
        # Check at once whether another partition is dirty.
        self._world.soon(self.look)

    def _given_up(self, job: CleaningJob) -> None:
        """Delete the files that the job has written, because the log was deleted or truncated or
        the job failed."""
        self._is_busy = False
        self._worker.run(job.abandon, lambda _: None, lambda _: None)

    def _failed(
        self, partition: Replica, job: CleaningJob, error: Exception, *, is_over: bool = False
    ) -> None:
        if not is_over:
            self._given_up(job)
            if partition.log.cleaning is not job:
                return
            cleaning_failed(partition.log, job)
        self._is_busy = False
        if self._replicas.logs.get(partition.topic_partition) is not partition.log:
            return
        if is_over:
            self._left_alone.add(partition)
        self._report(partition, error)

    def _report(self, partition: Replica, error: Exception) -> None:
        if isinstance(error, DiskError) and error.is_final:
            self._world.die(f"the disk has failed: {error}")
        if isinstance(error, CorruptionError):
            self._left_alone.add(partition)
        self._replicas.read_failed(partition, error)
        logger.error(
            "a log could not be compacted",
            extra=fields(partition=partition.topic_partition, error=error),
        )
