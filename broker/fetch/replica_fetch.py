"""Followers' fetches: answered to the log's end, and woken in the turn of a write.

Floor: fetch. `follower_session` judges and remembers; here are the logs, the turns and the time.
What a fetch says of a follower is believed before anything is read for it. A follower learns of
what is written before it is synced here, so that all sync at once; it is not woken for a high
watermark alone.

An answer may still stand in a socket when its log is cut and written anew at the same place, and
would then carry other bytes, with good checksums. So when a leadership ends, the connections of
followers that have not asked again since they were answered from that log are closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from broker.alarm import Alarm
from broker.fetch.replica_answer import Answer, partition_data, refused_data
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
"""After a leadership has begun here its followers are still on their way to it."""

NEWS_WAIT_MS = 20
"""Meanwhile a fetch waits no longer than this: one that was sent before its sender knew of the new
leader would keep it from asking for the new partitions, and them from being committed."""


class _Line:
    """One follower: its connection, its session, and its fetch if that waits."""

    __slots__ = (
        "asked_again",
        "call",
        "deadline_ms",
        "fetches",
        "is_wake_wanted",
        "max_bytes",
        "owed",
        "session",
    )

    def __init__(self, fetches: ReplicaFetches, session: FollowerSession) -> None:
        self.fetches = fetches
        self.session = session
        self.call: Call | None = None
        """Of the newest fetch."""
        self.max_bytes = 0
        self.deadline_ms = 0
        self.is_wake_wanted = False
        self.owed: set[Replica] = set()
        """Whose bytes are in an answer that may not have arrived."""
        self.asked_again: set[PartitionId] = set()
        """What it may not have been able to take. It checks what it is sent; only then is it the
        leader's turn, which looks at no more than what it is about to send."""

    @property
    def is_parked(self) -> bool:
        """Whether a fetch waits."""
        return self.call is not None and self.call.session.parked_fetch is self

    @property
    def is_closed(self) -> bool:
        """Whether its connection is no more."""
        return self.call is None or self.call.session.is_closed

    # The session calls these.

    def hasten(self, behind: Iterable[bytes]) -> None:
        """Followers ask one thing after the other: nothing behind a fetch is in a hurry."""

    def make_way(self) -> None:
        """Nothing more is read from its connection until it is answered."""
        self.fetches.make_way(self)

    def forget(self) -> None:
        """Its connection is gone."""
        self.fetches.forget(self)

    def drop(self) -> None:
        """Nobody waits for its answer."""
        self.fetches.forget(self)
        assert self.call is not None
        self.call.answer_nothing()


@dataclass(frozen=True, slots=True)
class ReplicaFetchPorts:
    """What serving followers needs around it."""

    world: World
    replicas: Replicas
    warnings: Warnings
    lived_ms: Callable[[], int]
    """The time by which followers are late."""
    heard: Callable[[Replica], None]
    """A follower has come further: it may be time to propose it (`isr_driver`)."""


