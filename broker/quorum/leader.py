"""The leader's role: it tracks which records each voter has, and computes which records are
committed.

This module is pure. Only a fetch acknowledges records: it says that all records below its offset
are durable at the follower. The leader's own log counts up to the offset that its disk has
confirmed. Invariants: `committed_offset` never falls. It rises only after a majority has this
epoch's first record. Before this, a rival with a longer old log could be elected and delete older
records (Raft §5.4.2).
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.quorum.control_records import (
    ControlRecord,
    KRaftVersion,
    build_control_batch,
    leader_change,
    voters_record,
)
from broker.quorum.events import (
    Answer,
    BeginQuorumEpoch,
    ChangeVoters,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    QuorumEpochEnd,
)
from broker.quorum.ready import Barrier, BatchesToRead, PieceToRead, Reply
from broker.quorum.replica import NEVER_MS, MetadataReplica
from broker.quorum.roles import Move, ToResigned
from broker.quorum.snapshot import BOOTSTRAP, SnapshotId
from broker.quorum.voter_changes import VoterChanges
from broker.quorum.voters import KRAFT_VERSION, ReplicaKey, reached_by_majority
from protocol.errors import ErrorCode
from protocol.types import ZERO_UUID

OBSERVERS_MAX = 64
"""The largest number of observers that a leader tracks.

