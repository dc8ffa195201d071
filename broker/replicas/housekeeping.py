"""The periodic work of a broker: retention, checkpoints, expiry, and the deletion of files.

Each job has an interval from the configuration and its own deadline. One timer of the event loop
serves them all. Checkpoints and deletions run in the file thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from broker.alarm import Alarm
from broker.config import InForce
from broker.coordinators.ages import Ages
from broker.metrics.metrics import Metrics
from broker.replicas.checkpoint_queue import CheckpointQueue
from broker.replicas.cleaning import Cleaner
from broker.replicas.folders import Folders
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.replication.partition import FollowerRole
from broker.storage.dropped import DroppedFiles
from broker.storage.errors import DiskError
from broker.storage.log import Log
from broker.storage.retention import drop_below, expire
from broker.timers import Timers
from broker.world import Jobs, World
from protocol.log import fields

logger = logging.getLogger(__name__)

POINTS_INTERVAL_MS = 1_000
"""The interval in milliseconds at which changed recovery points are written. This costs one small
file with two fsyncs."""

CLEANER_BACKOFF_MS_MIN = 10

SET_AHEAD_MS_MIN = 60_000
"""If the wall clock gains this many milliseconds between two expiry runs, it was set and not merely
adjusted."""

LOOP_LAG_MS_MAX = 200
"""The delay in milliseconds above which the event loop was blocked or lacked processor time."""

WATCH_INTERVAL_MS = 100
"""The interval in milliseconds of an empty job.

