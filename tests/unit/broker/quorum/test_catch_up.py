"""A replica whose disk can be an old copy neither votes nor counts before it has caught up."""

from __future__ import annotations

from broker.quorum.election import Candidate, Unattached
from broker.quorum.events import (
    EndQuorumEpoch,
    Fetch,
    FetchAnswer,
    LeaderDead,
    Received,
    RequestAnswered,
    Synced,
    Tick,
)
from broker.quorum.follower import Follower
from broker.quorum.leader import Leader
from broker.quorum.quorum import Quorum
from broker.quorum.ready import Ready, Send
from broker.quorum.voters import ReplicaKey
from protocol.errors import ErrorCode
from protocol.types import ZERO_UUID
from tests.unit.broker.quorum.kit import (
    CLUSTER,
    ME,
    THREE,
    TWO,
    ask,
    batch,
    fetch,
    follower_quorum,
    is_granted,
    leader_quorum,
    new_quorum,
    vote,
)

WITHOUT_DIRECTORY = ReplicaKey(ME.node_id, ZERO_UUID)


def copy() -> tuple[Quorum, Send]:
    """Return a follower of node 2 in epoch 1 whose disk can be an old copy, and its Fetch."""
    return follower_quorum(must_catch_up=True)


def told(quorum: Quorum, send: Send, *batches: bytes, committed: int, epoch: int = 1) -> Ready:
    answer = FetchAnswer(ErrorCode.NONE, 2, epoch, committed, 0, batches=batches)
    return quorum.step(RequestAnswered(send.request_id, answer), 1)


def caught_up() -> Quorum:
    quorum, send = copy()
    (send,) = told(quorum, send, batch(offset=0, epoch=1), committed=0).sends
    quorum.step(Synced(1), 1)
    (send,) = told(quorum, send, committed=1).sends
    assert quorum.replica.catch_up is not None, "the record can be older than this start"
    (send,) = told(quorum, send, batch(offset=1, epoch=1), committed=1).sends
    quorum.step(Synced(2), 1)
    told(quorum, send, committed=2)
    return quorum


def test_it_grants_neither_votes_nor_pre_votes() -> None:
    for is_pre_vote in (True, False):
        quorum = new_quorum(must_catch_up=True)
        request = vote(TWO, 1, last_epoch=9, end_offset=99, is_pre_vote=is_pre_vote)
        assert not is_granted(ask(quorum, request))
        assert quorum.replica.election.voted is None
        assert is_granted(ask(new_quorum(), request))


def test_it_starts_no_election_and_asks_the_others_for_the_leader() -> None:
    quorum = new_quorum(must_catch_up=True)
    (send,) = quorum.step(Tick(), 60_000).sends
    assert isinstance(quorum.role, Unattached)
    assert isinstance(send.request, Fetch)
    leave = EndQuorumEpoch(CLUSTER, 2, 5, (ME, THREE))
    quorum.step(Received(1, leave), 60_001)
    quorum.step(Tick(), 120_000)
    assert isinstance(quorum.role, Unattached)


def test_a_dead_leader_is_not_succeeded_by_it() -> None:
    quorum, _ = copy()
    quorum.step(LeaderDead(2, 1), 1)
    quorum.step(Tick(), 60_000)
    assert isinstance(quorum.role, Unattached | Follower)


def test_it_fetches_as_an_observer_until_it_has_caught_up() -> None:
    _, send = copy()
    assert isinstance(send.request, Fetch)
    assert send.request.replica == WITHOUT_DIRECTORY
    assert caught_up().replica.fetch_key == ME


def test_a_record_that_was_committed_since_the_start_ends_it() -> None:
    quorum = caught_up()
    assert quorum.replica.catch_up is None
    assert quorum.replica.may_lead
    quorum.step(LeaderDead(2, 1), 2)
    assert is_granted(ask(quorum, vote(THREE, 2, last_epoch=1, end_offset=2), 3))


def test_such_a_record_must_be_durable_here() -> None:
    quorum, send = copy()
    (send,) = told(quorum, send, committed=0).sends
    told(quorum, send, batch(offset=0, epoch=1), committed=1)
    assert quorum.replica.catch_up is not None


def test_another_epoch_begins_again() -> None:
    quorum, send = copy()
    told(quorum, send, committed=0)
    begun = ask(quorum, vote(THREE, 2, last_epoch=9, end_offset=9))
    assert not is_granted(begun)
    assert quorum.replica.epoch == 2
    assert quorum.replica.catch_up is not None
    assert not quorum.replica.catch_up.fetched(quorum.replica.log, 2, 1, is_at_end=True)


def test_a_leader_does_not_count_it() -> None:
    quorum = leader_quorum()
    committed, end_offset = quorum.replica.log.committed_offset, quorum.replica.log.end_offset
    three = ReplicaKey(THREE.node_id, ZERO_UUID)
    ask(quorum, fetch(quorum, three, end_offset, quorum.replica.epoch))
    assert quorum.replica.log.committed_offset == committed < end_offset
    ask(quorum, fetch(quorum, THREE, end_offset, quorum.replica.epoch))
    assert quorum.replica.log.committed_offset == end_offset
    assert isinstance(quorum.role, Leader)
    assert list(quorum.role.progress) == [THREE]


def test_a_disk_that_is_believed_becomes_a_candidate() -> None:
    quorum = new_quorum()
    quorum.step(Tick(), 60_000)
    assert not isinstance(quorum.role, Unattached | Candidate), "it asks for pre-votes"
