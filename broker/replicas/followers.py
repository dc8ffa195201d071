"""Runs the followers of this broker: fetches from leaders, appends, fsyncs, and truncates logs.

One pure `LeaderFetch` for each leader decides. This module sends its fetches on a separate link and
carries out its actions on logs. Records are appended when they arrive. All of them are fsynced
together before the next fetch, because that fetch acknowledges them.

A log is truncated in the file thread, when `Flusher.drain` reports that no fsync of it is running.
Then this module checks again whether the log must be truncated, because the partition can have
changed its role in the meantime. While a job works on its files the partition keeps its role. It
takes its newest role when the job is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from broker.alarm import Alarm
from broker.metrics.warnings import Warnings
from broker.replicas.fetching import FETCH_VERSION, fetch_request
from broker.replicas.refusals import WriteFailed
from broker.replicas.replica import Replica
from broker.replicas.replica_listener import BaseReplicaListener
from broker.replicas.replicas import Replicas
from broker.replication.follower import LeaderFetch
from broker.replication.follower_session import FollowerIdentity
from broker.replication.follower_steps import (
    Append,
    Followed,
    Key,
    PartitionId,
    Reset,
    Truncate,
)
from broker.replication.partition import FollowerRole, RoleChange
from broker.sessions.peers import LinkKind, Peers
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.follower_append import BeginsBelow, GapsUnmarked
from broker.storage.log import Log
from broker.storage.recovery import LoadedLog
from broker.storage.truncation import Truncation
from broker.world import End, Jobs, World
from protocol.errors import WireError
from protocol.log import fields
from protocol.messages.fetch import FetchResponse
from protocol.types import Uuid

logger = logging.getLogger(__name__)

REQUEST_MS_MAX = 5_000
"""The time in milliseconds in which a leader must answer. The link to a dead leader ends sooner."""

CUT_RETRY_MS = 1_000
"""The wait in milliseconds before a rejected truncation is retried."""


class _EpochsOf:
    """The present leader epochs of a log. A truncation replaces the log's own object."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def latest(self) -> int:
        return self._log.leader_epochs.latest

    def end_offset_for(
        self, leader_epoch: int, log_end_offset: int, current_epoch: int
    ) -> tuple[int, int]:
        return self._log.leader_epochs.end_offset_for(leader_epoch, log_end_offset, current_epoch)


class _Source:
    """One leader, and the partitions that are fetched from it."""

    __slots__ = ("fetch", "is_pump_wanted", "leader", "replicas")

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.fetch = LeaderFetch()
        self.replicas: dict[PartitionId, Replica] = {}
        self.is_pump_wanted = False


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


