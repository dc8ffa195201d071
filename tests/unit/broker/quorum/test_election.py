from itertools import pairwise

import pytest

from broker.quorum.election import Candidate, Prospective, Resigned, Unattached
from broker.quorum.events import (
    EndQuorumEpoch,
    Fetch,
    FetchAnswer,
    LeaderDead,
    RequestAnswered,
    RequestFailed,
    Resign,
    Tick,
    Vote,
    VoteAnswer,
    VoteSaved,
)
from broker.quorum.follower import Follower
from broker.quorum.leader import Leader
from broker.quorum.quorum import Quorum
from broker.quorum.ready import Barrier, LeadsEpoch
from broker.quorum.replica import NEVER_MS, QuorumTiming
from broker.quorum.vote_file import ElectionState
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode
from protocol.types import Uuid
from tests.unit.broker.quorum.kit import (
    FOUR,
    ME,
    THREE,
    THREE_VOTERS,
    TWO,
    ask,
    fetched,
    follower_quorum,
    granted,
    is_granted,
    leader_quorum,
    new_quorum,
    refused,
    vote,
)

TIMING = QuorumTiming()


def candidate() -> tuple[Quorum, ElectionState]:
    quorum = new_quorum()
    ready = quorum.step(Tick(), 0)
    ready = quorum.step(granted(ready.sends[0], 0), 0)
    assert isinstance(quorum.role, Candidate) and ready.vote is not None
    return quorum, ready.vote


def test_a_voter_waits_by_its_rank() -> None:
    waits = [new_quorum(key).next_deadline_ms for key in (ME, TWO, THREE)]
    assert waits == [0, TIMING.rank_wait_ms, 2 * TIMING.rank_wait_ms]


def test_sounding_out_changes_nothing_that_is_stored() -> None:
    quorum = new_quorum()
    ready = quorum.step(Tick(), 0)
    assert isinstance(quorum.role, Prospective)
    assert ready.vote is None and quorum.replica.epoch == 0
    assert [send.node_id for send in ready.sends] == [2, 3]
    for send in ready.sends:
        assert isinstance(send.request, Vote)
        assert send.request.is_pre_vote and send.request.epoch == 0
        assert send.barrier is Barrier.NOW


def test_a_candidate_asks_when_its_vote_and_its_log_are_durable() -> None:
    quorum = new_quorum()
    ready = quorum.step(granted(quorum.step(Tick(), 0).sends[0], 0), 0)
    assert ready.vote == ElectionState(1, ME)
    assert {send.barrier for send in ready.sends} == {Barrier.SYNC}


def test_a_candidates_own_vote_counts_when_it_is_on_the_disk() -> None:
    quorum, saved = candidate()
    sends = quorum.replica.request_count
    for request_id in (sends - 1, sends):
        answer = granted_by(request_id, 1)
        quorum.step(answer, 5)
    assert isinstance(quorum.role, Candidate), "two others are a majority, but it must not lead yet"
    quorum.step(VoteSaved(ElectionState(0)), 6)
    assert isinstance(quorum.role, Candidate)
    ready = quorum.step(VoteSaved(saved), 7)
    assert isinstance(quorum.role, Leader)
    assert ready.role == LeadsEpoch(1, quorum.replica.log.end_offset)


def granted_by(request_id: int, epoch: int) -> RequestAnswered:
    return RequestAnswered(request_id, VoteAnswer(ErrorCode.NONE, -1, epoch, True))


def test_a_vote_of_another_epoch_does_not_elect() -> None:
    """For example, the vote answers a request of an earlier process that used the same request
    id."""
    quorum, saved = candidate()
    quorum.step(VoteSaved(saved), 1)
    last_id = quorum.replica.request_count
    quorum.step(granted_by(last_id, 0), 2)
    assert isinstance(quorum.role, Candidate)
    quorum.step(granted_by(last_id - 1, 1), 3)
    assert isinstance(quorum.role, Leader)


def test_a_candidates_time_begins_when_its_vote_is_durable() -> None:
    """Otherwise no candidate could be elected if its disk is slower than the election timeout."""
    quorum, saved = candidate()
    assert quorum.next_deadline_ms == NEVER_MS
    quorum.step(VoteSaved(saved), 5_000)
    assert quorum.next_deadline_ms == 5_000 + TIMING.election_timeout_ms
    quorum.step(Tick(), 5_000 + TIMING.election_timeout_ms)
    assert isinstance(quorum.role, Unattached)