It drops the observer whose last fetch is the oldest.
"""

UNKNOWN_END = -1


@dataclass(slots=True)
class ReplicaProgress:
    """The progress of another replica in this epoch."""

    end_offset: int
    """The end offset of the records that are durable at the replica; -1 before its first fetch in
    this epoch."""
    fetched_ms: int
    caught_up_ms: int | None = None
    """The last time at which the replica had all of this leader's records; None if never in this
    epoch."""
    leader_end_then: int = UNKNOWN_END
    """The end offset of the leader's log at the replica's last fetch."""

    def has_up_to(self, end_offset: int, leader_end: int, now_ms: int) -> None:
        """Set the durable end of this replica's log.

        Under load the leader's log grows between two fetches, so a replica never has all of its
        records. A replica that has now reached the end offset that the leader had at the replica's
        previous fetch counts as caught up at the time of that previous fetch.
        """
        if end_offset >= leader_end:
            self.caught_up_ms = now_ms
        elif end_offset >= self.leader_end_then != UNKNOWN_END:
            self.caught_up_ms = self.fetched_ms
        self.end_offset = end_offset
        self.leader_end_then = leader_end


@dataclass(slots=True)
class ParkedQuorumFetch:
    """A Fetch that waits because there were no new batches."""

    call_id: int
    request: Fetch
    deadline_ms: int


class Leader:
    """The role of a replica that leads one epoch, until it resigns or learns of a newer epoch."""

    grants_pre_votes = False

    def __init__(self, replica: MetadataReplica, granted: list[ReplicaKey], now_ms: int) -> None:
        self._replica = replica
        self.leader_id = replica.me.node_id
        self._granted = granted
        self._begun_ms = now_ms
        self._begin_at_ms = now_ms
        self._parked: dict[ReplicaKey, ParkedQuorumFetch] = {}
        self.progress: dict[ReplicaKey, ReplicaProgress] = {}
        """The progress of all other replicas that have fetched in this epoch, voters and
        observers."""
        self.epoch_end_offset = 0
        """The end offset of the epoch's first batch."""
        self._changes = VoterChanges(replica, self._has_caught_up)

    def begin(self, now_ms: int) -> Move | None:
        """Append the first record of the epoch, and announce the epoch to the voters.

        If only the bootstrap snapshot names the voters, their record is appended too, so that all
        replicas find the voters in the log.
        """
        replica = self._replica
        voters = replica.voters.latest
        records: list[ControlRecord] = [
            leader_change(replica.me.node_id, voters, self._granted),
        ]
        snapshot_id = replica.log.snapshot_id or BOOTSTRAP
        if replica.voters.is_from_snapshot and snapshot_id.end_offset == 0:
            records += [KRaftVersion(kraft_version=KRAFT_VERSION), voters_record(voters)]
        batch = build_control_batch(records, base_offset=0, epoch=replica.epoch)
        replica.append_own([batch])
        self.epoch_end_offset = replica.log.end_offset
        return self.tick(now_ms)

    @property
    def deadline_ms(self) -> int:
        parked_ms = min((one.deadline_ms for one in self._parked.values()), default=NEVER_MS)
        begin_ms = self._begin_at_ms if self._silent_voters(self._begin_at_ms) else NEVER_MS
        return min(parked_ms, begin_ms, self._check_quorum_at_ms(), self._changes.deadline_ms)

    def tick(self, now_ms: int) -> Move | None:
        if now_ms >= self._check_quorum_at_ms():
            return self.resign()
        self._changes.tick(now_ms)
        for key, parked in list(self._parked.items()):
            if now_ms >= parked.deadline_ms:
                del self._parked[key]
                self._reply(parked)
        if now_ms >= self._begin_at_ms:
            self._begin_at_ms = now_ms + self._replica.timing.begin_epoch_interval_ms
            self._make_known(now_ms)
        return None

    def resign(self) -> ToResigned:
        """Resign, and let the voter with the longest log start an election."""
        voters = self._replica.voters.latest.others(self._replica.me)
        ends = {key: self._end_of(key) for key in voters}
        return ToResigned(tuple(sorted(voters, key=lambda key: -ends[key])))

    def appended(self) -> None:
        """Answer waiting fetches, because the log has new batches."""
        self._wake()

    def change_voters(self, request: ChangeVoters, now_ms: int) -> None:
        """Append a change of the voters, or refuse it (`voter_changes`)."""
        if self._changes.change(request, self.epoch_end_offset, now_ms):
            self._wake()

    @property
    def is_removed(self) -> bool:
        """True if the change that removes this node from the voters is committed.

        Until then this node leads, but its own log is not part of a majority.
        """
        return not self._replica.may_lead

    def synced(self) -> None:
        """Advance the committed offset if possible, because more records are durable on this node's
        disk."""
        self._changes.synced()
        self.advance_commit()
        self._wake()

    def unwritten(self, end_offset: int) -> None:
        """Remove the records at the offset and above from the leader's view, because the disk has
        rejected them."""
        self._changes.unwritten(end_offset)

    def advance_commit(self) -> None:
        """Advance the committed offset, because a replica has made more records durable."""
        log = self._replica.log
        reached = self._reached()
        if self._may_commit(reached) and reached > log.committed_offset:
            assert reached <= log.end_offset
            log.committed_offset = reached
            self._changes.committed(reached)
            self._wake()

    def _reached(self) -> int:
        voters = self._replica.voters.latest
        return reached_by_majority([self._end_of(key) for key in voters])

    def _may_commit(self, reached: int) -> bool:
        """Return True if records up to `reached` may be committed.

        The first batch of this epoch must be among them. Only then are older records committed too.
        """
        return reached >= self.epoch_end_offset

    def _end_of(self, key: ReplicaKey) -> int:
        if key == self._replica.me:
            return self._replica.log.durable_end_offset
        progress = self.progress.get(key)
        return progress.end_offset if progress else UNKNOWN_END

    def fetch(self, call_id: int, request: Fetch, now_ms: int) -> None:
        """Record which records a replica has.

        Answer with the batches from the fetch offset on: at once if there are any, else when new
        batches are appended.
        """
        log = self._replica.log
        key = request.replica
        if earlier := self._parked.pop(key, None):
            self._reply(earlier)
        parked = ParkedQuorumFetch(call_id, request, now_ms + request.max_wait_ms)
        verdict = log.compare(request.fetch_offset, request.last_fetched_epoch)
        self._heard(key, request.fetch_offset if verdict is None else None, now_ms)
        if key.directory_id != ZERO_UUID:
            # This replica can have fetched without its directory before (`catch_up`).
            self.progress.pop(ReplicaKey(key.node_id, ZERO_UUID), None)
        if verdict is not None:
            self._refuse(parked, verdict)
            return
        self.advance_commit()
        has_news = request.high_watermark < log.committed_offset
        has_records = request.fetch_offset < self._changes.served_end_offset
        if has_records or has_news or request.max_wait_ms <= 0:
            self._reply(parked)
        else:
            self._parked[key] = parked

    def fetch_snapshot(self, call_id: int, request: FetchSnapshot, now_ms: int) -> None:
        """Answer a replica's request for bytes of a snapshot."""
        self._heard(request.replica, None, now_ms)
        replica = self._replica
        answer = FetchSnapshotAnswer(
            ErrorCode.NONE,
            self.leader_id,
            replica.epoch,
            request.snapshot_id,
            position=request.position,
        )
        read = PieceToRead(request.snapshot_id, request.position, request.max_bytes)
        replica.out.replies.append(Reply(call_id, answer, Barrier.NOW, read))

    def answered(self, request_id: int, answer: Answer, now_ms: int) -> Move | None:
        return None

    def failed(self, request_id: int, now_ms: int) -> Move | None:
        return None

    def leave(self, leader_id: int) -> None:
        """Answer the waiting fetches with an error, because this node is not the leader any
        more."""
        self._changes.leave()
        epoch = self._replica.epoch
        for parked in self._parked.values():
            answer = FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id, epoch)
            self._replica.out.replies.append(Reply(parked.call_id, answer, Barrier.VOTE))
        self._parked.clear()

    def _heard(self, key: ReplicaKey, end_offset: int | None, now_ms: int) -> None:
        progress = self.progress.get(key)
        if progress is None:
            progress = self.progress[key] = ReplicaProgress(UNKNOWN_END, now_ms)
            self._forget_observers()
        if end_offset is not None:
            progress.has_up_to(end_offset, self._replica.log.end_offset, now_ms)
        progress.fetched_ms = now_ms

    def _forget_observers(self) -> None:
        voters = self._replica.voters.latest
        observers = [key for key in self.progress if key not in voters]
        if len(observers) > OBSERVERS_MAX:
            longest = min(observers, key=lambda key: self.progress[key].fetched_ms)
            del self.progress[longest]
            if parked := self._parked.pop(longest, None):
                self._reply(parked)

    def _check_quorum_at_ms(self) -> int:
        """Return the time at which the newest fetches of a majority become too old; never if this
        node is the only voter."""
        replica = self._replica
        voters = replica.voters.latest
        needed = voters.majority - (1 if replica.is_voter else 0)
        if needed == 0:
            return NEVER_MS
        heard = sorted((self._heard_ms(key) for key in voters.others(replica.me)), reverse=True)
        return heard[needed - 1] + replica.timing.check_quorum_ms

    def _has_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        progress = self.progress.get(key)
        if progress is None or progress.caught_up_ms is None:
            return False
        return now_ms - progress.caught_up_ms <= self._replica.timing.caught_up_ms

    def _heard_ms(self, key: ReplicaKey) -> int:
        progress = self.progress.get(key)
        return progress.fetched_ms if progress else self._begun_ms

    def _silent_voters(self, now_ms: int) -> list[ReplicaKey]:
        """Return the voters that do not fetch, because they possibly do not know that this node
        leads."""
        interval_ms = self._replica.timing.begin_epoch_interval_ms
        allowed_ms = self._replica.timing.fetch_max_wait_ms + interval_ms
        silent = []
        for key in self._replica.voters.latest.others(self._replica.me):
            progress = self.progress.get(key)
            if progress is None or now_ms - progress.fetched_ms > allowed_ms:
                silent.append(key)
        return silent

    def _make_known(self, now_ms: int) -> None:
        replica = self._replica
        for key in self._silent_voters(now_ms):
            request = BeginQuorumEpoch(replica.cluster_id, key, self.leader_id, replica.epoch)
            replica.send(key.node_id, request, Barrier.NOW)

    def _wake(self) -> None:
        committed_offset = self._replica.log.committed_offset
        served_end = self._changes.served_end_offset
        for key, parked in list(self._parked.items()):
            request = parked.request
            has_records = request.fetch_offset < served_end
            if has_records or request.high_watermark < committed_offset:
                del self._parked[key]
                self._reply(parked)

    def _answer(
        self, *, diverging: QuorumEpochEnd | None = None, snapshot_id: SnapshotId | None = None
    ) -> FetchAnswer:
        log = self._replica.log
        return FetchAnswer(
            ErrorCode.NONE,
            self.leader_id,
            self._replica.epoch,
            log.committed_offset,
            log.start_offset,
            diverging,
            snapshot_id,
        )

    def _reply(self, parked: ParkedQuorumFetch) -> None:
        request = parked.request
        read = None
        # The start of the log can have been deleted while the Fetch waited, so check its offset
        # again.
        end_offset = self._changes.served_end_offset
        if self._replica.log.start_offset <= request.fetch_offset < end_offset:
            read = BatchesToRead(request.fetch_offset, end_offset, request.max_bytes)
        reply = Reply(parked.call_id, self._answer(), Barrier.NOW, read)
        self._replica.out.replies.append(reply)

    def _refuse(self, parked: ParkedQuorumFetch, verdict: QuorumEpochEnd | SnapshotId) -> None:
        if isinstance(verdict, SnapshotId):
            answer = self._answer(snapshot_id=verdict)
        else:
            answer = self._answer(diverging=verdict)
        self._replica.out.replies.append(Reply(parked.call_id, answer, Barrier.NOW))
