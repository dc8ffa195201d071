"""Carries out the actions of followers on logs: append, trim, truncate and reset.

Records are appended when they arrive. A log is truncated in the file thread, when `Flusher.drain`
reports that no fsync of it is running. Then this module checks again whether the log must be
truncated, because the partition can have changed its role in the meantime. While a job works on its
files the partition keeps its role. It takes its newest role when the job is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from broker.metrics.warnings import Warnings
from broker.replicas.copy_limit import CopyLimit
from broker.replicas.fetch_source import FetchSource
from broker.replicas.refusals import WriteFailed
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.replication.follower_steps import Append, Key, Reset, Truncate
from broker.sessions.peers import Peers
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.follower_append import BeginsBelow, GapsUnmarked
from broker.storage.log import Log
from broker.storage.recovery import LoadedLog
from broker.storage.truncation import Truncation
from broker.world import Jobs, World
from protocol.errors import WireError
from protocol.log import fields

logger = logging.getLogger(__name__)

CUT_RETRY_MS = 1_000
"""The wait in milliseconds before a rejected truncation is retried."""


@dataclass(frozen=True, slots=True)
class FollowerPorts:
    """The parts of the broker that followers use."""

    world: World
    peers: Peers
    replicas: Replicas
    files: Jobs
    """The thread that writes checkpoints, cleans logs and deletes files."""
    warnings: Warnings
    write_failed: WriteFailed
    trim: Callable[[Log, int, Callable[[], None]], None]
    """Drops the files below a new log start offset, and reports when the offset is durable."""
    limit: CopyLimit
    """The limit on the copies that this broker fetches."""


class FollowerLogs:
    """The logs of all partitions of which this broker is a follower."""

    def __init__(
        self,
        ports: FollowerPorts,
        pump: Callable[[FetchSource], None],
        trimmed: Callable[[Replica, Key, int], None],
    ) -> None:
        """`pump` sends the next fetch of a source, if it can be sent. `trimmed` reports a durable
        log start offset to the leader."""
        self._ports = ports
        self._clock = ports.world.clock
        self._pump = pump
        self._trimmed = trimmed
        self._marking: set[Log] = set()
        """The logs whose gap mark is being written."""

    def append(self, source: FetchSource, replica: Replica, action: Append) -> None:
        if len(action.records):
            try:
                is_written = self._write(replica, memoryview(action.records))
            except BeginsBelow as error:
                reset = source.fetch.begins_below(action.key, error.base_offset)
                if reset is not None:
                    self.truncate_soon(source, replica, reset)
                return
            if not is_written:
                source.fetch.refused(action.key, self._clock.monotonic_ms())
                return
            replica.on_written()
        replica.on_learned(action.high_watermark)
        self._trim(replica, action)

    def _write(self, replica: Replica, records: memoryview) -> bool:
        """Append fetched records. Return False if they must be fetched again."""
        ports, log = self._ports, replica.log
        now_ms = self._clock.now_ms()
        end_offset = log.log_end_offset
        try:
            log.follower_append(records, now_ms)
            log.write_staged(now_ms)
        except GapsUnmarked:
            self._mark_gaps(log)
            return False
        except DiskError as error:
            ports.write_failed(replica.topic_partition, error, now_ms)
            return False
        except WireError as error:
            self._warn_unfit(replica, str(error))
            return False
        if log.log_end_offset == end_offset:
            self._warn_unfit(replica, f"{len(records)} bytes hold no whole batch")
            return False
        return True

    def _warn_unfit(self, replica: Replica, reason: str) -> None:
        self._ports.warnings.warn(
            logger,
            "records of the leader cannot be appended",
            partition=replica.topic_partition,
            log_end_offset=replica.log.log_end_offset,
            reason=reason,
        )

    def _mark_gaps(self, log: Log) -> None:
        """Write the mark that offsets can be missing. Records with gaps are fetched again after
        that."""
        if log in self._marking:
            return
        self._marking.add(log)

        def marked(_: None) -> None:
            self._marking.discard(log)
            log.gaps_are_marked()

        def failed(error: Exception) -> None:
            self._marking.discard(log)
            logger.warning(
                "the mark for gaps in a log's offsets could not be written",
                extra=fields(folder=log.folder, error=error),
            )

        self._ports.files.run(log.gap_mark().perform, marked, failed)

    def _trim(self, replica: Replica, action: Append) -> None:
        """Move the log start offset to the leader's. Followers delete records in no other way."""
        log = replica.log
        start_offset = min(action.log_start_offset, log.high_watermark)
        if start_offset <= log.log_start_offset:
            return
        log.advance_log_start(start_offset)

        def durable() -> None:
            # Report the offset to the leader only now. If the log was truncated since, it can start
            # lower.
            self._trimmed(replica, action.key, min(start_offset, log.log_start_offset))

        self._ports.trim(log, start_offset, durable)

    # Truncation.

    def truncate_soon(
        self, source: FetchSource, replica: Replica, action: Truncate | Reset
    ) -> None:
        begin = partial(self._begin_truncation, source, replica, action)
        self._ports.replicas.begin_truncation(replica, begin)

    def _begin_truncation(
        self, source: FetchSource, replica: Replica, action: Truncate | Reset
    ) -> None:
        """Truncate the log if this is still necessary. No thread works on its files now."""
        ports, log, key = self._ports, replica.log, action.key
        if not (ports.replicas.holds(replica) and replica.follows_in(key.leader_epoch)):
            return
        logs, now_ms = ports.replicas.logs, self._clock.now_ms()
        job: Truncation | None
        try:
            if isinstance(action, Truncate):
                new_end = action.end_offset
                job = logs.begin_truncation(log, new_end, now_ms)
            else:
                new_end = action.start_offset
                job = logs.begin_reset(log, new_end, now_ms)
        except (CorruptionError, DiskError) as error:
            self._truncation_failed(
                replica, error, partial(self.truncate_soon, source, replica, action)
            )
            return
        if job is None:
            source.fetch.truncated(key, log.log_end_offset, log.leader_epochs.latest)
            self._pump(source)
            return
        logger.info(
            "the log diverged from the leader's and is truncated" if isinstance(action, Truncate)
            else "the log is dropped and starts again at the start of the leader's log",
            extra=fields(
                partition=replica.topic_partition,
                leader=source.leader,
                leader_epoch=key.leader_epoch,
                log_end_offset=log.log_end_offset,
                offset=new_end,
            ),
        )  # fmt: skip
        replica.is_busy = True
        self._truncate(source, replica, key, job)

    def _truncate(self, source: FetchSource, replica: Replica, key: Key, job: Truncation) -> None:
        if not self._ports.replicas.holds(replica):
            # This is a second try. By now, another log can be in the folder's place.
            return

        def truncated(loaded: LoadedLog) -> None:
            if not self._ports.replicas.holds(replica):
                return
            replica.log.truncated(loaded)
            self._ports.replicas.end_truncation(replica)
            log = replica.log
            if loaded.truncated_reason:
                # A truncation ends at a batch boundary. If more was dropped, the log was damaged.
                self._ports.replicas.found_damaged(replica, loaded.truncated_reason)
            # If the partition has changed its role, `LeaderFetch` ignores this key.
            source.fetch.truncated(key, log.log_end_offset, log.leader_epochs.latest)
            self._pump(source)

        def failed(error: Exception) -> None:
            self._truncation_failed(
                replica, error, partial(self._truncate, source, replica, key, job)
            )

        self._ports.files.run(job.perform, truncated, failed)

    def _truncation_failed(
        self, replica: Replica, error: Exception, again: Callable[[], None]
    ) -> None:
        """Retry a truncation after a disk error. If the log is damaged, it goes out of service when
        a leader epoch starts."""
        logger.error(
            "a follower's log could not be truncated",
            extra=fields(partition=replica.topic_partition, error=error),
        )
        self._ports.replicas.read_failed(replica, error)
        if isinstance(error, DiskError):
            self._ports.world.later(CUT_RETRY_MS, again)
