"""Runs the followers of this broker: fetches from leaders, on two links for each leader.

One pure `LeaderFetch` for each leader and link decides. This module sends its fetches, and
`follower_logs` carries out its actions on logs. All records of an answer are fsynced together
before the next fetch on that link, because that fetch acknowledges them.

A partition is fetched on exactly one of the two links (decision 0131). DATA has the partitions that
are in sync, and those that have caught up. CATCH_UP has all other partitions, so that their bytes
and fsyncs delay no acknowledgement. A partition that has caught up moves to DATA when DATA can send
its next fetch. Until then it is fetched on CATCH_UP, so its fetches never pause.
"""

from __future__ import annotations

from functools import partial

from broker.alarm import Alarm
from broker.metadata.features import LEVEL_4_0_IV2
from broker.replicas.copies import Copies
from broker.replicas.fetch_source import FetchSource
from broker.replicas.fetching import CATCH_UP_BYTES, MAX_BYTES, fetch_request
from broker.replicas.follower_logs import FollowerLogs, FollowerPorts
from broker.replicas.replica import Replica
from broker.replicas.replica_listener import BaseReplicaListener
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
from broker.sessions.peers import LinkKind
from broker.storage.log import Log
from broker.world import End
from protocol.messages.fetch import FetchResponse
from protocol.types import Uuid

REQUEST_MS_MAX = 5_000
"""The time in milliseconds in which a leader must answer. The link to a dead leader ends sooner."""

BYTES_MAX = {LinkKind.DATA: MAX_BYTES, LinkKind.CATCH_UP: CATCH_UP_BYTES}


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


