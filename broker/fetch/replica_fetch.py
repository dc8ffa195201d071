"""Answers fetches of followers up to the log end offset. A write wakes a fetch that waits.

`follower_session` validates the requests and keeps their state. This module has the logs, the event
loop and the time. The follower's progress that a fetch shows is recorded before the fetch is
answered. Followers receive written batches before the leader has fsynced them, so that all replicas
fsync at the same time. A new high watermark alone does not wake a follower.

An answer can still be in a socket when its log is truncated and written again at the same position.
The answer would then contain other bytes with valid checksums. So when the broker loses the
leadership, it closes the connections of followers that may not have received such an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from broker.alarm import Alarm
from broker.fetch.replica_answer import ReplicaFetchAnswer, partition_data, refused_data
from broker.fetch.replica_read import leader_log, read
from broker.metrics.warnings import Warnings
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.replication.fetch_session import FULL_EPOCH
from broker.replication.follower_session import FollowerIdentity, FollowerSession, check_fetch
from broker.replication.follower_steps import PartitionId
from broker.replication.partition import LeaderRole, RoleChange
from broker.sessions.call import Call
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.walk import check_region
from broker.world import World
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.log import fields
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData

logger = logging.getLogger(__name__)

SESSION_IDS_END = 2**31

NEWS_MS = 1_000
"""The time in milliseconds after which all followers know of a new leadership."""

NEWS_WAIT_MS = 20
"""The longest wait of a fetch during `NEWS_MS`, so that a follower can name new partitions."""


class _Follower:
    """One follower: its connection, its session, and its parked fetch, if any."""

    __slots__ = (
        "call",
        "deadline_ms",
        "fetched_again",
        "fetches",
        "is_wake_wanted",
        "max_bytes",
        "session",
        "unconfirmed",
    )

    def __init__(self, fetches: ReplicaFetches, session: FollowerSession) -> None:
        self.fetches = fetches
        self.session = session
        self.call: Call | None = None
        """The call of the newest fetch."""
        self.max_bytes = 0
        self.deadline_ms = 0
        self.is_wake_wanted = False
        self.unconfirmed: set[Replica] = set()
        """The replicas with records in the newest answer, which may not have arrived."""
        self.fetched_again: set[PartitionId] = set()
        """The partitions fetched again at the same offset. Their next batches are checked."""

    @property
    def is_parked(self) -> bool:
        """True if a fetch of this follower is parked."""
        return self.call is not None and self.call.session.parked_fetch is self

    @property
    def is_closed(self) -> bool:
        """True if the follower's connection is closed."""
        return self.call is None or self.call.session.is_closed

    # The connection's session calls these.

    def hasten(self, behind: Iterable[bytes]) -> None:
        """Do nothing, because a follower sends no request while its fetch is pending."""

    def make_way(self) -> None:
        """End the wait, because the connection reads nothing more before the answer is sent."""
        self.fetches.make_way(self)

    def forget(self) -> None:
        """Remove the follower's state, because its connection is closed."""
        self.fetches.forget(self)

    def drop(self) -> None:
        """Remove the follower's state, and the fetch without an answer."""
        self.fetches.forget(self)
        assert self.call is not None
        self.call.answer_nothing()


@dataclass(frozen=True, slots=True)
class ReplicaFetchPorts:
    """The objects that `ReplicaFetches` uses."""

    world: World
    replicas: Replicas
    warnings: Warnings
    lived_ms: Callable[[], int]
    """The clock for the progress of followers: the milliseconds in which this broker ran."""
    heard: Callable[[Replica], None]
    """Called when a follower has made progress and can be ready for the ISR (`isr_driver`)."""


