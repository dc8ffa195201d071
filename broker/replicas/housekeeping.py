"""What a broker does by the clock: retention, checkpoints, expiry, unlinking, idle connections.

Floor: replicas. Each duty has its interval from the configuration and its own deadline; one timer
of the loop serves them all. Checkpoints and unlinking run in the file thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from broker.node.services import Services
from broker.real.workers import Worker
from broker.replicas.cleaning import Cleaner
from broker.replicas.flusher import Flusher
from broker.replicas.replica_manager import Partition
from broker.sessions.sessions import Connections
from broker.storage.errors import DiskError
from broker.storage.jobs import DroppedFiles
from broker.timers import Timers
from protocol.log import fields

logger = logging.getLogger(__name__)

CONNECTION_SWEEP_MS = 1_000

POINTS_INTERVAL_MS = 1_000
"""How often the recovery points are written while they move: one small file, two syncs."""

CLEANER_BACKOFF_MS_MIN = 10

RETRY_MS = 2_000
"""How often the folders, markers and tombstones are tried again that a full disk has refused."""

LOOP_LAG_MS_MAX = 200
"""A loop that comes so late to its duties has been blocked, or starved of the processor."""

WATCH_INTERVAL_MS = 100
"""Lateness shows only where something is due: no block of both times together is missed."""


class Housekeeping:
    """All duties of one broker."""

    def __init__(
        self, services: Services, connections: Connections, worker: Worker, flusher: Flusher
    ) -> None:
        self._services = services
        self._connections = connections
        self._worker = worker
        self._flusher = flusher
        self._timers: Timers[Callable[[], None]] = Timers()
        self._checkpointed: object = None
        self._points_sum = -1
        config = services.config
        self._repeat(WATCH_INTERVAL_MS, lambda: None)
        self._repeat(CONNECTION_SWEEP_MS, self._sweep_connections)
        self._repeat(RETRY_MS, self._retry)
        self._repeat(config.log_flush_scheduler_interval_ms, self._flush_overdue)
        self._repeat(config.log_flush_offset_checkpoint_interval_ms, self._checkpoint)
        self._repeat(POINTS_INTERVAL_MS, self._checkpoint_points)
        self._repeat(config.log_retention_check_interval_ms, self._retain)
        cleaner = Cleaner(services, worker, self.unlink)
        self._repeat(max(config.log_cleaner_backoff_ms, CLEANER_BACKOFF_MS_MIN), cleaner.look)
        self._repeat(config.offsets_retention_check_interval_ms, self._expire_offsets)
        self._repeat(config.producer_id_expiration_check_interval_ms, self._expire_producers)
        self._repeat(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            services.transactions.abort_overdue,
        )
        self._repeat(
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            services.transactions.expire,
        )

    @property
    def next_deadline_ms(self) -> int:
        """When `run_due` is wanted next, by the monotonic clock."""
        deadline_ms = self._timers.next_deadline_ms
        assert deadline_ms is not None, "the duties repeat for ever"
        return deadline_ms

    def run_due(self, now_ms: int) -> None:
        """Do everything whose time has come."""
        lag_ms = now_ms - self.next_deadline_ms
        if lag_ms >= LOOP_LAG_MS_MAX:
            self._services.metrics.loop_lagged(lag_ms)
        for duty in self._timers.due(now_ms):
            duty()

    def _repeat(self, interval_ms: int, duty: Callable[[], None]) -> None:
        def turn() -> None:
            duty()
            self._repeat(interval_ms, duty)

        self._timers.add(self._services.clock.monotonic_ms() + interval_ms, turn)

    def unlink(self, files: DroppedFiles) -> None:
        """Remove dropped files when they are due."""
        wait_ms = files.due_ms - self._services.clock.now_ms()
        if wait_ms > 0:
            due_ms = self._services.clock.monotonic_ms() + wait_ms
            self._timers.add(due_ms, lambda: self._services.replicas.unlink(files))
            self._services.timer.wake_by(due_ms)
        else:
            self._services.replicas.unlink(files)

    def _sweep_connections(self) -> None:
        self._connections.sweep(self._services.clock.monotonic_ms())

    def _retry(self) -> None:
        services = self._services

        def made() -> None:
            # A shard may have been among it.
            services.groups.follow()
            services.transactions.follow()

        services.groups.retry()
        services.transactions.retry()
        services.replicas.retry(lambda: services.metadata.image, made)

    def _flush_overdue(self) -> None:
        self._services.replicas.flush_overdue(self._services.clock.now_ms())

    def _checkpoint(self) -> None:
        """Sync what is only in the page cache, and write the recovery points of the last time."""
        replicas = self._services.replicas
        replicas.flush_all()
        now = {
            one.topic_partition: (one.log.recovery_point, one.log.log_start_offset)
            for one in replicas
        }
        if now == self._checkpointed:
            return
        self._checkpointed = now
        replicas.checkpoint(lambda: None, self._checkpoint_failed)

    def _checkpoint_failed(self, error: Exception) -> None:
        self._checkpointed = None
        self._points_sum = -1
        logger.warning("checkpoint not written", extra=fields(error=error))

    def _checkpoint_points(self) -> None:
        """Write how far everything is synced, when that has moved.

        What lies above the points of the file is taken for a torn tail by the start after a
        crash; what is damaged below them is reported and kept.
        """
        replicas = self._services.replicas
        # Recovery points only rise, so their sum moves with any of them. The file thread adds and
        # removes logs meanwhile.
        points_sum = sum(log.recovery_point for log in list(replicas.logs.logs.values()))
        if points_sum == self._points_sum:
            return
        self._points_sum = points_sum
        self._worker.run(
            lambda: replicas.logs.checkpoint_points().perform(),
            lambda _: None,
            self._checkpoint_failed,
        )

    def _retain(self) -> None:
        now_ms = self._services.clock.now_ms()
        replicas = self._services.replicas
        waiting: list[tuple[Partition, int]] = []
        for partition in list(replicas):
            try:
                if partition.log.expire(now_ms):
                    waiting.append((partition, partition.log.log_start_offset))
            except DiskError as error:
                self._retention_failed(partition, error)
        if waiting:
            done = partial(self._drop, waiting)
            replicas.checkpoint(done, self._checkpoint_failed, frees_room=True)

    def _drop(self, waiting: list[tuple[Partition, int]]) -> None:
        """Drop the files below log starts that are on the disk."""
        now_ms = self._services.clock.now_ms()
        for partition, start_offset in waiting:
            if self._services.replicas.logs.get(partition.topic_partition) is not partition.log:
                continue
            dropped = partition.log.drop_below(start_offset, now_ms)
            if dropped is None:
                continue
            logger.info(
                "old segments dropped",
                extra=fields(partition=partition.topic_partition, log_start_offset=start_offset),
            )
            self.unlink(dropped)

    def _retention_failed(self, partition: Partition, error: DiskError) -> None:
        if error.is_final:
            self._services.die(f"the disk has failed: {error}")
        logger.warning(
            "retention failed", extra=fields(partition=partition.topic_partition, error=error)
        )

    def _expire_offsets(self) -> None:
        self._services.groups.expire(self._services.clock.now_ms())

    def _expire_producers(self) -> None:
        now_ms = self._services.clock.now_ms()
        for partition in self._services.replicas:
            partition.log.expire_producers(now_ms)
