"""The core of the metadata quorum: one replica of a Raft log that followers fetch, as in KRaft.

This module is pure. `step` takes an event and the time, and returns the work that follows
(`Ready`). The driver does the work in order and reports the results. The core never waits, reads a
clock or uses a disk. It does not decode batches, except control batches, which can name voters.

The time is the node's lived time. It does not include periods in which the process was stopped.
Otherwise a node that continues after a stop would assume that all others are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from broker.quorum.catch_up import CatchUp
from broker.quorum.election import (
    Candidate,
    Prospective,
    Resigned,
    Unattached,
    is_up_to_date,
)
from broker.quorum.events import (
    Answer,
    BeginQuorumEpoch,
    BeginQuorumEpochAnswer,
    ChangeVoters,
    EndQuorumEpoch,
    EndQuorumEpochAnswer,
    Event,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    LeaderDead,
    Propose,
    Received,
    Request,
    RequestAnswered,
    RequestFailed,
    Resign,
    SnapshotSpoiled,
    SnapshotStored,
    Snapshotted,
    Synced,
    Tick,
    Truncated,
    Unwritten,
    Vote,
    VoteAnswer,
    VoterChangeResult,
    VoteSaved,
    leader_of,
)
from broker.quorum.follower import Follower, install
from broker.quorum.leader import Leader
from broker.quorum.log_view import LogView
from broker.quorum.ready import Barrier, FollowsLeader, HasNoLeader, LeadsEpoch, Ready, Reply
from broker.quorum.replica import MetadataReplica, QuorumTiming
from broker.quorum.roles import (
    Move,
    Role,
    ToCandidate,
    ToFollower,
    ToLeader,
    ToProspective,
    ToResigned,
    ToUnattached,
)
from broker.quorum.vote_file import ElectionState
from broker.quorum.voters import ReplicaKey, VoterHistory
from protocol.errors import ErrorCode
from protocol.types import NO_NODE


class Quorum:
    """One replica of the metadata log.

    It starts with the state on its disk, and never leads an epoch twice.
    """

    def __init__(
        self,
        me: ReplicaKey,
        cluster_id: str,
        *,
        election: ElectionState,
        log: LogView,
        voters: VoterHistory,
        chance: Random,
        now_ms: int,
        timing: QuorumTiming | None = None,
        bootstrap: Sequence[int] = (),
        must_catch_up: bool = False,
    ) -> None:
        """Start with the state that was read from the vote file, the log and the snapshot.

        `bootstrap` names the nodes that an observer without a voter set asks for the leader. With
        `must_catch_up` the disk can be an old copy, so it does not vote before it has caught up.
        Raises ValueError if the log is ahead of the vote file, because then one of them comes from
        another disk.
        """
        if election.epoch < log.last_epoch:
            raise ValueError(
                f"the vote file is in epoch {election.epoch}, but the metadata log is already "
                f"in epoch {log.last_epoch}: the vote file was lost or replaced, so this disk "
                "must not vote"
            )
        self.replica = MetadataReplica(
            me,
            cluster_id,
            election,
            log,
            voters,
            chance,
            timing or QuorumTiming(),
            bootstrap,
            CatchUp() if must_catch_up else None,
        )
        self.role: Role = Unattached(self.replica, self.replica.rank_wait_ms(), now_ms)

    @property
    def next_deadline_ms(self) -> int:
        """The time at which a `Tick` is due if no event comes before."""
        return self.role.deadline_ms

    def step(self, event: Event, now_ms: int) -> Ready:
        """Handle one event, and return the work that follows."""
        self._go(self._handle(event, now_ms), now_ms)
        if isinstance(self.role, Leader) and self.role.is_removed:
            self._go(self.role.resign(), now_ms)
        return self.replica.out.take(self.replica.log.committed_offset)

    def _handle(self, event: Event, now_ms: int) -> Move | None:
        role = self.role
        match event:
            case Received(call_id, request):
                return self._received(call_id, request, now_ms)
            case RequestAnswered(request_id, answer):
                if move := self._heard(*leader_of(answer)):
                    return move
                return role.answered(request_id, answer, now_ms)
            case RequestFailed(request_id):
                return role.failed(request_id, now_ms)
            case Tick():
                return role.tick(now_ms)
            case Propose(epoch, batches):
                if isinstance(role, Leader) and epoch == self.replica.epoch:
                    self.replica.append_own(batches)
                    role.appended()
            case ChangeVoters():
                self._change_voters(event, now_ms)
            case LeaderDead(leader_id, leader_epoch):
                is_ours = (leader_id, leader_epoch) == (role.leader_id, self.replica.epoch)
                if is_ours and isinstance(role, Follower):
                    return role.leader_is_lost(self.replica.rank_wait_ms(leader_id), now_ms)
            case Resign():
                if isinstance(role, Leader):
                    return role.resign()
            case _:
                return self._disk(event, now_ms)
        return None

    def _change_voters(self, request: ChangeVoters, now_ms: int) -> None:
        if isinstance(self.role, Leader):
            self.role.change_voters(request, now_ms)
            return
        result = VoterChangeResult(
            request.change_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead"
        )
        self.replica.out.changes.append(result)

    def _disk(self, event: Event, now_ms: int) -> Move | None:
        """Handle a report about the disk."""
        role, log = self.role, self.replica.log
        match event:
            case VoteSaved(election):
                if isinstance(role, Candidate):
                    return role.vote_saved(election, now_ms)
            case Synced(end_offset):
                if log.synced(end_offset) and isinstance(role, Leader):
                    role.synced()
            case Truncated():
                log.truncated()
            case SnapshotStored():
                assert not isinstance(role, Leader), "a leader lacks what was committed"
                install(self.replica, event)
                if isinstance(role, Follower):
                    return role.stored(event, now_ms)
            case SnapshotSpoiled():
                self.replica.storing = False
                if isinstance(role, Follower):
                    role.spoiled(now_ms)
            case Snapshotted(snapshot_id, log_start_offset):
                log.snapshotted(snapshot_id, log_start_offset)
                self.replica.voters.truncate_from_start(log_start_offset)
            case Unwritten(end_offset):
                return self._unwritten(end_offset, now_ms)
        return None

    def _unwritten(self, end_offset: int, now_ms: int) -> Move | None:
        """Handle a full disk, which has rejected batches of this log.

        The rejected batches were never readable, so no other replica has them from this node.
        """
        role = self.role
        self.replica.log.unwritten(end_offset)
        self.replica.voters.truncate_to(end_offset)
        if isinstance(role, Follower):
            role.disk_is_full(now_ms)
        if isinstance(role, Leader):
            role.unwritten(end_offset)
        # An epoch without its first record cannot commit records.
        if isinstance(role, Leader) and end_offset < role.epoch_end_offset:
            return role.resign()
        return None

    def _received(self, call_id: int, request: Request, now_ms: int) -> Move | None:
        match request:
            case Vote():
                self._vote(call_id, request, now_ms)
            case BeginQuorumEpoch():
                self._begin_epoch(call_id, request, now_ms)
            case EndQuorumEpoch():
                self._end_epoch(call_id, request, now_ms)
            case Fetch():
                error = self._cannot_serve(request)
                if error is ErrorCode.NONE and isinstance(self.role, Leader):
                    self.role.fetch(call_id, request, now_ms)
                else:
                    self._reply(call_id, FetchAnswer(error, *self._leader()))
            case FetchSnapshot():
                error = self._cannot_serve(request)
                if error is ErrorCode.NONE and isinstance(self.role, Leader):
                    self.role.fetch_snapshot(call_id, request, now_ms)
                else:
                    answer = FetchSnapshotAnswer(error, *self._leader(), request.snapshot_id)
                    self._reply(call_id, answer)
        return None

    def _vote(self, call_id: int, request: Vote, now_ms: int) -> None:
        replica = self.replica
        error = replica.misaddressed(request.cluster_id, request.voter)
        if error is ErrorCode.NONE and request.epoch < replica.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        is_granted = False
        if error is ErrorCode.NONE:
            if request.epoch > replica.epoch:
                wait_ms = replica.rank_wait_ms() + replica.timing.rank_wait_ms
                self._go(ToUnattached(request.epoch, wait_ms), now_ms)
            is_granted = self._may_grant(request) and is_up_to_date(request, replica.log)
        if is_granted and not request.is_pre_vote:
            replica.vote_for(request.candidate)
            wait_ms = replica.timing.election_timeout_ms + replica.rank_wait_ms()
            self._go(ToUnattached(request.epoch, wait_ms), now_ms)
        self._reply(call_id, VoteAnswer(error, *self._leader(), is_granted))

    def _may_grant(self, request: Vote) -> bool:
        if self.replica.catch_up is not None:
            return False
        if request.is_pre_vote:
            return self.role.grants_pre_votes
        voted = self.replica.election.voted
        return self.role.leader_id == NO_NODE and voted in (None, request.candidate)

    def _begin_epoch(self, call_id: int, request: BeginQuorumEpoch, now_ms: int) -> None:
        replica = self.replica
        error = replica.misaddressed(request.cluster_id, request.voter)
        if error is ErrorCode.NONE and request.leader_epoch < replica.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        if error is ErrorCode.NONE:
            self._go(self._heard(request.leader_id, request.leader_epoch), now_ms)
            if self.role.leader_id != request.leader_id:
                # There are two leaders in one epoch, or another node uses this node's id.
                error = ErrorCode.INVALID_REQUEST
        self._reply(call_id, BeginQuorumEpochAnswer(error, *self._leader()))

    def _end_epoch(self, call_id: int, request: EndQuorumEpoch, now_ms: int) -> None:
        replica = self.replica
        error = replica.misaddressed(request.cluster_id)
        if error is ErrorCode.NONE and request.leader_epoch < replica.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        if error is ErrorCode.NONE:
            # A voter that is not among the preferred voters lets all of them start an election
            # first.
            keys = [*request.preferred, replica.me]
            wait_ms = keys.index(replica.me) * replica.timing.rank_wait_ms
            if request.leader_epoch > replica.epoch:
                self._go(ToUnattached(request.leader_epoch, wait_ms), now_ms)
            elif isinstance(self.role, Follower) and self.role.leader_id == request.leader_id:
                self._go(self.role.leader_is_lost(wait_ms, now_ms), now_ms)
            elif isinstance(self.role, Unattached) and replica.may_lead:
                self.role.try_after(wait_ms, now_ms)
        self._reply(call_id, EndQuorumEpochAnswer(error, *self._leader()))

    def _cannot_serve(self, request: Fetch | FetchSnapshot) -> ErrorCode:
        """Return the error code for a fetch; NONE if this node serves it.

        The epoch is checked before the role.
        """
        replica = self.replica
        error = replica.misaddressed(request.cluster_id)
        if error is not ErrorCode.NONE:
            return error
        if request.current_leader_epoch < replica.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.current_leader_epoch > replica.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(self.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if request.replica.node_id == replica.me.node_id:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _heard(self, leader_id: int, epoch: int) -> Move | None:
        """Handle the leader that another replica names, or an epoch in which it knows no leader."""
        replica = self.replica
        if epoch < replica.epoch or leader_id == replica.me.node_id:
            return None
        if leader_id != NO_NODE and (epoch > replica.epoch or self.role.leader_id == NO_NODE):
            return ToFollower(leader_id, epoch)
        if epoch > replica.epoch:
            return ToUnattached(epoch, replica.rank_wait_ms())
        return None

    def _leader(self) -> tuple[int, int]:
        return self.role.leader_id, self.replica.epoch

    def _reply(self, call_id: int, answer: Answer) -> None:
        self.replica.out.replies.append(Reply(call_id, answer, Barrier.VOTE))

    def _go(self, move: Move | None, now_ms: int) -> None:
        """Change the role, and continue while the new role asks for another change."""
        while move is not None:
            before = self.role
            self.role = self._made(move, now_ms)
            before.leave(self.role.leader_id)
            has_lost = before.leader_id != NO_NODE and self.role.leader_id == NO_NODE
            if has_lost or isinstance(before, Leader):
                self.replica.out.role = HasNoLeader(self.replica.epoch)
            move = self.role.begin(now_ms)
            self._announce()

    def _made(self, move: Move, now_ms: int) -> Role:
        replica = self.replica
        match move:
            case ToUnattached(epoch, wait_ms):
                replica.adopt(epoch)
                return Unattached(replica, wait_ms, now_ms)
            case ToProspective(leader_id):
                return Prospective(replica, leader_id, now_ms)
            case ToCandidate():
                return Candidate(replica)
            case ToLeader(granted):
                replica.know_leader(replica.me.node_id)
                replica.failed_tries = 0
                return Leader(replica, list(granted), now_ms)
            case ToResigned(preferred):
                return Resigned(replica, preferred, now_ms)
            case ToFollower(leader_id, epoch, follower_wait_ms):
                replica.adopt(epoch)
                replica.know_leader(leader_id)
                return Follower(replica, leader_id, follower_wait_ms, now_ms)

    def _announce(self) -> None:
        role, epoch = self.role, self.replica.epoch
        if isinstance(role, Leader):
            self.replica.out.role = LeadsEpoch(epoch, role.epoch_end_offset)
        elif isinstance(role, Follower):
            self.replica.out.role = FollowsLeader(role.leader_id, epoch)
