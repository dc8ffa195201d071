"""Replicas for the quorum's tests: three initial voters, and the steps that lead to a role."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from broker.quorum.election import Candidate
from broker.quorum.events import (
    BeginQuorumEpoch,
    Fetch,
    FetchAnswer,
    Received,
    Request,
    RequestAnswered,
    Synced,
    Tick,
    Vote,
    VoteAnswer,
    VoteSaved,
)
from broker.quorum.leader import Leader
from broker.quorum.log_view import LogView
from broker.quorum.quorum import Quorum
from broker.quorum.ready import Ready, Send
from broker.quorum.snapshot import SnapshotId
from broker.quorum.vote_file import ElectionState
from broker.quorum.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from protocol.errors import ErrorCode
from protocol.types import Uuid
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch

CLUSTER = "cluster"
ME, TWO, THREE, FOUR = (ReplicaKey(number, Uuid(int=number)) for number in (1, 2, 3, 4))
THREE_VOTERS = VoterSet(Voter(key) for key in (ME, TWO, THREE))


def batch(value: bytes = b"v", *, offset: int = 0, epoch: int = -1, count: int = 1) -> bytes:
    records = [NewRecord(None, value, 0)] * count
    return bytes(build_batch(records, base_offset=offset, partition_leader_epoch=epoch))


def new_quorum(
    me: ReplicaKey = ME,
    *,
    voters: VoterSet = THREE_VOTERS,
    election: ElectionState | None = None,
    epochs: Sequence[tuple[int, int]] = (),
    end_offset: int = 0,
    snapshot_id: SnapshotId | None = None,
    start_offset: int = 0,
    bootstrap: Sequence[int] = (),
    must_catch_up: bool = False,
) -> Quorum:
    log = LogView(list(epochs), end_offset, start_offset=start_offset, snapshot_id=snapshot_id)
    return Quorum(
        me,
        CLUSTER,
        election=election or ElectionState(log.last_epoch if log.last_epoch > 0 else 0),
        log=log,
        voters=VoterHistory(voters),
        chance=Random(7),
        now_ms=0,
        bootstrap=bootstrap,
        must_catch_up=must_catch_up,
    )


def leader_quorum(**options: object) -> Quorum:
    """Return replica 1 as the leader of the next epoch at 0 ms. Its first record is durable."""
    quorum = new_quorum(**options)  # type: ignore[arg-type]
    sounding = quorum.step(Tick(), 0)
    asking = quorum.step(granted(sounding.sends[0], quorum.replica.epoch), 0)
    assert isinstance(quorum.role, Candidate) and asking.vote is not None
    quorum.step(VoteSaved(asking.vote), 0)
    quorum.step(granted(asking.sends[0], quorum.replica.epoch), 0)
    assert isinstance(quorum.role, Leader)
    quorum.step(Synced(quorum.replica.log.end_offset), 0)
    return quorum


def follower_quorum(leader_id: int = 2, epoch: int = 1, **options: object) -> tuple[Quorum, Send]:
    """Return replica 1 as a follower at 0 ms, and the Fetch that it has sent."""
    quorum = new_quorum(**options)  # type: ignore[arg-type]
    ready = quorum.step(Received(1, BeginQuorumEpoch(CLUSTER, ME, leader_id, epoch)), 0)
    return quorum, ready.sends[-1]


def granted(send: Send, epoch: int) -> RequestAnswered:
    return RequestAnswered(send.request_id, VoteAnswer(ErrorCode.NONE, -1, epoch, True))


def refused(send: Send, epoch: int) -> RequestAnswered:
    return RequestAnswered(send.request_id, VoteAnswer(ErrorCode.NONE, -1, epoch, False))


def fetch(
    quorum: Quorum,
    who: ReplicaKey,
    offset: int,
    last_epoch: int,
    *,
    known: int = 0,
    wait_ms: int = 500,
    epoch: int | None = None,
) -> Fetch:
    """Return a Fetch that another replica sends, by default in the epoch of `quorum`."""
    epoch = quorum.replica.epoch if epoch is None else epoch
    return Fetch(CLUSTER, who, epoch, offset, last_epoch, known, wait_ms, 1_000)


def fetched(send: Send, *batches: bytes, committed: int = 0, leader: int = 2) -> RequestAnswered:
    """Return the leader's response to a Fetch of this replica."""
    request = send.request
    assert isinstance(request, Fetch)
    answer = FetchAnswer(
        ErrorCode.NONE, leader, request.current_leader_epoch, committed, 0, batches=batches
    )
    return RequestAnswered(send.request_id, answer)


def vote(
    candidate: ReplicaKey,
    epoch: int,
    *,
    last_epoch: int = -1,
    end_offset: int = 0,
    voter: ReplicaKey = ME,
    is_pre_vote: bool = False,
    cluster: str = CLUSTER,
) -> Vote:
    return Vote(cluster, voter, candidate, epoch, last_epoch, end_offset, is_pre_vote)


def ask(quorum: Quorum, request: Request, now_ms: int = 0, call_id: int = 77) -> Ready:
    return quorum.step(Received(call_id, request), now_ms)


def is_granted(ready: Ready) -> bool:
    (reply,) = ready.replies
    assert isinstance(reply.answer, VoteAnswer)
    return reply.answer.vote_granted
