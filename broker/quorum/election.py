"""The roles of a replica without a leader: waiting, pre-vote, vote, and resigned.

This module is pure. A voter raises its epoch only after a majority has granted it a pre-vote
(KIP-996). So a voter that was disconnected cannot depose a leader when it returns. A vote is valid
only when it is durable. This includes a candidate's own vote.
"""

from __future__ import annotations

from broker.quorum.events import Answer, EndQuorumEpoch, Fetch, Vote, VoteAnswer
from broker.quorum.log_view import LogView
from broker.quorum.ready import Barrier
from broker.quorum.replica import NEVER_MS, MetadataReplica
from broker.quorum.roles import (
    Move,
    ToCandidate,
    ToFollower,
    ToLeader,
    ToProspective,
    ToUnattached,
)
from broker.quorum.vote_file import ElectionState
from broker.quorum.voters import ReplicaKey
from protocol.types import NO_NODE


def is_up_to_date(request: Vote, log: LogView) -> bool:
    """Return True if the candidate's log has every record that this replica can have acknowledged
    (Raft §5.4.1)."""
    theirs = (request.last_epoch, request.last_epoch_end_offset)
    return theirs >= (log.last_epoch, log.end_offset)


def fetch_request(replica: MetadataReplica) -> Fetch:
    """Return a Fetch from the log's end.

    The caller must not send it before all records below are durable.
    """
    log, timing = replica.log, replica.timing
    return Fetch(
        replica.cluster_id,
        replica.fetch_key,
        replica.epoch,
        log.end_offset,
        log.last_epoch,
        log.committed_offset,
        timing.fetch_max_wait_ms,
        timing.fetch_bytes,
    )


class Unattached:
    """The role of a replica that knows no leader.

    A voter waits and then starts an election; an observer asks one node after another for the
    leader.
    """

    leader_id = NO_NODE
    grants_pre_votes = True

    def __init__(self, replica: MetadataReplica, wait_ms: int, now_ms: int) -> None:
        self._replica = replica
        self._due_ms = now_ms + wait_ms
        self._asked: int | None = None

    @property
    def deadline_ms(self) -> int:
        return self._due_ms

    def begin(self, now_ms: int) -> Move | None:
        return self.tick(now_ms)

    def try_after(self, wait_ms: int, now_ms: int) -> None:
        """Start an election after at most `wait_ms`, because the leader has announced that it
        resigns."""
        self._due_ms = min(self._due_ms, now_ms + wait_ms)

    def tick(self, now_ms: int) -> Move | None:
        if now_ms < self._due_ms:
            return None
        replica = self._replica
        if replica.may_lead and not replica.storing:
            return ToProspective(NO_NODE)
        if replica.may_lead or self._asked is not None:
            self._due_ms = now_ms + replica.timing.backoff_ms
            return None
        # All voters that this replica knows can be gone, so it asks the bootstrap nodes too.
        known = [key.node_id for key in replica.voters.latest]
        nodes = list(dict.fromkeys([*known, *replica.bootstrap]))
        nodes = [node_id for node_id in nodes if node_id != replica.me.node_id]
        if not nodes:
            self._due_ms = NEVER_MS
            return None
        node_id = nodes[replica.request_count % len(nodes)]
        self._asked = replica.send(node_id, fetch_request(replica), Barrier.SYNC)
        self._due_ms = NEVER_MS
        return None

    def answered(self, request_id: int, answer: Answer, now_ms: int) -> Move | None:
        # An answer that names a leader has already changed this replica's role. So this answer
        # names no leader and is handled like a failed request.
        return self.failed(request_id, now_ms)

    def failed(self, request_id: int, now_ms: int) -> Move | None:
        if request_id == self._asked:
            self._asked = None
            self._due_ms = now_ms + self._replica.timing.backoff_ms
        return None

    def leave(self, leader_id: int) -> None:
        pass


class Ballot:
    """The votes that a replica requests from all other voters, and their answers."""

    def __init__(self, replica: MetadataReplica, *, is_pre_vote: bool) -> None:
        self._voters = replica.voters.latest
        self._pending: dict[int, ReplicaKey] = {}
        self.granted: list[ReplicaKey] = []
        # A candidate must not lose the log end that it claims, for example because the disk is
        # full. So its log must be durable before it asks for votes.
        barrier = Barrier.NOW if is_pre_vote else Barrier.SYNC
        for voter in self._voters.others(replica.me):
            request = Vote(
                replica.cluster_id,
                voter,
                replica.me,
                replica.epoch,
                replica.log.last_epoch,
                replica.log.end_offset,
                is_pre_vote,
            )
            self._pending[replica.send(voter.node_id, request, barrier)] = voter

    def grant(self, voter: ReplicaKey) -> None:
        """Record that a voter has granted its vote to this replica."""
        if voter in self._voters and voter not in self.granted:
            self.granted.append(voter)

    def note(self, request_id: int, *, is_granted: bool) -> None:
        """Record a voter's answer, or that the voter will not answer."""
        voter = self._pending.pop(request_id, None)
        if voter is not None and is_granted:
            self.grant(voter)

    @property
    def is_won(self) -> bool:
        """True if a majority has voted for this replica."""
        return len(self.granted) >= self._voters.majority

    @property
    def is_lost(self) -> bool:
        """True if even all missing answers together would not make a majority."""
        return len(self.granted) + len(self._pending) < self._voters.majority