class ReplicaFetches:
    """All fetches of followers from this broker. Add it to `Replicas.listeners`."""

    def __init__(self, ports: ReplicaFetchPorts) -> None:
        self._ports = ports
        self._clock = ports.world.clock
        self._peers: dict[int, _Follower] = {}
        """The followers by node id."""
        self._alarm = Alarm(ports.world, self._on_time)
        self._news_until_ms = 0

    def start(self, call: Call, request: FetchRequest) -> FetchResponse | None:
        """Return the answer, or None if the fetch is parked."""
        asking = request.replica_state
        if asking is None or asking.replica_id < 0:
            # Refuse the fetch, because only followers may use this listener.
            return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        follower = FollowerIdentity(asking.replica_id, asking.replica_epoch)
        peer = self._peer_of(follower, call, request)
        if peer is None:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        try:
            named = peer.session.begin(
                request.session_id,
                request.session_epoch,
                [
                    (PartitionId(topic.topic_id, asked.partition), asked)
                    for topic in request.topics
                    for asked in topic.partitions
                ],
                [
                    PartitionId(topic.topic_id, index)
                    for topic in request.forgotten_topics_data
                    for index in topic.partitions
                ],
            )
        except ApiError as error:
            return FetchResponse(error_code=error.code)
        peer.call = call
        # This fetch shows that the follower has received all earlier answers.
        peer.unconfirmed.clear()
        peer.max_bytes = request.max_bytes
        answer = ReplicaFetchAnswer(peer.session.session_id)
        for partition, asked in named:
            refused = self._check(peer, partition, asked, follower)
            if refused is not None:
                peer.session.put_out(partition)
                answer.add(partition.topic_id, refused)
        self._collect(peer, answer)
        if not answer.is_empty or request.max_wait_ms <= 0:
            return self._finish(peer, answer)
        now_ms = self._clock.monotonic_ms()
        wait_ms = request.max_wait_ms
        if now_ms < self._news_until_ms:
            wait_ms = min(wait_ms, NEWS_WAIT_MS)
        peer.deadline_ms = now_ms + wait_ms
        self._park(peer)
        return None

    def _peer_of(
        self, follower: FollowerIdentity, call: Call, request: FetchRequest
    ) -> _Follower | None:
        """Return the state of the follower; None if its session has another connection."""
        known = self._peers.get(follower.node_id)
        if request.session_epoch == FULL_EPOCH:
            session_id = self._ports.world.chance.randrange(1, SESSION_IDS_END)
            peer = self._peers[follower.node_id] = _Follower(self, FollowerSession(session_id))
            if known is not None and known.is_parked:
                # The follower has begun a new session, so complete the fetch of the old one.
                self._answer(known, ReplicaFetchAnswer(known.session.session_id))
            return peer
        if known is None or known.call is None or known.call.session is not call.session:
            return None
        return known

    def _check(
        self,
        peer: _Follower,
        partition: PartitionId,
        asked: FetchPartition,
        follower: FollowerIdentity,
    ) -> PartitionData | None:
        """Record the progress that one partition of a fetch shows. Return the error if it is
        invalid."""
        replica = self._ports.replicas.by_id(partition)
        if replica is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return partition_data(partition.partition_index, None, code)
        try:
            log = leader_log(replica, asked)
        except (DiskError, CorruptionError, WireError) as error:
            return self._unreadable(replica, error)
        heard = check_fetch(replica.state, log, asked, follower, self._ports.lived_ms())
        if heard.is_refusal:
            return refused_data(replica, heard)
        replica.take_over()
        self._ports.heard(replica)
        if heard.is_again:
            peer.fetched_again.add(partition)
        else:
            peer.fetched_again.discard(partition)
        return None

    def _collect(self, peer: _Follower, answer: ReplicaFetchAnswer) -> None:
        """Add the records and errors that the follower needs, up to its size limit."""
        session = peer.session
        for partition in session.due():
            if answer.size_bytes >= peer.max_bytes:
                return
            replica = self._ports.replicas.by_id(partition)
            data = self._read(peer, partition, replica, answer.size_bytes)
            if data is None:
                continue
            if data.error_code:
                session.put_out(partition)
            else:
                assert replica is not None
                session.served(partition)
                peer.unconfirmed.add(replica)
            answer.add(partition.topic_id, data)

    def _read(
        self, peer: _Follower, partition: PartitionId, replica: Replica | None, taken_bytes: int
    ) -> PartitionData | None:
        """Return the answer for one partition; None if no records can be added."""
        index = partition.partition_index
        if replica is None:
            return partition_data(index, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        asked = peer.session.partitions[partition]
        code = replica.state.refusal(asked.current_leader_epoch)
        if code is not ErrorCode.NONE:
            return partition_data(index, replica, code)
        log = replica.log
        max_bytes = min(asked.partition_max_bytes, peer.max_bytes - taken_bytes)
        try:
            found = read(log, asked, max_bytes, min_one_batch=not taken_bytes)
            if found.region is not None and partition in peer.fetched_again:
                check_region(found.region)
        except ApiError as error:
            return partition_data(index, replica, error.code)
        except (DiskError, CorruptionError, WireError) as error:
            return self._unreadable(replica, error)
        if found.region is None:
            if asked.fetch_offset >= log.written_end_offset:
                peer.session.looked(partition)
            return None
        data = partition_data(index, replica, ErrorCode.NONE)
        data.records = found.region
        return data

    def _unreadable(self, replica: Replica, error: Exception) -> PartitionData:
        warnings, partition = self._ports.warnings, replica.topic_partition
        warnings.warn(logger, "follower's fetch failed", partition=partition, error=error)
        self._ports.replicas.read_failed(replica, error)
        return partition_data(replica.index, replica, ErrorCode.KAFKA_STORAGE_ERROR)

    # Parking and answering.

    def _park(self, peer: _Follower) -> None:
        assert peer.call is not None
        peer.call.session.parked_fetch = peer
        peer.session.park()
        self._alarm.wake_by(peer.deadline_ms)

    def _finish(self, peer: _Follower, answer: ReplicaFetchAnswer) -> FetchResponse:
        """Complete an answer with the moved offsets that alone do not wake a follower."""
        for partition in peer.session.also():
            replica = self._ports.replicas.by_id(partition)
            if replica is not None and replica.is_led:
                data = partition_data(partition.partition_index, replica, ErrorCode.NONE)
                answer.add(partition.topic_id, data)
            peer.session.served(partition)
        return answer.response

    def _answer(self, peer: _Follower, answer: ReplicaFetchAnswer) -> None:
        assert peer.call is not None
        peer.session.is_parked = False
        peer.call.session.parked_fetch = None
        peer.call.answer(self._finish(peer, answer))

    def _wake_soon(self, peer: _Follower) -> None:
        """Wake the follower once for all writes of this iteration of the event loop."""
        if not peer.is_wake_wanted:
            peer.is_wake_wanted = True
            self._ports.world.soon(self._wake, peer)

    def _wake(self, peer: _Follower) -> None:
        peer.is_wake_wanted = False
        if not peer.is_parked:
            return
        answer = ReplicaFetchAnswer(peer.session.session_id)
        self._collect(peer, answer)
        if answer.is_empty:
            peer.session.park()
        else:
            self._answer(peer, answer)

    def _on_time(self, now_ms: int) -> int | None:
        """Answer the fetches that have waited for their maximum time. Return the next deadline."""
        for peer in list(self._peers.values()):
            if peer.is_parked and peer.deadline_ms <= now_ms:
                self._answer(peer, ReplicaFetchAnswer(peer.session.session_id))
        waiting = [peer.deadline_ms for peer in self._peers.values() if peer.is_parked]
        return min(waiting, default=None)

    def forget(self, peer: _Follower) -> None:
        """Remove the state of a follower, because its connection is closed."""
        for node_id, known in list(self._peers.items()):
            if known is peer:
                del self._peers[node_id]

    def make_way(self, peer: _Follower) -> None:
        """End the wait of a fetch now."""
        peer.deadline_ms = self._clock.monotonic_ms()
        self._alarm.wake_by(peer.deadline_ms)

    def complete_all(self) -> None:
        """Answer every waiting fetch, because the broker stops."""
        for peer in list(self._peers.values()):
            if peer.is_parked:
                self._answer(peer, ReplicaFetchAnswer(peer.session.session_id))

    @property
    def parked_count(self) -> int:
        """The number of parked fetches of followers."""
        return sum(peer.is_parked for peer in self._peers.values())

    # Notifications from `Replicas`.

    def _open_peers(self) -> Iterator[_Follower]:
        for node_id, peer in list(self._peers.items()):
            if peer.is_closed:
                del self._peers[node_id]
            else:
                yield peer

    def changed(self, replica: Replica, change: RoleChange) -> None:
        """Wake followers, because this broker began to lead a partition or no longer leads it."""
        if isinstance(change.before, LeaderRole) and not isinstance(change.after, LeaderRole):
            self._hang_up(replica)
        self.written(replica)
        if isinstance(change.after, LeaderRole) and replica.is_shared:
            self._news_until_ms = self._clock.monotonic_ms() + NEWS_MS
            for peer in self._open_peers():
                if peer.is_parked:
                    peer.deadline_ms = min(
                        peer.deadline_ms, self._clock.monotonic_ms() + NEWS_WAIT_MS
                    )
                    self._alarm.wake_by(peer.deadline_ms)

    def _hang_up(self, replica: Replica) -> None:
        """Close connections that can have unsent bytes of this log, before the log is truncated."""
        for peer in list(self._peers.values()):
            if replica in peer.unconfirmed and peer.call is not None and not peer.is_closed:
                session = peer.call.session
                logger.info(
                    "closed a follower's connection: its answer may contain truncated data",
                    extra=fields(partition=replica.topic_partition, peer=session.peer),
                )
                session.close("a leadership has ended", is_logged=False)

    def gone(self, replica: Replica) -> None:
        """Wake the followers of a partition that this broker no longer has, to send an error."""
        self.written(replica)

    def written(self, replica: Replica) -> None:
        """Wake each follower that waits for this partition."""
        if self._peers:
            for peer in self._open_peers():
                if peer.session.written(replica.partition_id):
                    self._wake_soon(peer)

    def durable_advanced(self, replica: Replica) -> None:
        """Do nothing, because followers learn of durable offsets from the high watermark."""

    def damaged(self, replica: Replica) -> None:
        """Do nothing. The undamaged data is served until another broker leads the partition."""

    def moved(self, replica: Replica) -> None:
        """Send the new high watermark or log start offset with the next answer."""
        for peer in self._peers.values():
            peer.session.moved(replica.partition_id)