class Followers(BaseReplicaListener):
    """All follower partitions of this broker. Add this to `Replicas.listeners`."""

    def __init__(self, ports: FollowerPorts, me: FollowerIdentity, directory_id: Uuid) -> None:
        """`me` has the node id and the broker epoch of this incarnation."""
        self._ports = ports
        self._clock = ports.world.clock
        self._me = me
        self._directory_id = directory_id
        self._lines: dict[int, _Source] = {}
        self._marking: set[Log] = set()
        """The logs whose gap mark is being written."""
        self._alarm = Alarm(ports.world, self._on_time)
        self._is_stopped = False

    @property
    def followed_count(self) -> int:
        """The number of partitions that are fetched or wait to be fetched."""
        return sum(len(line.replicas) for line in self._lines.values())

    def stop(self) -> None:
        """Stop all fetches. Records that are already appended are fsynced as usual."""
        self._is_stopped = True
        self._alarm.stop()

    # Notifications from `Replicas`.

    def changed(self, replica: Replica, change: RoleChange) -> None:
        """Note a new role: stop to fetch from the former leader and begin with the present one."""
        if isinstance(change.before, FollowerRole):
            self._leave(replica, change.before)
        self._begin(replica)

    def gone(self, replica: Replica) -> None:
        """Note that this broker has no replica of the partition any more."""
        if isinstance(replica.state.role, FollowerRole):
            self._leave(replica, replica.state.role)

    def durable_advanced(self, replica: Replica) -> None:
        """Note that more of the log is durable, so that the next fetch can possibly be sent."""
        role = replica.state.role
        if not isinstance(role, FollowerRole) or replica.is_busy or not replica.is_all_durable:
            return
        line = self._lines.get(role.leader)
        if line is not None and replica.partition_id in line.replicas:
            line.fetch.synced(_key(replica), replica.log.log_end_offset)
            self._pump(line)
        else:
            self._begin(replica)

    def _begin(self, replica: Replica) -> None:
        """Start to fetch when the whole log is durable, because the first fetch acknowledges the
        log."""
        role = replica.state.role
        if not isinstance(role, FollowerRole) or not replica.is_all_durable:
            return
        log = replica.log
        line = self._lines.setdefault(role.leader, _Source(role.leader))
        line.replicas[replica.partition_id] = replica
        line.fetch.follow(
            Followed(_key(replica), _EpochsOf(log), log.log_start_offset, log.log_end_offset)
        )
        self._pump_soon(line)

    def _leave(self, replica: Replica, role: FollowerRole) -> None:
        line = self._lines.get(role.leader)
        if line is None or line.replicas.pop(replica.partition_id, None) is None:
            return
        line.fetch.drop(Key(*replica.partition_id, role.epoch))
        # The next fetch can have waited only for the fsync of this partition.
        self._pump_soon(line)

    # Fetches.

    def _pump_soon(self, line: _Source) -> None:
        """Send a fetch in the next iteration of the event loop, for all partitions that changed."""
        if not line.is_pump_wanted:
            line.is_pump_wanted = True
            self._ports.world.soon(self._pump, line)

    def _pump(self, line: _Source) -> None:
        line.is_pump_wanted = False
        if self._is_stopped:
            return
        now_ms = self._clock.monotonic_ms()
        plan = line.fetch.next_fetch(now_ms)
        if plan is None:
            deadline_ms = line.fetch.next_deadline_ms
            if deadline_ms is not None:
                self._alarm.wake_by(deadline_ms)
            return
        self._ports.peers.ask(
            line.leader,
            LinkKind.DATA,
            fetch_request(plan, self._me, self._directory_id),
            FETCH_VERSION,
            now_ms + REQUEST_MS_MAX,
            partial(self._answered, line, plan.request_id),
            partial(self._failed, line, plan.request_id),
        )

    def _on_time(self, now_ms: int) -> int | None:
        """Send the fetches whose wait after a failure is over. Return the next deadline."""
        waiting = [
            (deadline_ms, line)
            for line in self._lines.values()
            if (deadline_ms := line.fetch.next_deadline_ms) is not None
        ]
        for deadline_ms, line in waiting:
            if deadline_ms <= now_ms:
                self._pump(line)
        later = [deadline_ms for deadline_ms, _ in waiting if deadline_ms > now_ms]
        return min(later, default=None)

    def _failed(self, line: _Source, request_id: int, end: End) -> None:
        line.fetch.failed(request_id, self._clock.monotonic_ms())
        self._pump(line)

    def _answered(self, line: _Source, request_id: int, answer: FetchResponse) -> None:
        now_ms = self._clock.monotonic_ms()
        for action in line.fetch.on_answer(request_id, answer, now_ms):
            replica = line.replicas[action.key.partition]
            if isinstance(action, Append):
                self._append(line, replica, action)
            elif isinstance(action, Truncate | Reset):
                self._truncate_soon(line, replica, action)
            else:
                # The metadata log will name the next leader.
                del line.replicas[action.key.partition]
        self._pump(line)

    # Appending.

    def _append(self, line: _Source, replica: Replica, action: Append) -> None:
        if len(action.records):
            try:
                is_written = self._write(replica, memoryview(action.records))
            except BeginsBelow as error:
                reset = line.fetch.begins_below(action.key, error.base_offset)
                if reset is not None:
                    self._truncate_soon(line, replica, reset)
                return
            if not is_written:
                line.fetch.refused(action.key, self._clock.monotonic_ms())
                return
            replica.on_written()
        replica.on_learned(action.high_watermark)
        self._trim(line, replica, action)

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
            logger.warning("gap mark not written", extra=fields(folder=log.folder, error=error))

        self._ports.files.run(log.gap_mark().perform, marked, failed)

    def _trim(self, line: _Source, replica: Replica, action: Append) -> None:
        """Move the log start offset to the leader's. Followers delete records in no other way."""
        log = replica.log
        start_offset = min(action.log_start_offset, log.high_watermark)
        if start_offset <= log.log_start_offset:
            return
        log.advance_log_start(start_offset)

        def durable() -> None:
            # Report the offset to the leader only now. If the log was truncated since, it can start
            # lower.
            line.fetch.trimmed(action.key, min(start_offset, log.log_start_offset))

        self._ports.trim(log, start_offset, durable)

    # Truncation.

    def _truncate_soon(self, line: _Source, replica: Replica, action: Truncate | Reset) -> None:
        begin = partial(self._begin_truncation, line, replica, action)
        self._ports.replicas.begin_truncation(replica, begin)

    def _begin_truncation(self, line: _Source, replica: Replica, action: Truncate | Reset) -> None:
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
                replica, error, partial(self._truncate_soon, line, replica, action)
            )
            return
        if job is None:
            line.fetch.truncated(key, log.log_end_offset, log.leader_epochs.latest)
            self._pump(line)
            return
        logger.info(
            "log diverged from its leader's and is truncated" if isinstance(action, Truncate)
            else "log is reset to the start of its leader's log",
            extra=fields(
                partition=replica.topic_partition,
                leader=line.leader,
                leader_epoch=key.leader_epoch,
                log_end_offset=log.log_end_offset,
                offset=new_end,
            ),
        )  # fmt: skip
        replica.is_busy = True
        self._truncate(line, replica, key, job)

    def _truncate(self, line: _Source, replica: Replica, key: Key, job: Truncation) -> None:
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
            line.fetch.truncated(key, log.log_end_offset, log.leader_epochs.latest)
            self._pump(line)

        def failed(error: Exception) -> None:
            self._truncation_failed(
                replica, error, partial(self._truncate, line, replica, key, job)
            )

        self._ports.files.run(job.perform, truncated, failed)

    def _truncation_failed(
        self, replica: Replica, error: Exception, again: Callable[[], None]
    ) -> None:
        """Retry after a disk error. A damaged log goes out of service when a leader epoch
        starts."""
        logger.error(
            "log cannot be truncated", extra=fields(partition=replica.topic_partition, error=error)
        )
        self._ports.replicas.read_failed(replica, error)
        if isinstance(error, DiskError):
            self._ports.world.later(CUT_RETRY_MS, again)


def _key(replica: Replica) -> Key:
    return Key(*replica.partition_id, replica.leader_epoch)
