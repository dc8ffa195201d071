import pytest

from broker.quorum.voters import (
    Endpoint,
    ReplicaKey,
    Voter,
    VoterHistory,
    VoterSet,
    reached_by_majority,
)
from protocol.types import Uuid
from tests.unit.broker.quorum.kit import FOUR, ME, THREE, THREE_VOTERS, TWO


def test_a_voter_is_a_node_with_its_directory() -> None:
    assert ME in THREE_VOTERS
    assert ReplicaKey(ME.node_id, Uuid(int=99)) not in THREE_VOTERS
    assert THREE_VOTERS.others(TWO) == [ME, THREE]
    assert [key.node_id for key in VoterSet([Voter(THREE), Voter(ME)])] == [1, 3]


def test_a_node_cannot_vote_twice() -> None:
    with pytest.raises(ValueError, match="is twice in the voter set"):
        VoterSet([Voter(ME), Voter(ReplicaKey(ME.node_id, Uuid(int=99)))])


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(count: int, majority: int) -> None:
    keys = [ReplicaKey(number, Uuid(int=number)) for number in range(count)]
    voters = VoterSet(Voter(key) for key in keys)
    assert voters.majority == majority
    ends = list(range(10, 10 + count))
    reached = reached_by_majority(ends)
    assert sum(end >= reached for end in ends) >= majority
    assert sum(end >= reached + 1 for end in ends) < majority


def test_the_rank_is_among_those_that_are_left() -> None:
    assert [THREE_VOTERS.rank(key, -1) for key in (ME, TWO, THREE)] == [0, 1, 2]
    assert [THREE_VOTERS.rank(key, 1) for key in (TWO, THREE)] == [0, 1]
    assert THREE_VOTERS.rank(FOUR, 1) == 2


def test_sets_hold_from_their_record_on_and_go_with_it() -> None:
    two, one = VoterSet([Voter(ME), Voter(TWO)]), VoterSet([Voter(ME)])
    history = VoterHistory(THREE_VOTERS)
    is_from_snapshot = [history.is_from_snapshot]
    history.append(5, two)
    history.append(8, one)
    is_from_snapshot.append(history.is_from_snapshot)
    assert is_from_snapshot == [True, False]
    assert history.latest == one
    assert [history.at(end) for end in (5, 6, 8, 9)] == [THREE_VOTERS, two, two, one]
    history.truncate_to(8)
    assert history.latest == two
    history.truncate_to(5)
    assert history.latest == THREE_VOTERS
    with pytest.raises(AssertionError):
        VoterHistory(one, 5).append(5, two)


def test_a_prefix_takes_the_sets_along_that_were_replaced_in_it() -> None:
    two = VoterSet([Voter(ME, (Endpoint("BROKER", "a", 1),)), Voter(TWO)])
    history = VoterHistory(THREE_VOTERS)
    history.append(5, two)
    history.truncate_from_start(5)
    assert history.at(5) == THREE_VOTERS
    history.truncate_from_start(6)
    history.truncate_to(0)
    assert history.latest == two
    assert hash(two) != hash(THREE_VOTERS) and repr(two) == "VoterSet(1, 2)"