def test_tries_in_vain_double_the_wait_and_leave_as_much_to_chance() -> None:
    quorum = new_quorum()
    now_ms, waits = 0, []
    for _ in range(9):
        ready = quorum.step(Tick(), now_ms)
        for send in ready.sends:
            quorum.step(refused(send, 0), now_ms)
        assert isinstance(quorum.role, Unattached)
        waits.append(quorum.next_deadline_ms - now_ms)
        now_ms = quorum.next_deadline_ms
    for number, wait_ms in enumerate(waits):
        least = min(TIMING.rank_wait_ms << number, TIMING.retry_wait_max_ms)
        assert least <= wait_ms <= 2 * least
    assert len({late - early for early, late in pairwise(waits)}) > 4, "chance is in it"


def test_a_leader_that_answers_ends_the_doubling() -> None:
    quorum, send = follower_quorum()
    quorum.replica.failed_tries = 5
    quorum.step(fetched(send), 10)
    assert quorum.replica.failed_tries == 0


def test_a_vote_is_given_once_an_epoch_and_again_to_the_same_disk_only() -> None:
    quorum = new_quorum()
    ready = ask(quorum, vote(TWO, 3))
    assert is_granted(ready) and ready.vote == ElectionState(3, TWO)
    assert ready.replies[0].barrier is Barrier.VOTE
    again = ask(quorum, vote(TWO, 3))
    assert is_granted(again) and again.vote is None
    assert not is_granted(ask(quorum, vote(THREE, 3)))
    other_disk = ReplicaKey(TWO.node_id, Uuid(int=99))
    assert not is_granted(ask(quorum, vote(other_disk, 3)))
    assert is_granted(ask(quorum, vote(THREE, 4)))


def test_a_vote_that_the_file_holds_binds_after_a_start() -> None:
    quorum = new_quorum(election=ElectionState(3, TWO))
    assert not is_granted(ask(quorum, vote(THREE, 3)))
    assert is_granted(ask(quorum, vote(TWO, 3)))


@pytest.mark.parametrize(
    ("last_epoch", "end_offset", "is_good"),
    [(2, 5, True), (2, 6, True), (3, 1, True), (2, 4, False), (1, 9, False), (-1, 0, False)],
)
def test_the_candidates_log_must_hold_all_of_ours(
    last_epoch: int, end_offset: int, is_good: bool
) -> None:
    for is_pre_vote in (True, False):
        quorum = new_quorum(epochs=[(1, 0), (2, 3)], end_offset=5)
        request = vote(
            TWO, 4, last_epoch=last_epoch, end_offset=end_offset, is_pre_vote=is_pre_vote
        )
        assert is_granted(ask(quorum, request)) == is_good


def test_a_refused_vote_still_ends_the_older_epoch() -> None:
    quorum = leader_quorum()
    ready = ask(quorum, vote(TWO, 9, last_epoch=0))
    assert not is_granted(ready) and ready.vote == ElectionState(9)
    assert isinstance(quorum.role, Unattached)


def test_a_pre_vote_binds_no_voter() -> None:
    quorum = new_quorum(election=ElectionState(3))
    for who in (TWO, THREE):
        ready = ask(quorum, vote(who, 3, is_pre_vote=True))
        assert is_granted(ready) and ready.vote is None


def test_a_pre_vote_is_refused_while_the_leader_answers_and_given_when_it_is_lost() -> None:
    quorum, send = follower_quorum()
    question = vote(THREE, 1, is_pre_vote=True)
    assert is_granted(ask(quorum, question, 1)), "hearsay of a leader is no reason"
    quorum.step(fetched(send), 2)
    assert not is_granted(ask(quorum, question, 3))
    quorum.step(LeaderDead(3, 1), 4)
    quorum.step(LeaderDead(2, 0), 4)
    assert not is_granted(ask(quorum, question, 4)), "a verdict on another leader or epoch"
    quorum.step(LeaderDead(2, 1), 5)
    assert isinstance(quorum.role, Prospective), "first of those that are left"
    assert is_granted(ask(quorum, question, 5))


def test_a_leader_refuses_pre_votes() -> None:
    quorum = leader_quorum()
    request = vote(TWO, 1, last_epoch=1, end_offset=9, is_pre_vote=True)
    assert not is_granted(ask(quorum, request))


def test_no_vote_in_an_epoch_that_has_a_leader() -> None:
    quorum, _ = follower_quorum()
    assert not is_granted(ask(quorum, vote(THREE, 1)))


def test_a_refusal_leads_back_to_the_leader_that_is_known() -> None:
    quorum, send = follower_quorum()
    quorum.step(fetched(send), 1)
    ready = quorum.step(LeaderDead(2, 1), 2)
    for one in ready.sends:
        quorum.step(refused(one, 1), 3)
    assert isinstance(quorum.role, Follower) and quorum.role.leader_id == 2
    assert quorum.role.grants_pre_votes, "still in doubt until the leader answers"
    assert quorum.next_deadline_ms <= 3 + 2 * TIMING.rank_wait_ms


