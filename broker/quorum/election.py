"""The roles of a replica without a leader: waiting, sounding out, asking for votes, handing over.

Floor: quorum. Pure. Nobody raises an epoch before a majority has said that it would vote
(KIP-996), so a voter that was cut off cannot unseat a leader when it returns. A vote counts from
the moment it is durable, a candidate's own too.
"""

from __future__ import annotations

from broker.quorum.events import Answer, EndQuorumEpoch, Fetch, Vote, VoteAnswer
from broker.quorum.log_view import LogView
from broker.quorum.ready import Barrier
from broker.quorum.replica import NEVER_MS, Replica
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
    """Whether the candidate's log holds all that ours may have promised (Raft §5.4.1)."""
    theirs = (request.last_epoch, request.last_epoch_end_offset)
    return theirs >= (log.last_epoch, log.end_offset)


def fetch_request(replica: Replica) -> Fetch:
    """A Fetch from the log's end; it must not leave before all below that is durable."""
    log, timing = replica.log, replica.timing
    return Fetch(
        replica.cluster_id,
        replica.me,
        replica.epoch,
        log.end_offset,
        log.last_epoch,
        log.committed_offset,
        timing.fetch_max_wait_ms,
        timing.fetch_bytes,
    )


class Unattached:
    """No leader is known. A voter waits and then tries; an observer asks one node after another."""

    leader_id = NO_NODE
    grants_pre_votes = True

    def __init__(self, replica: Replica, wait_ms: int, now_ms: int) -> None:
        self._replica = replica
        self._due_ms = now_ms + wait_ms
        self._asked: int | None = None

    @property
    def deadline_ms(self) -> int:
        return self._due_ms

    def begin(self, now_ms: int) -> Move | None:
        return self.tick(now_ms)

    def try_after(self, wait_ms: int, now_ms: int) -> None:
        """The leader has said that it resigns: do not wait any longer than that."""
        self._due_ms = min(self._due_ms, now_ms + wait_ms)

    def tick(self, now_ms: int) -> Move | None:
        if now_ms < self._due_ms:
            return None
        replica = self._replica
        if replica.is_voter and not replica.storing:
            return ToProspective(NO_NODE)
        if replica.is_voter or self._asked is not None:
            self._due_ms = now_ms + replica.timing.backoff_ms
            return None
        nodes = [key.node_id for key in replica.voters.latest] or list(replica.bootstrap)
        nodes = [node_id for node_id in nodes if node_id != replica.me.node_id]
        if not nodes:
            self._due_ms = NEVER_MS
            return None
        node_id = nodes[replica.request_count % len(nodes)]
        self._asked = replica.send(node_id, fetch_request(replica), Barrier.SYNC)
        self._due_ms = NEVER_MS
        return None

    def answered(self, request_id: int, answer: Answer, now_ms: int) -> Move | None:
        # What it says of the leader was heard before it came here.
        return self.failed(request_id, now_ms)

    def failed(self, request_id: int, now_ms: int) -> Move | None:
        if request_id == self._asked:
            self._asked = None
            self._due_ms = now_ms + self._replica.timing.backoff_ms
        return None

    def leave(self, leader_id: int) -> None:
        pass


class Ballot:
    """Votes asked of all other voters, and what has come of each."""

    def __init__(self, replica: Replica, *, is_pre_vote: bool) -> None:
        self._voters = replica.voters.latest
        self._pending: dict[int, ReplicaKey] = {}
        self.granted: list[ReplicaKey] = []
        # What a candidate claims to hold it must not lose again to a full disk.
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
        """A voter is for us."""
        if voter in self._voters and voter not in self.granted:
            self.granted.append(voter)

    def note(self, request_id: int, *, is_granted: bool) -> None:
        """A voter has answered, or will not."""
        voter = self._pending.pop(request_id, None)
        if voter is not None and is_granted:
            self.grant(voter)

    @property
    def is_won(self) -> bool:
        """A majority is for us."""
        return len(self.granted) >= self._voters.majority

    @property
    def is_lost(self) -> bool:
        """With all who have not answered yet it would be no majority."""
        return len(self.granted) + len(self._pending) < self._voters.majority


class _Asking:
    """Has asked the other voters, and waits for what they say, until its time is up."""

    grants_pre_votes = True
    deadline_ms: int
    _ballot: Ballot
    _replica: Replica

    def tick(self, now_ms: int) -> Move | None:
        return self._give_up() if now_ms >= self.deadline_ms else None

    def answered(self, request_id: int, answer: Answer, now_ms: int) -> Move | None:
        # Whoever is asked goes to the asker's epoch first. So what names an older epoch answers an
        # older question (as in KRaft's `maybeHandleCommonResponse`).
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
        """What follows from the votes so far."""
        raise NotImplementedError

    def _give_up(self) -> Move:
        """There will be no majority, or not in time."""
        raise NotImplementedError


class Prospective(_Asking):
    """Asks whether it would be voted for. The epoch stays, and nothing is promised."""

    def __init__(self, replica: Replica, leader_id: int, now_ms: int) -> None:
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
    """Has voted for itself in a new epoch. Its time begins when that vote is durable."""

    leader_id = NO_NODE

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.deadline_ms = NEVER_MS

    def begin(self, now_ms: int) -> Move | None:
        replica = self._replica
        replica.adopt(replica.epoch + 1)
        replica.vote_for(replica.me)
        self._ballot = Ballot(replica, is_pre_vote=False)
        return None

    def vote_saved(self, election: ElectionState, now_ms: int) -> Move | None:
        """A vote is on the disk; ours counts if it is that one."""
        replica = self._replica
        if election.epoch == replica.epoch and election.voted == replica.me:
            self._ballot.grant(replica.me)
            self.deadline_ms = now_ms + replica.timing.election_timeout_ms
        return self._outcome()

    def _outcome(self) -> Move | None:
        if self._ballot.is_won and self._replica.me in self._ballot.granted:
            return ToLeader(self._ballot.granted)
        is_lost = self._ballot.is_lost and self.deadline_ms != NEVER_MS
        return self._give_up() if is_lost else None

    def _give_up(self) -> Move:
        return ToUnattached(self._replica.epoch, self._replica.retry_wait_ms())


class Resigned:
    """Was leader of the epoch. It tells the others, and lets them try first."""

    leader_id = NO_NODE
    grants_pre_votes = True

    def __init__(self, replica: Replica, preferred: tuple[ReplicaKey, ...], now_ms: int) -> None:
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
