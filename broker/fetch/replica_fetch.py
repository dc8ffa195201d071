"""Answers fetches of followers up to the log end offset. A write wakes a fetch that waits.

`follower_session` validates the requests and keeps their state. This module has the logs, the event
loop and the time. The follower's progress that a fetch shows is recorded before the fetch is
answered. Followers receive written batches before the leader has fsynced them, so that all replicas
fsync at the same time. A new high watermark alone does not wake a follower.

An answer can still be in a socket when its log is truncated and written again at the same position.
The answer would then contain other bytes with valid checksums. So when the broker loses the
leadership, it closes the connections of followers that have possibly not received such an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from broker.alarm import Alarm
from broker.fetch.follower_line import FollowerLine, LineName
from broker.fetch.replica_answer import ReplicaFetchAnswer, partition_data, refused_data
from broker.fetch.replica_ports import ReplicaFetchPorts
from broker.fetch.replica_read import leader_log, read
from broker.replicas.replica import Replica
from broker.replication.fetch_session import FULL_EPOCH
from broker.replication.follower_session import FollowerIdentity, FollowerSession, check_fetch
from broker.replication.follower_steps import PartitionId
from broker.replication.partition import LeaderRole, RoleChange
from broker.sessions.call import Call
from broker.sessions.peers import is_catch_up
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.walk import check_region
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.log import fields
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData

logger = logging.getLogger(__name__)

SESSION_IDS_END = 2**31

NEWS_MS = 1_000
"""The time in milliseconds within which all followers learn of a new leadership."""

NEWS_WAIT_MS = 20
"""The longest wait of a fetch during `NEWS_MS`, so that a follower can name new partitions."""


Named = Sequence[tuple[PartitionId, FetchPartition]]
"""The partitions that a request names, each with its request."""


class ReplicaFetches:
    """All fetches of followers from this broker. Add it to `Replicas.listeners`."""

    def __init__(self, ports: ReplicaFetchPorts) -> None:
        self._ports = ports
        self._clock = ports.world.clock
        self._lines: dict[LineName, FollowerLine] = {}
        self._alarm = Alarm(ports.world, self._on_time)
        self._news_until_ms = 0

    def start(self, call: Call, request: FetchRequest) -> FetchResponse | None:
        """Return the answer, or None if the fetch is parked."""
        asking = request.replica_state
        if asking is None or asking.replica_id < 0:
            # Refuse the fetch, because only followers may use this listener.
            return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        follower = FollowerIdentity(asking.replica_id, asking.replica_epoch)
        name = LineName(follower.node_id, is_catch_up(call.client_id))
        line = self._line(name, call, request)
        if line is None:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        try:
            named = line.session.begin(
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
        line.call = call
        # This fetch shows that the follower has received all earlier answers on this line.
        line.owed.clear()
        line.max_bytes = request.max_bytes
        answer = ReplicaFetchAnswer(line.session.session_id)
        self._take_from(name.other, named)
        for partition, asked in named:
            refused = self._hear(line, partition, asked, follower)
            if refused is not None:
                line.session.put_out(partition)
                answer.add(partition.topic_id, refused)
        now_ms = self._clock.monotonic_ms()
        line.asked_ms, line.deadline_ms = now_ms, now_ms + request.max_wait_ms
        self._collect(line, answer)
        has_caught_up = name.is_catch_up and self._has_caught_up(line, named)
        if has_caught_up:
            self._shorten_wait(name.other)
        if not answer.is_empty or request.max_wait_ms <= 0 or has_caught_up:
            return self._leave(line, answer)
        if now_ms < max(self._news_until_ms, line.hasty_until_ms):
            line.deadline_ms = min(line.deadline_ms, now_ms + NEWS_WAIT_MS)
        self._park(line)
        return None

    def _line(self, name: LineName, call: Call, request: FetchRequest) -> FollowerLine | None:
        """Return a line; None if its session belongs to another connection."""
        known = self._lines.get(name)
        if request.session_epoch == FULL_EPOCH:
            session_id = self._ports.world.chance.randrange(1, SESSION_IDS_END)
            line = self._lines[name] = FollowerLine(self, name, FollowerSession(session_id))
            if known is not None and known.is_parked:
                # The follower has begun a new session, so complete the fetch of the old one.
                self._answer(known, ReplicaFetchAnswer(known.session.session_id))
            return line
        if known is None or known.call is None or known.call.session is not call.session:
            return None
        return known

    def _take_from(self, name: LineName, named: Named) -> None:
        """Remove partitions from the follower's other session, because this session names them."""
        other = self._lines.get(name)
        if other is not None:
            for partition, _ in named:
                if other.session.lose(partition):
                    self._wake_soon(other)

    def _has_caught_up(self, line: FollowerLine, named: Named) -> bool:
        """Return True if one of these partitions has caught up and was not refused."""
        replicas = (
            (self._ports.replicas.by_id(partition), asked)
            for partition, asked in named
            if partition in line.session.partitions
        )
        return any(
            one is not None and one.is_led and asked.fetch_offset >= one.state.high_watermark
            for one, asked in replicas
        )

    def _shorten_wait(self, name: LineName) -> None:
        """Let fetches on the follower's other line wait only briefly for `NEWS_MS`. One of them can
        then soon name the partition that has caught up."""
        line = self._lines.get(name)
        if line is not None:
            line.hasty_until_ms = self._clock.monotonic_ms() + NEWS_MS
            if line.is_parked:
                self._hurry(line, NEWS_WAIT_MS)

    def _hurry(self, line: FollowerLine, wait_ms: int | None) -> None:
        """Let a fetch wait at most this long from now on. With None the wait stays as it is."""
        if wait_ms is not None:
            deadline_ms = self._clock.monotonic_ms() + wait_ms
            line.deadline_ms = min(line.deadline_ms, deadline_ms)
            self._alarm.wake_by(line.deadline_ms)

    def _hear(
        self,
        line: FollowerLine,
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
            line.asked_again.add(partition)
        else:
            line.asked_again.discard(partition)
        if asked.fetch_offset >= replica.log.written_end_offset:
            # There is nothing to read, so its high watermark need not wait for room in the answer.
            line.session.looked(partition)
        return None

    def _collect(self, line: FollowerLine, answer: ReplicaFetchAnswer) -> None:
        """Add the records and errors that the follower needs, up to its size limit."""
        session = line.session
        for partition in session.due():
            if answer.size_bytes >= line.max_bytes:
                return
            replica = self._ports.replicas.by_id(partition)
            data = self._read(line, partition, replica, answer.size_bytes)
            if data is None:
                continue
            if data.error_code:
                session.put_out(partition)
            else:
                assert replica is not None
                session.served(partition)
                line.owed.add(replica)
            answer.add(partition.topic_id, data)

    def _read(
        self, line: FollowerLine, partition: PartitionId, replica: Replica | None, taken_bytes: int
    ) -> PartitionData | None:
        """Return the answer for one partition; None if no records can be added."""
        index = partition.partition_index
        if line.session.is_lost(partition):
            return partition_data(index, replica, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if replica is None:
            return partition_data(index, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        asked = line.session.partitions[partition]
        code = replica.state.refusal(asked.current_leader_epoch)
        if code is not ErrorCode.NONE:
            return partition_data(index, replica, code)
        log = replica.log
        max_bytes = min(asked.partition_max_bytes, line.max_bytes - taken_bytes)
        is_limited = self._is_limited(line, replica)
        if is_limited and asked.fetch_offset < log.written_end_offset:
            room_bytes = self._ports.limit.room()
            if not room_bytes:
                self._hurry(line, self._ports.limit.wait_ms())
                return None
            max_bytes = min(max_bytes, room_bytes)
        try:
            found = read(log, asked, max_bytes, min_one_batch=not taken_bytes)
            if found.region is not None and partition in line.asked_again:
                check_region(found.region)
        except ApiError as error:
            return partition_data(index, replica, error.code)
        except (DiskError, CorruptionError, WireError) as error:
            return self._unreadable(replica, error)
        if found.region is None:
            if asked.fetch_offset >= log.written_end_offset:
                line.session.looked(partition)
            return None
        if is_limited:
            self._ports.limit.take(len(found.region))
        data = partition_data(index, replica, ErrorCode.NONE)
        data.records = found.region
        return data

    def _is_limited(self, line: FollowerLine, replica: Replica) -> bool:
        """Return True if the records are a copy that the leader's rate limits.

        Acknowledgements must not wait for the limit. So it applies neither to a partition on DATA,
        nor to a follower for which the high watermark waits.
        """
        return (
            line.name.is_catch_up
            and self._ports.limit.is_limited(replica)
            and not replica.state.waits_for(line.name.node_id)
        )

    def _unreadable(self, replica: Replica, error: Exception) -> PartitionData:
        warnings, partition = self._ports.warnings, replica.topic_partition
        warnings.warn(logger, "follower's fetch failed", partition=partition, error=error)
        self._ports.replicas.read_failed(replica, error)
        return partition_data(replica.index, replica, ErrorCode.KAFKA_STORAGE_ERROR)

    # Parking and answering.

    def _park(self, line: FollowerLine) -> None:
        assert line.call is not None
        line.call.session.parked_fetch = line
        line.session.park()
        self._alarm.wake_by(line.deadline_ms)

    def _leave(self, line: FollowerLine, answer: ReplicaFetchAnswer) -> FetchResponse:
        """Return an answer with the changed high watermarks and log start offsets, which alone do
        not wake a follower."""
        for partition in line.session.also():
            replica = self._ports.replicas.by_id(partition)
            if replica is not None and replica.is_led:
                data = partition_data(partition.partition_index, replica, ErrorCode.NONE)
                answer.add(partition.topic_id, data)
            line.session.served(partition)
        return answer.response

    def _answer(self, line: FollowerLine, answer: ReplicaFetchAnswer) -> None:
        assert line.call is not None
        line.session.is_parked = False
        line.call.session.parked_fetch = None
        line.call.answer(self._leave(line, answer))

    def _wake_soon(self, line: FollowerLine) -> None:
        """Wake the follower once for all writes of this iteration of the event loop."""
        if not line.is_wake_wanted:
            line.is_wake_wanted = True
            self._ports.world.soon(self._wake, line)

    def _wake(self, line: FollowerLine) -> None:
        line.is_wake_wanted = False
        if not line.is_parked:
            return
        answer = ReplicaFetchAnswer(line.session.session_id)
        self._collect(line, answer)
        if answer.is_empty:
            line.session.park()
        else:
            self._answer(line, answer)

    def _on_time(self, now_ms: int) -> int | None:
        """Answer the fetches that have waited for their maximum time. Return the next deadline."""
        # Begin with the fetch that has waited longest, so that a rate is shared by all followers.
        for line in sorted(self._lines.values(), key=lambda one: one.asked_ms):
            if line.is_parked and line.deadline_ms <= now_ms:
                answer = ReplicaFetchAnswer(line.session.session_id)
                # A copy can have waited for the rate.
                self._collect(line, answer)
                self._answer(line, answer)
        waiting = [line.deadline_ms for line in self._lines.values() if line.is_parked]
        return min(waiting, default=None)

    def forget(self, line: FollowerLine) -> None:
        """Remove a line, because its connection is closed."""
        for name, known in list(self._lines.items()):
            if known is line:
                del self._lines[name]

    def make_way(self, line: FollowerLine) -> None:
        """End the wait of a fetch now."""
        line.deadline_ms = self._clock.monotonic_ms()
        self._alarm.wake_by(line.deadline_ms)

    def complete_all(self) -> None:
        """Answer every waiting fetch, because the broker stops."""
        for line in list(self._lines.values()):
            if line.is_parked:
                self._answer(line, ReplicaFetchAnswer(line.session.session_id))

    @property
    def parked_count(self) -> int:
        """The number of parked fetches of followers."""
        return sum(line.is_parked for line in self._lines.values())

    # Notifications from `Replicas`.

    def _open_lines(self) -> Iterator[FollowerLine]:
        for name, line in list(self._lines.items()):
            if line.is_closed:
                del self._lines[name]
            else:
                yield line

    def changed(self, replica: Replica, change: RoleChange) -> None:
        """Wake followers, because this broker began to lead a partition or no longer leads it."""
        if isinstance(change.before, LeaderRole) and not isinstance(change.after, LeaderRole):
            self._hang_up(replica)
        self.written(replica)
        if isinstance(change.after, LeaderRole) and replica.is_shared:
            self._news_until_ms = self._clock.monotonic_ms() + NEWS_MS
            for line in self._open_lines():
                if line.is_parked:
                    self._hurry(line, NEWS_WAIT_MS)

    def _hang_up(self, replica: Replica) -> None:
        """Close the connections that can have unsent bytes of this log, before the log is
        truncated."""
        for line in list(self._lines.values()):
            if replica in line.owed and line.call is not None and not line.is_closed:
                session = line.call.session
                logger.info(
                    "closed a follower's connection, because an unsent response can contain "
                    "truncated data",
                    extra=fields(partition=replica.topic_partition, peer=session.peer),
                )
                session.close("a leadership has ended", is_logged=False)

    def gone(self, replica: Replica) -> None:
        """Wake the followers of a partition that this broker no longer has. They get an error."""
        self.written(replica)

    def written(self, replica: Replica) -> None:
        """Wake each follower that waits for this partition."""
        if self._lines:
            for line in self._open_lines():
                if line.session.written(replica.partition_id):
                    self._wake_soon(line)

    def durable_advanced(self, replica: Replica) -> None:
        """Do nothing, because followers learn of durable offsets from the high watermark."""

    def damaged(self, replica: Replica) -> None:
        """Do nothing. The undamaged data is served until another broker leads the partition."""

    def moved(self, replica: Replica) -> None:
        """Send the new high watermark or log start offset with the next answer."""
        for line in self._lines.values():
            line.session.moved(replica.partition_id)