class _Asking:
    """A role that has requested votes from the other voters, and waits for their answers up to its
    deadline."""

    grants_pre_votes = True
    deadline_ms: int
    _ballot: Ballot
    _replica: MetadataReplica

    def tick(self, now_ms: int) -> Move | None:
        return self._give_up() if now_ms >= self.deadline_ms else None

    def answered(self, request_id: int, answer: Answer, now_ms: int) -> Move | None:
        # A voter adopts the epoch of a request before it answers. So an answer with an older epoch
        # is for an older request (as in KRaft's `maybeHandleCommonResponse`).
        is_of_epoch = answer.leader_epoch == self._replica.epoch
        granted = isinstance(answer, VoteAnswer) and answer.vote_granted and is_of_epoch
        self._ballot.note(request_id, is_granted=granted)
        return self._outcome()

    def failed(self, request_id: int, now_ms: int) -> Move | None:
        self._ballot.note(request_id, is_granted=False)
        return self._outcome()

    def leave(self, leader_id: int) -> None:
        pass

    def _outcome(self) -> Move | None:
        """Return the move that follows from the answers so far; None if the result is still
        open."""
        raise NotImplementedError

    def _give_up(self) -> Move:
        """Return the move if the election is lost or takes too long."""
        raise NotImplementedError


class Prospective(_Asking):
    """The role of a voter that requests pre-votes.

    The replica keeps its epoch. A voter that grants a pre-vote can still vote for another replica.
    """

    def __init__(self, replica: MetadataReplica, leader_id: int, now_ms: int) -> None:
        self._replica = replica
        self.leader_id = leader_id
        self.deadline_ms = now_ms + replica.timing.election_timeout_ms

    def begin(self, now_ms: int) -> Move | None:
        self._ballot = Ballot(self._replica, is_pre_vote=True)
        self._ballot.grant(self._replica.me)
        return self._outcome()

    def _outcome(self) -> Move | None:
        if self._ballot.is_won:
            return ToCandidate()
        return self._give_up() if self._ballot.is_lost else None

    def _give_up(self) -> Move:
        replica = self._replica
        wait_ms = replica.retry_wait_ms()
        if self.leader_id != NO_NODE:
            return ToFollower(self.leader_id, replica.epoch, wait_ms)
        return ToUnattached(replica.epoch, wait_ms)


class Candidate(_Asking):
    """The role of a voter that has voted for itself in a new epoch, and requests votes.

    The time until its deadline starts when its own vote is durable.
    """

    leader_id = NO_NODE

    def __init__(self, replica: MetadataReplica) -> None:
        self._replica = replica
        self.deadline_ms = NEVER_MS
        self._is_vote_durable = False

    def begin(self, now_ms: int) -> Move | None:
        replica = self._replica
        replica.adopt(replica.epoch + 1)
        replica.vote_for(replica.me)
        self._ballot = Ballot(replica, is_pre_vote=False)
        return None

    def vote_saved(self, election: ElectionState, now_ms: int) -> Move | None:
        """Record that a vote is durable. If this replica voted for itself, add that vote to its
        tally.
        """
        replica = self._replica
        if election.epoch == replica.epoch and election.voted == replica.me:
            self._is_vote_durable = True
            self._ballot.grant(replica.me)
            self.deadline_ms = now_ms + replica.timing.election_timeout_ms
        return self._outcome()

    def _outcome(self) -> Move | None:
        # A candidate that is being removed from the voters votes too, but its own vote is not part
        # of the majority.
        if self._ballot.is_won and self._is_vote_durable:
            return ToLeader(self._ballot.granted)
        is_lost = self._ballot.is_lost and self.deadline_ms != NEVER_MS
        return self._give_up() if is_lost else None

    def _give_up(self) -> Move:
        return ToUnattached(self._replica.epoch, self._replica.retry_wait_ms())


class Resigned:
    """The role of the epoch's former leader.

    It notifies the other voters and lets them start an election first.
    """

    leader_id = NO_NODE
    grants_pre_votes = True

    def __init__(
        self, replica: MetadataReplica, preferred: tuple[ReplicaKey, ...], now_ms: int
    ) -> None:
        self._replica = replica
        self._preferred = preferred
        self.deadline_ms = now_ms + replica.timing.election_timeout_ms

    def begin(self, now_ms: int) -> Move | None:
        replica = self._replica
        me = replica.me
        request = EndQuorumEpoch(replica.cluster_id, me.node_id, replica.epoch, self._preferred)
        for voter in replica.voters.latest.others(me):
            replica.send(voter.node_id, request, Barrier.NOW)
        return None

    def tick(self, now_ms: int) -> Move | None:
        return ToUnattached(self._replica.epoch, 0) if now_ms >= self.deadline_ms else None

    def answered(self, request_id: int, answer: Answer, now_ms: int) -> Move | None:
        return None

    def failed(self, request_id: int, now_ms: int) -> Move | None:
        return None

    def leave(self, leader_id: int) -> None:
        pass
