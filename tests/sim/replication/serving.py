"""A leader's responses to its followers' fetches, built as the broker builds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from broker.replication.fetch_session import NO_SESSION
from broker.replication.follower_session import (
    FollowerIdentity,
    FollowerSession,
    LeaderLog,
    check_fetch,
)
from broker.replication.follower_steps import FetchPlan, PartitionId
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchResponse,
    PartitionData,
)
from tests.sim.replication.toylog import pack

if TYPE_CHECKING:
    from tests.sim.replication.broker import Broker

TOPIC_ID = UUID(int=1)
MAX_WAIT_MS = 500
PARTITION_RECORDS_MAX = 3
ANSWER_RECORDS_MAX = 5


@dataclass(frozen=True, slots=True)
class Request:
    """A Fetch in flight, with the fields that identify its sender."""

    source: int
    incarnation: int
    broker_epoch: int
    plan: FetchPlan


@dataclass(eq=False, slots=True)
class ParkedFetch:
    """A Fetch that is parked at its leader."""

    request: Request
    session: FollowerSession


class FollowerSessions:
    """The sessions of all followers at one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.sessions: dict[int, FollowerSession] = {}
        self.parked: dict[int, ParkedFetch] = {}
        self.next_session_id = 1

    def fetch(self, request: Request) -> None:
        source, plan = request.source, request.plan
        self.parked.pop(source, None)
        if plan.session_epoch == 0:
            self.sessions[source] = FollowerSession(self.next_session_id)
            self.next_session_id += 1
        session = self.sessions.get(source)
        if session is None:
            self._answer(request, [], ErrorCode.FETCH_SESSION_ID_NOT_FOUND, NO_SESSION)
            return
        named = [
            (
                asked.key.partition,
                FetchPartition(
                    partition=asked.key.partition_index,
                    current_leader_epoch=asked.key.leader_epoch,
                    fetch_offset=asked.fetch_offset,
                    last_fetched_epoch=asked.last_fetched_epoch,
                    log_start_offset=asked.log_start_offset,
                ),
            )
            for asked in plan.partitions
        ]
        try:
            heard = session.begin(plan.session_id, plan.session_epoch, named, plan.forgotten)
        except ApiError as refusal:
            self._answer(request, [], refusal.code, NO_SESSION)
            return
        refused = []
        for partition, asked in heard:
            found = self._hear(
                partition.partition_index, asked, FollowerIdentity(source, request.broker_epoch)
            )
            if found is not None:
                refused.append(found)
                session.put_out(partition)
        self._serve(ParkedFetch(request, session), refused)

    def _hear(
        self, partition: int, asked: FetchPartition, follower: FollowerIdentity
    ) -> PartitionData | None:
        """Check one partition of a Fetch. Return an error or a divergence, or None if it is
        valid."""
        state, log = self.broker.states.get(partition), self.broker.logs[partition]
        if state is None or partition in self.broker.busy:
            return self._data(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        leader_log = LeaderLog(log.leader_epochs, log.log_start_offset, log.log_end_offset)
        found = check_fetch(state, leader_log, asked, follower, self.broker.lived_ms())
        if not found.is_refusal:
            self.broker.after(partition)
            self.broker.propose(partition)
            return None
        data = self._data(partition, found.code)
        if found.diverging is not None:
            data.diverging_epoch = EpochEndOffset(
                epoch=found.diverging.epoch, end_offset=found.diverging.end_offset
            )
        return data

    def _serve(self, parked: ParkedFetch, refused: list[PartitionData]) -> None:
        """Send a response if there are records or changes. Otherwise park the Fetch."""
        found = refused + self._collect(parked.session)
        if found:
            self._leave(parked, found)
            return
        self.parked[parked.request.source] = parked
        parked.session.park()
        self.broker.later(MAX_WAIT_MS, self._waited, parked)

    def _collect(self, session: FollowerSession) -> list[PartitionData]:
        found = []
        room = ANSWER_RECORDS_MAX
        for partition in session.due():
            asked = session.partitions[partition]
            index = partition.partition_index
            log = self.broker.logs[index]
            code = self.broker.states[index].refusal(asked.current_leader_epoch)
            if code is ErrorCode.NONE and asked.fetch_offset < log.log_start_offset:
                code = ErrorCode.OFFSET_OUT_OF_RANGE
            if code is not ErrorCode.NONE:
                found.append(self._data(index, code))
                session.put_out(partition)
                continue
            if not room:
                break
            entries = log.read(asked.fetch_offset, min(room, PARTITION_RECORDS_MAX))
            if entries:
                room -= len(entries)
                found.append(self._data(index, code, pack(entries)))
                session.served(partition)
            else:
                session.looked(partition)
        return found

    def _data(self, partition: int, code: ErrorCode, records: bytes = b"") -> PartitionData:
        state = self.broker.states.get(partition)
        return PartitionData(
            partition_index=partition,
            error_code=code,
            high_watermark=-1 if state is None else state.high_watermark,
            log_start_offset=self.broker.logs[partition].log_start_offset,
            records=records,
        )

    def _waited(self, parked: ParkedFetch) -> None:
        if self.parked.get(parked.request.source) is parked:
            self._leave(parked, [])

    def _leave(self, parked: ParkedFetch, found: list[PartitionData]) -> None:
        session = parked.session
        for partition in session.also():
            found.append(self._data(partition.partition_index, ErrorCode.NONE))
            session.served(partition)
        self.parked.pop(parked.request.source, None)
        session.is_parked = False
        self._answer(parked.request, found, ErrorCode.NONE, session.session_id)

    def _answer(
        self, request: Request, found: list[PartitionData], code: ErrorCode, session_id: int
    ) -> None:
        answer = FetchResponse(
            error_code=code,
            session_id=session_id,
            responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=found)],
        )
        self.broker.send(
            request.source,
            self.broker.cluster.brokers[request.source].on_answer,
            request.incarnation,
            self.broker.node_id,
            request.plan.request_id,
            answer,
        )

    def wake(self, partition: int) -> None:
        """Mark the partition as changed in each follower's session. The first mark completes the
        parked Fetch after this turn."""
        for source, session in self.sessions.items():
            if session.written(PartitionId(TOPIC_ID, partition)):
                self.broker.later(0, self._woken, self.parked.get(source))

    def moved(self, partition: int) -> None:
        for session in self.sessions.values():
            session.moved(PartitionId(TOPIC_ID, partition))

    def _woken(self, parked: ParkedFetch | None) -> None:
        if parked is not None and self.parked.get(parked.request.source) is parked:
            self._serve(parked, [])