class Followers(BaseReplicaListener):
    """All follower partitions of this broker. Add this to `Replicas.listeners`."""

    def __init__(self, ports: FollowerPorts, me: FollowerIdentity, directory_id: Uuid) -> None:
        """`me` has the node id and the broker epoch of this incarnation."""
        self._ports = ports
        self._clock = ports.world.clock
        self._me = me
        self._directory_id = directory_id
        self._logs = FollowerLogs(ports, self._pump, self._trimmed)
        self._sources: dict[tuple[int, LinkKind], FetchSource] = {}
        self._placed: dict[PartitionId, tuple[FetchSource, Key]] = {}
        """The source from which each partition is fetched, with its leader epoch."""
        self.copies = Copies(
            ports.world,
            ports.limit,
            ports.replicas.logs.space,
            self._placed,
            self._pump_soon,
            self._choose,
        )
        self._alarm = Alarm(ports.world, self._on_time)
        self._is_stopped = False

    @property
    def followed_count(self) -> int:
        """The number of partitions that are fetched or wait to be fetched."""
        return len(self._placed)

    def stop(self) -> None:
        """Stop all fetches. Records that are already appended are fsynced as usual."""
        self._is_stopped = True
        self._alarm.stop()

    # Notifications from `Replicas`.

    def changed(self, replica: Replica, change: RoleChange) -> None:
        """Handle a new role: stop fetching from the former leader, and start fetching from the
        present one."""
        self._leave(replica)
        self._begin(replica)

    def gone(self, replica: Replica) -> None:
        """Stop fetching a partition, because this broker has no replica of it any more."""
        self._leave(replica)

    def written(self, replica: Replica) -> None:
        """Count an append, because copies pause while other partitions are written."""
        if replica.is_in_sync:
            self.copies.others_count += 1

    def durable_advanced(self, replica: Replica) -> None:
        """Handle a longer durable part of the log. The next fetch can possibly be sent now."""
        role = replica.state.role
        if not isinstance(role, FollowerRole) or replica.is_busy or not replica.is_all_durable:
            return
        placed = self._placed.get(replica.partition_id)
        if placed is None:
            self._begin(replica)
            return
        source, key = placed
        source.fetch.synced(key, replica.log.log_end_offset)
        if source.kind is LinkKind.CATCH_UP:
            self.copies.advanced(source, key, replica)
        self._choose(replica)
        self._pump(source)

    def _begin(self, replica: Replica) -> None:
        """Start fetching when the whole log is durable, because the first fetch acknowledges the
        log."""
        role = replica.state.role
        if isinstance(role, FollowerRole) and replica.is_all_durable:
            kind = first_link(replica) if self._has_catch_up(role.leader) else LinkKind.DATA
            self._place(replica, self._source(role.leader, kind))

    def _has_catch_up(self, leader: int) -> bool:
        """Return True if a leader can keep a second session for CATCH_UP. A leader of 1.0.0-rc1
        identifies a follower only by its node id, so a second session would end the first one."""
        return self._ports.replicas.supports(leader, LEVEL_4_0_IV2)

    def _source(self, leader: int, kind: LinkKind) -> FetchSource:
        source = self._sources.get((leader, kind))
        if source is None:
            source = self._sources[leader, kind] = FetchSource(leader, kind)
        return source

    # The choice of the link for a partition.

    def _place(self, replica: Replica, source: FetchSource) -> None:
        """Fetch a partition from this source, and on no other link."""
        log, key = replica.log, Key(*replica.partition_id, replica.leader_epoch)
        start_offset = self._reported_start(replica)
        was_caught_up = self._leave(replica) is LinkKind.DATA
        self._placed[replica.partition_id] = source, key
        source.replicas[replica.partition_id] = replica
        source.fetch.follow(Followed(key, _EpochsOf(log), start_offset, log.log_end_offset))
        self._ports.replicas.flush_apart(replica, source.kind is LinkKind.CATCH_UP)
        if source.kind is LinkKind.CATCH_UP:
            self.copies.came(source, key, was_caught_up=was_caught_up)
        self._pump_soon(source)

    def _reported_start(self, replica: Replica) -> int:
        """Return the log start offset to report to the leader.

        When a partition moves between links, the log can have a later start that is not durable
        yet. `_trimmed` reports it when it is.
        """
        source, key = self._placed.get(replica.partition_id, (None, None))
        reported = None if source is None or key is None else source.fetch.log_start_of(key)
        return replica.log.log_start_offset if reported is None else reported

    def _leave(self, replica: Replica) -> LinkKind | None:
        """Stop fetching a partition. Return the kind of the link on which it was fetched."""
        source, key = self._placed.pop(replica.partition_id, (None, None))
        if source is None or key is None:
            return None
        source.replicas.pop(replica.partition_id, None)
        source.caught_up.pop(replica.partition_id, None)
        source.fetch.drop(key)
        self._ports.replicas.flush_apart(replica, False)
        if source.kind is LinkKind.CATCH_UP:
            self.copies.left(source, replica.partition_id)
        # The next fetch can have waited only for the fsync of this partition.
        self._pump_soon(source)
        return source.kind

    def _choose(self, replica: Replica) -> None:
        """Move a partition to the other link if its lag requires this. Its whole log must be
        durable."""
        placed = self._placed.get(replica.partition_id)
        if placed is None:
            return
        source, key = placed
        lag = source.fetch.lag_of(key)
        if lag is None:
            return
        if source.kind is LinkKind.DATA:
            is_copied = lag.is_far_behind and not replica.is_in_sync
            if is_copied and self._has_catch_up(source.leader):
                self._place(replica, self._source(source.leader, LinkKind.CATCH_UP))
        elif lag.has_caught_up or replica.is_in_sync:
            source.caught_up[replica.partition_id] = replica
            self._pump_soon(self._source(source.leader, LinkKind.DATA))

    def _take_over(self, source: FetchSource) -> None:
        """Move the partitions that have caught up to DATA, so that the next fetch on DATA names
        them."""
        other = self._sources.get((source.leader, LinkKind.CATCH_UP))
        if other is None or source is other or not other.caught_up:
            return
        ready, other.caught_up = other.caught_up, {}
        for partition, replica in ready.items():
            _, key = self._placed[partition]
            if other.fetch.lag_of(key) is None:
                # An answer came in the meantime, and its records are not durable yet.
                continue
            self._place(replica, source)

    # Fetches.

    def _pump_soon(self, source: FetchSource) -> None:
        """Send a fetch in the next iteration of the event loop, for all partitions that changed."""
        if not source.is_pump_wanted:
            source.is_pump_wanted = True
            self._ports.world.soon(self._pump, source)

    def _pump(self, source: FetchSource) -> None:
        source.is_pump_wanted = False
        if self._is_stopped:
            return
        now_ms = self._clock.monotonic_ms()
        if source.fetch.is_free(now_ms):
            source.wake_ms = None
            self._take_over(source)
            if source.kind is LinkKind.CATCH_UP and self._rests(source, now_ms):
                return
        plan = source.fetch.next_fetch(now_ms)
        if plan is None:
            deadline_ms = source.next_deadline_ms
            if deadline_ms is not None:
                self._alarm.wake_by(deadline_ms)
            return
        # Copies that wait for their rate are looked at again after the answer.
        source.wake_ms = None
        self._ports.peers.ask(
            source.leader,
            source.kind,
            fetch_request(plan, self._me, self._directory_id, BYTES_MAX[source.kind]),
            now_ms + REQUEST_MS_MAX,
            partial(self._answered, source, plan.request_id),
            partial(self._failed, source, plan.request_id),
        )

    def _rests(self, source: FetchSource, now_ms: int) -> bool:
        """Return True if the copies of a source pause now. The alarm ends the pause."""
        until_ms = self.copies.rest_until_ms(source)
        if until_ms <= now_ms:
            return False
        source.wake_ms = until_ms
        self._alarm.wake_by(until_ms)
        return True

    def _on_time(self, now_ms: int) -> int | None:
        """Send the fetches whose wait is over. Return the next deadline."""
        waiting = [
            (deadline_ms, source)
            for source in self._sources.values()
            if (deadline_ms := source.next_deadline_ms) is not None
        ]
        for deadline_ms, source in waiting:
            if deadline_ms <= now_ms:
                self._pump(source)
        later = [deadline_ms for deadline_ms, _ in waiting if deadline_ms > now_ms]
        return min(later, default=None)

    def _failed(self, source: FetchSource, request_id: int, end: End) -> None:
        source.fetch.failed(request_id, self._clock.monotonic_ms())
        self._after_answer(source)

    def _after_answer(self, source: FetchSource) -> None:
        if source.kind is LinkKind.CATCH_UP:
            self.copies.give_up_places(source)
        self._pump(source)

    def _answered(self, source: FetchSource, request_id: int, answer: FetchResponse) -> None:
        now_ms = self._clock.monotonic_ms()
        for action in source.fetch.on_answer(request_id, answer, now_ms):
            replica = source.replicas[action.key.partition]
            if isinstance(action, Append):
                if source.kind is LinkKind.CATCH_UP and len(action.records):
                    self.copies.received(source, replica, len(action.records))
                self._logs.append(source, replica, action)
                if not len(action.records):
                    self._choose(replica)
            elif isinstance(action, Truncate | Reset):
                self._logs.truncate_soon(source, replica, action)
            else:
                # The metadata log will name the next leader.
                self._leave(replica)
        self._after_answer(source)

    def _trimmed(self, replica: Replica, key: Key, log_start_offset: int) -> None:
        placed = self._placed.get(replica.partition_id)
        if placed is not None:
            placed[0].fetch.trimmed(key, log_start_offset)


def first_link(replica: Replica) -> LinkKind:
    """Return the kind of link on which a follower begins to fetch.

    A partition that is in sync is never fetched on CATCH_UP, because every acknowledgement waits
    for it.
    """
    return LinkKind.DATA if replica.is_in_sync else LinkKind.CATCH_UP