class ReplicaFetches:
    """All followers' fetches at this broker. To be put among `Replicas.listeners`."""

    def __init__(self, ports: ReplicaFetchPorts) -> None:
        self._ports = ports
        self._clock = ports.world.clock
        self._lines: dict[int, _Line] = {}
        """By the follower's node id."""
        self._alarm = Alarm(ports.world, self._on_time)
        self._news_until_ms = 0

    def start(self, call: Call, request: FetchRequest) -> FetchResponse | None:
        """The answer, or None when the fetch waits."""
        asking = request.replica_state
        if asking is None or asking.replica_id < 0:
            # Consumers come in by the clients' listeners.
            return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        fetcher = FollowerIdentity(asking.replica_id, asking.replica_epoch)
        line = self._line(fetcher, call, request)
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
        # Who asks again has read all that he was answered.
        line.owed.clear()
        line.max_bytes = request.max_bytes
        answer = Answer(line.session.session_id)
        for partition, asked in named:
            refused = self._hear(line, partition, asked, fetcher)
            if refused is not None:
                line.session.put_out(partition)
                answer.add(partition.topic_id, refused)
        self._collect(line, answer)
        if not answer.is_empty or request.max_wait_ms <= 0:
            return self._leave(line, answer)
        now_ms = self._clock.monotonic_ms()
        wait_ms = request.max_wait_ms
        if now_ms < self._news_until_ms:
            wait_ms = min(wait_ms, NEWS_WAIT_MS)
        line.deadline_ms = now_ms + wait_ms
        self._park(line)
        return None

    def _line(self, fetcher: FollowerIdentity, call: Call, request: FetchRequest) -> _Line | None:
        """The follower's line; None where it goes on with a session of another connection."""
        known = self._lines.get(fetcher.node_id)
        if request.session_epoch == FULL_EPOCH:
            session_id = self._ports.world.chance.randrange(1, SESSION_IDS_END)
            line = self._lines[fetcher.node_id] = _Line(self, FollowerSession(session_id))
            if known is not None and known.is_parked:
                # Of a connection that its follower has given up.
                self._answer(known, Answer(known.session.session_id))
            return line
        if known is None or known.call is None or known.call.session is not call.session:
            return None
        return known

    def _hear(
        self, line: _Line, partition: PartitionId, asked: FetchPartition, fetcher: FollowerIdentity
    ) -> PartitionData | None:
        """An error or a divergence to answer; None where the fetch is good, and is believed."""
        replica = self._ports.replicas.by_id(partition)
        if replica is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return partition_data(partition.partition_index, None, code)
        try:
            log = leader_log(replica, asked)
        except (DiskError, CorruptionError, WireError) as error:
            return self._unreadable(replica, error)
        heard = check_fetch(replica.state, log, asked, fetcher, self._ports.lived_ms())
        if heard.is_refusal:
            return refused_data(replica, heard)
        self._ports.replicas.counting.take_over(replica)
        self._ports.heard(replica)
        if heard.is_again:
            line.asked_again.add(partition)
        else:
            line.asked_again.discard(partition)
        return None

    def _collect(self, line: _Line, answer: Answer) -> None:
        """Everything that there is to tell, as far as there is room."""
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
        self, line: _Line, partition: PartitionId, replica: Replica | None, taken_bytes: int
    ) -> PartitionData | None:
        """What there is of one partition; None where there is nothing, or no room for its next
        batch, which keeps its mark."""
        index = partition.partition_index
        if replica is None:
            return partition_data(index, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        asked = line.session.partitions[partition]
        code = replica.state.refusal(asked.current_leader_epoch)
        if code is not ErrorCode.NONE:
            return partition_data(index, replica, code)
        log = replica.log
        max_bytes = min(asked.partition_max_bytes, line.max_bytes - taken_bytes)
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
        data = partition_data(index, replica, ErrorCode.NONE)
        data.records = found.region
        return data

    def _unreadable(self, replica: Replica, error: Exception) -> PartitionData:
        warnings, partition = self._ports.warnings, replica.topic_partition
        warnings.warn(logger, "follower's fetch failed", partition=partition, error=error)
        self._ports.replicas.read_failed(replica, error)
        return partition_data(replica.index, replica, ErrorCode.KAFKA_STORAGE_ERROR)

    # Waiting and leaving.

    def _park(self, line: _Line) -> None:
        assert line.call is not None
        line.call.session.parked_fetch = line
        line.session.park()
        self._alarm.wake_by(line.deadline_ms)

    def _leave(self, line: _Line, answer: Answer) -> FetchResponse:
        """Whatever leaves tells of high watermarks and starts besides."""
        for partition in line.session.also():
            replica = self._ports.replicas.by_id(partition)
            if replica is not None and replica.is_led:
                data = partition_data(partition.partition_index, replica, ErrorCode.NONE)
                answer.add(partition.topic_id, data)
            line.session.served(partition)
        return answer.response

    def _answer(self, line: _Line, answer: Answer) -> None:
        assert line.call is not None
        line.session.is_parked = False
        line.call.session.parked_fetch = None
        line.call.answer(self._leave(line, answer))

    def _wake_soon(self, line: _Line) -> None:
        """Once for all that this turn writes."""
        if not line.is_wake_wanted:
            line.is_wake_wanted = True
            self._ports.world.soon(self._wake, line)

    def _wake(self, line: _Line) -> None:
        line.is_wake_wanted = False
        if not line.is_parked:
            return
        answer = Answer(line.session.session_id)
        self._collect(line, answer)
        if answer.is_empty:
            line.session.park()
        else:
            self._answer(line, answer)

    def _on_time(self, now_ms: int) -> int | None:
        """Answer those whose time is up."""
        for line in list(self._lines.values()):
            if line.is_parked and line.deadline_ms <= now_ms:
                self._answer(line, Answer(line.session.session_id))
        waiting = [line.deadline_ms for line in self._lines.values() if line.is_parked]
        return min(waiting, default=None)

    def forget(self, line: _Line) -> None:
        """Its connection is gone, and its session with it."""
        for node_id, known in list(self._lines.items()):
            if known is line:
                del self._lines[node_id]

    def make_way(self, line: _Line) -> None:
        """Its time is up."""
        line.deadline_ms = self._clock.monotonic_ms()
        self._alarm.wake_by(line.deadline_ms)

    def complete_all(self) -> None:
        """The broker stops: answer every fetch that waits."""
        for line in list(self._lines.values()):
            if line.is_parked:
                self._answer(line, Answer(line.session.session_id))

    @property
    def parked_count(self) -> int:
        """Fetches of followers that wait for something to tell."""
        return sum(line.is_parked for line in self._lines.values())

    # What replicas tell.

    def _open_lines(self) -> Iterator[_Line]:
        for node_id, line in list(self._lines.items()):
            if line.is_closed:
                del self._lines[node_id]
            else:
                yield line

    def changed(self, replica: Replica, change: RoleChange) -> None:
        """Followers learn that this is the leader, or that it is not any more."""
        if isinstance(change.before, LeaderRole) and not isinstance(change.after, LeaderRole):
            self._hang_up(replica)
        self.written(replica)
        if isinstance(change.after, LeaderRole) and replica.is_shared:
            self._news_until_ms = self._clock.monotonic_ms() + NEWS_MS
            for line in self._open_lines():
                if line.is_parked:
                    line.deadline_ms = min(
                        line.deadline_ms, self._clock.monotonic_ms() + NEWS_WAIT_MS
                    )
                    self._alarm.wake_by(line.deadline_ms)

    def _hang_up(self, replica: Replica) -> None:
        """Let nobody be sent bytes of this log that may be cut before they leave."""
        for line in list(self._lines.values()):
            if replica in line.owed and line.call is not None and not line.is_closed:
                session = line.call.session
                logger.info(
                    "connection of a follower is closed, for it may be sent what is cut",
                    extra=fields(partition=replica.topic_partition, peer=session.peer),
                )
                session.close("a leadership has ended", is_logged=False)

    def gone(self, replica: Replica) -> None:
        """Followers learn that there is no such partition here."""
        self.written(replica)

    def written(self, replica: Replica) -> None:
        """There is something to look at: the fetch of each follower that waits for it is woken."""
        if self._lines:
            for line in self._open_lines():
                if line.session.written(replica.partition_id):
                    self._wake_soon(line)

    def counted(self, replica: Replica) -> None:
        """What counts here followers learn by the high watermark."""

    def damaged(self, replica: Replica) -> None:
        """What can be read is served until others lead."""

    def moved(self, replica: Replica) -> None:
        """The high watermark or the start has moved: the next answer tells of it."""
        for line in self._lines.values():
            line.session.moved(replica.partition_id)
