"""A leader reports the progress of every replica."""

from broker.quorum.events import ChangeVoters, Propose, RemoveVoter, Synced
from broker.quorum.quorum_status import QuorumReplicaStatus, status_of
from tests.unit.broker.quorum.kit import (
    FOUR,
    ME,
    THREE,
    TWO,
    ask,
    batch,
    fetch,
    follower_quorum,
    leader_quorum,
)

BEGUN = 3
"""The end offset of a leader's first batch in a new quorum."""


def test_only_a_leader_has_a_standing_to_tell() -> None:
    follower, _ = follower_quorum()
    assert status_of(follower, 0) is None


def test_who_has_not_fetched_in_this_epoch_is_not_known() -> None:
    quorum = leader_quorum()
    ask(quorum, fetch(quorum, TWO, BEGUN, 1), now_ms=40)
    status = status_of(quorum, 100)
    assert status is not None
    assert (status.leader_id, status.epoch, status.committed_offset) == (1, 1, BEGUN)
    assert status.voters == (
        QuorumReplicaStatus(ME, BEGUN, 0, 0),
        QuorumReplicaStatus(TWO, BEGUN, 60, 60),
        QuorumReplicaStatus(THREE, -1, None, None),
    )
    assert status.end_offset == BEGUN


def test_an_observer_is_told_apart_from_the_voters() -> None:
    quorum = leader_quorum()
    ask(quorum, fetch(quorum, FOUR, 0, -1), now_ms=10)
    status = status_of(quorum, 10)
    assert status is not None
    assert status.observers == (QuorumReplicaStatus(FOUR, 0, 0, None),)
    assert [one.key for one in status.voters] == [ME, TWO, THREE]


def test_who_reaches_what_there_was_at_the_last_fetch_was_caught_up_then() -> None:
    """A follower that reaches the log end of its previous fetch was caught up at that fetch. Under
    load the log end moves between two fetches, so no follower would reach the current one."""
    quorum = leader_quorum()
    ask(quorum, fetch(quorum, TWO, 0, -1), now_ms=10)
    quorum.step(Propose(1, [batch(count=5)]), 15)
    quorum.step(Synced(BEGUN + 5), 15)
    ask(quorum, fetch(quorum, TWO, BEGUN, 1), now_ms=20)
    status = status_of(quorum, 50)
    assert status is not None
    assert status.voters[1] == QuorumReplicaStatus(TWO, BEGUN, 30, 40)
    ask(quorum, fetch(quorum, TWO, BEGUN + 1, 1), now_ms=60)
    ask(quorum, fetch(quorum, TWO, BEGUN + 2, 1), now_ms=70)
    status = status_of(quorum, 80)
    assert status is not None
    assert status.voters[1] == QuorumReplicaStatus(TWO, BEGUN + 2, 10, 70), "it falls behind"


def test_a_leader_that_removes_itself_is_an_observer_until_it_resigns() -> None:
    quorum = leader_quorum()
    for number, key in enumerate((TWO, THREE)):
        ask(quorum, fetch(quorum, key, BEGUN, 1), call_id=number)
    quorum.step(ChangeVoters(1, RemoveVoter(ME), 1_000), 0)
    status = status_of(quorum, 0)
    assert status is not None
    assert [one.key for one in status.voters] == [TWO, THREE]
    assert [one.key for one in status.observers] == [ME]
    assert status.end_offset == BEGUN