def test_requests_that_fail_end_the_try_at_once() -> None:
    quorum = new_quorum()
    ready = quorum.step(Tick(), 0)
    quorum.step(RequestFailed(ready.sends[0].request_id), 1)
    assert isinstance(quorum.role, Prospective)
    quorum.step(RequestFailed(ready.sends[1].request_id), 1)
    assert isinstance(quorum.role, Unattached)


def test_answers_to_an_earlier_try_do_not_count() -> None:
    quorum = new_quorum()
    early = quorum.step(Tick(), 0).sends[0]
    now_ms = TIMING.election_timeout_ms
    quorum.step(Tick(), now_ms)
    now_ms = quorum.next_deadline_ms
    quorum.step(Tick(), now_ms)
    assert isinstance(quorum.role, Prospective)
    quorum.step(granted(early, 0), now_ms)
    assert isinstance(quorum.role, Prospective)


def test_who_resigned_tells_the_others_and_tries_last() -> None:
    quorum = leader_quorum()
    ready = quorum.step(Resign(), 10)
    assert isinstance(quorum.role, Resigned)
    requests = [send.request for send in ready.sends]
    assert [
        request.leader_epoch for request in requests if isinstance(request, EndQuorumEpoch)
    ] == [
        1,
        1,
    ]
    assert quorum.next_deadline_ms == 10 + TIMING.election_timeout_ms
    assert quorum.step(Resign(), 11).role is None, "it leads no longer"


def test_the_preferred_try_in_their_order() -> None:
    waits = []
    for preferred in ((ME, THREE), (THREE, ME), (THREE,)):
        quorum, send = follower_quorum()
        quorum.step(fetched(send), 1)
        request = EndQuorumEpoch("cluster", 2, 1, preferred)
        ask(quorum, request, 10)
        waits.append(0 if isinstance(quorum.role, Prospective) else quorum.next_deadline_ms - 10)
    assert waits[0] == 0
    # The replica waits for its rank among the preferred successors. No Fetch is due before that,
    # because one is in flight.
    assert waits[1:] == [TIMING.rank_wait_ms, TIMING.rank_wait_ms]


def test_an_observer_asks_one_voter_after_another_and_never_stands_for_election() -> None:
    quorum = new_quorum(FOUR)
    asked, now_ms = [], 0
    for _ in range(6):
        (send,) = quorum.step(Tick(), now_ms).sends
        assert isinstance(send.request, Fetch)
        asked.append(send.node_id)
        quorum.step(RequestFailed(send.request_id), now_ms)
        now_ms = quorum.next_deadline_ms
        assert isinstance(quorum.role, Unattached)
    assert sorted(set(asked)) == [1, 2, 3]


def test_an_observer_without_voters_asks_its_bootstrap_servers() -> None:
    quorum = new_quorum(FOUR, voters=VoterSet(), bootstrap=(4, 9))
    (send,) = quorum.step(Tick(), 0).sends
    assert send.node_id == 9
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    ready = quorum.step(RequestAnswered(send.request_id, FetchAnswer(error, 9, 3)), 1)
    assert isinstance(quorum.role, Follower)
    assert ready.vote is not None and ready.vote.epoch == 3
    voterless = new_quorum(FOUR, voters=VoterSet())
    assert voterless.step(Tick(), 0).sends == []
    assert voterless.next_deadline_ms == NEVER_MS


def test_one_voter_alone_elects_itself_in_one_chain_of_steps() -> None:
    quorum = new_quorum(voters=VoterSet([Voter(ME)]))
    ready = quorum.step(Tick(), 0)
    assert ready.vote == ElectionState(1, ME) and ready.sends == []
    ready = quorum.step(VoteSaved(ready.vote), 0)
    assert isinstance(ready.role, LeadsEpoch) and len(ready.append) == 1


def test_an_emptied_disk_does_not_vote() -> None:
    """KIP-853: the voter set names a directory that no longer exists, so this replica is not that
    voter."""
    other_disk = ReplicaKey(ME.node_id, Uuid(int=99))
    quorum = new_quorum(other_disk)
    ready = ask(quorum, vote(TWO, 3))
    assert ready.replies[0].answer.error is ErrorCode.INVALID_VOTER_KEY
    assert not is_granted(ready) and ready.vote is None
    assert quorum.replica.epoch == 0
    assert THREE_VOTERS.majority == 2 and not quorum.replica.is_voter