A delay of the loop is noticed only when a job is due. So no delay above `LOOP_LAG_MS_MAX` plus this
interval goes unnoticed.
"""


class Housekeeping:
    """The periodic jobs of one broker. The jobs for logs are here, and `repeat` adds others."""

    def __init__(
        self,
        settings: InForce,
        world: World,
        alarm: Alarm,
        metrics: Metrics,
        replicas: Replicas,
        folders: Folders,
        checkpoints: CheckpointQueue,
        worker: Jobs,
    ) -> None:
        self._clock = world.clock
        self._die = world.die
        self._alarm = alarm
        self._metrics = metrics
        self._replicas = replicas
        self._folders = folders
        self._checkpoints = checkpoints
        self._worker = worker
        self._lead_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        """The difference between wall clock and monotonic clock at the last producer expiry."""
        self._ages = Ages(self._clock.now_ms(), self._clock.monotonic_ms())
        self._timers: Timers[Callable[[], object]] = Timers()
        self._checkpointed: object = None
        self._points: object = None
        folders.wait_with(self.unlink)
        config = settings.config
        self.repeat(WATCH_INTERVAL_MS, lambda: None)
        self.repeat(config.log_flush_scheduler_interval_ms, self._flush_overdue)
        self.repeat(config.log_flush_offset_checkpoint_interval_ms, self._checkpoint)
        self.repeat(POINTS_INTERVAL_MS, self._checkpoint_points)
        self.repeat(config.log_retention_check_interval_ms, self._retain)
        cleaner = Cleaner(settings, world, replicas, worker, self.unlink)
        self.repeat(max(config.log_cleaner_backoff_ms, CLEANER_BACKOFF_MS_MIN), cleaner.look)
        self.repeat(config.producer_id_expiration_check_interval_ms, self._expire_producers)

    @property
    def next_deadline_ms(self) -> int:
        """The monotonic time at which to call `run_due`."""
        deadline_ms = self._timers.next_deadline_ms
        assert deadline_ms is not None, "the duties repeat forever"
        return deadline_ms

    def run_due(self, now_ms: int) -> None:
        """Run every job that is due."""
        lag_ms = now_ms - self.next_deadline_ms
        if lag_ms >= LOOP_LAG_MS_MAX:
            self._metrics.loop_lagged(lag_ms)
        for duty in self._timers.due(now_ms):
            duty()

    def repeat(self, interval_ms: int, duty: Callable[[], object]) -> None:
        """Run `duty` every `interval_ms` from now on."""

        def turn() -> None:
            duty()
            self.repeat(interval_ms, duty)

        self._timers.add(self._clock.monotonic_ms() + interval_ms, turn)

    def unlink(self, files: DroppedFiles) -> None:
        """Delete dropped files when they are due."""
        wait_ms = files.due_ms - self._clock.now_ms()
        if wait_ms > 0:
            due_ms = self._clock.monotonic_ms() + wait_ms
            self._timers.add(due_ms, lambda: self._folders.unlink(files))
            self._alarm.wake_by(due_ms)
        else:
            self._folders.unlink(files)

    def trim(self, log: Log, start_offset: int, durable: Callable[[], None] = lambda: None) -> None:
        """Drop the files below a log's new start offset when the offset is durable. Call `durable`
        before that."""

        def drop() -> None:
            if self._replicas.logs.get(log.topic_partition) is not log:
                # By now, another log can be in the folder's place.
                return
            durable()
            dropped = drop_below(log, start_offset, self._clock.now_ms())
            if dropped is not None:
                self.unlink(dropped)

        self._checkpoints.write(drop, self._checkpoint_failed, frees_room=True)

    def _flush_overdue(self) -> None:
        now_ms = self._clock.now_ms()
        for replica in self._replicas:
            replica.flush_if_due(now_ms)

    def _checkpoint(self) -> None:
        """Write a checkpoint with the recovery points so far. Then fsync all logs, for the next
        checkpoint."""
        replicas = self._replicas
        replicas.flush_all()
        now = {
            one.topic_partition: (one.log.recovery_point, one.log.log_start_offset)
            for one in replicas
        }
        if now == self._checkpointed:
            return
        self._checkpointed = now
        self._checkpoints.write(lambda: None, self._checkpoint_failed)

    def _checkpoint_failed(self, error: Exception) -> None:
        self._checkpointed = None
        self._points = None
        logger.warning("could not write the checkpoint of the logs", extra=fields(error=error))

    def _checkpoint_points(self) -> None:
        """Write the recovery points if they have moved.

        After a crash, the next start treats damage above the recovery points as a torn tail. It
        reports damage below them and keeps the files.
        """
        replicas = self._replicas
        points = {log: log.recovery_point for log in replicas.logs.logs.values()}
        if points == self._points:
            return
        self._points = points
        checkpoint = replicas.logs.checkpoint_points()
        self._worker.run(checkpoint.perform, lambda _: None, self._checkpoint_failed)

    def _retain(self) -> None:
        now_ms = self._clock.now_ms()
        self._ages.look(now_ms, self._clock.monotonic_ms())
        replicas = self._replicas
        waiting: list[tuple[Replica, int]] = []
        for partition in list(replicas):
            if isinstance(partition.state.role, FollowerRole):
                # A follower's log start offset follows its leader's (`followers`).
                continue
            try:
                if expire(partition.log, now_ms, self._ages.of):
                    partition.on_trimmed()
                    waiting.append((partition, partition.log.log_start_offset))
            except DiskError as error:
                self._retention_failed(partition, error)
        if waiting:
            done = partial(self._drop, waiting)
            self._checkpoints.write(done, self._checkpoint_failed, frees_room=True)

    def _drop(self, waiting: list[tuple[Replica, int]]) -> None:
        """Drop the files below log start offsets that are durable."""
        now_ms = self._clock.now_ms()
        for partition, start_offset in waiting:
            if self._replicas.logs.get(partition.topic_partition) is not partition.log:
                continue
            dropped = drop_below(partition.log, start_offset, now_ms)
            if dropped is None:
                continue
            logger.info(
                "deleted old segments of a partition",
                extra=fields(partition=partition.topic_partition, log_start_offset=start_offset),
            )
            self.unlink(dropped)

    def _retention_failed(self, partition: Replica, error: DiskError) -> None:
        if error.is_final:
            self._die(f"the disk has failed: {error}")
        logger.warning(
            "old segments of a partition could not be deleted",
            extra=fields(partition=partition.topic_partition, error=error),
        )

    def _expire_producers(self) -> None:
        now_ms, lead_ms = self._clock.now_ms(), self._lead_ms
        self._lead_ms = now_ms - self._clock.monotonic_ms()
        set_ahead_ms = self._lead_ms - lead_ms
        if set_ahead_ms < SET_AHEAD_MS_MIN:
            set_ahead_ms = 0
        for partition in self._replicas:
            partition.log.producer_state.expire(now_ms, set_ahead_ms)
