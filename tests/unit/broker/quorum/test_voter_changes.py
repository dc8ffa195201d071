"""Changes of the voters by the leader: KIP-853 and its named traps."""

from __future__ import annotations

from typing import Any

from broker.quorum.control_records import Voters as VotersRecord
from broker.quorum.control_records import read_control_batch, voters_of
from broker.quorum.election import Prospective, Resigned, Unattached
from broker.quorum.events import (
    AddVoter,
    ChangeVoters,
    Fetch,
    FetchAnswer,
    Propose,
    RemoveVoter,
    RequestFailed,
    Synced,
    Tick,
    Unwritten,
    UpdateVoter,
    VoterChange,
    VoterChangeResult,
    VoteSaved,
)
from broker.quorum.leader import Leader
from broker.quorum.quorum import Quorum
from broker.quorum.ready import BatchesToRead, HasNoLeader, Ready
from broker.quorum.replica import QuorumTiming
from broker.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode
from protocol.types import Uuid
from tests.unit.broker.quorum.kit import (
    FOUR,
    ME,
    THREE,
    TWO,
    ask,
    batch,
    fetch,
    fetched,
    follower_quorum,
    granted,
    leader_quorum,
    new_quorum,
    vote,
)

TIMING = QuorumTiming()
BEGUN = 3
"""The end offset of a leader's first batch in a new quorum."""
ENDPOINT = Endpoint("BROKER", "four.example", 9192)


def change(quorum: Quorum, what: VoterChange, now_ms: int = 0, **options: Any) -> Ready:
    return quorum.step(ChangeVoters(5, what, 1_000, **options), now_ms)


def result(ready: Ready) -> VoterChangeResult:
    (found,) = ready.changes
    assert found.change_id == 5
    return found


def ids(quorum: Quorum) -> list[int]:
    return [key.node_id for key in quorum.replica.voters.latest]


def end_of(quorum: Quorum) -> int:
    return quorum.replica.log.end_offset


def sync(quorum: Quorum, now_ms: int = 0) -> Ready:
    return quorum.step(Synced(end_of(quorum)), now_ms)


def follow(quorum: Quorum, *keys: ReplicaKey, now_ms: int = 0) -> Ready:
    """Let these replicas fetch from the leader's log end, so that they have all records. Return the
    leader's last result."""
    ready = None
    for number, key in enumerate(keys):
        ready = ask(
            quorum, fetch(quorum, key, end_of(quorum), quorum.replica.epoch), now_ms, 90 + number
        )
    assert ready is not None
    return ready


def three_with_observer() -> Quorum:
    """Return leader 1 with the voters 1 to 3 and observer 4. All replicas have all records, and all
    records are committed."""
    quorum = leader_quorum()
    follow(quorum, TWO, THREE, FOUR)
    assert quorum.replica.log.committed_offset == BEGUN
    return quorum


def lone_leader() -> Quorum:
    """Return leader 1, which is the only voter, with observer 2."""
    quorum = new_quorum(voters=VoterSet([Voter(ME)]))
    ready = quorum.step(Tick(), 0)
    assert ready.vote is not None
    quorum.step(VoteSaved(ready.vote), 0)
    sync(quorum)
    follow(quorum, TWO)
    return quorum


def served(ready: Ready, call_id: int) -> int | None:
    """Return the end offset of the batches in the answer to a Fetch, or None if it has no
    batches."""
    (reply,) = [one for one in ready.replies if one.call_id == call_id]
    assert isinstance(reply.answer, FetchAnswer)
    assert reply.read is None or isinstance(reply.read, BatchesToRead)
    return reply.read.end_offset if reply.read else None


def test_an_observer_that_has_caught_up_becomes_a_voter() -> None:
    quorum = three_with_observer()
    ready = change(quorum, AddVoter(Voter(FOUR, (ENDPOINT,))))
    assert ready.changes == [] and ids(quorum) == [1, 2, 3, 4], "valid as soon as it is appended"
    ((_, record),) = read_control_batch(ready.append[0])
    assert isinstance(record, VotersRecord)
    (four,) = [one for one in voters_of(record).voters if one.key == FOUR]
    assert four.endpoints == (ENDPOINT,)
    sync(quorum)
    assert follow(quorum, TWO).committed_offset == BEGUN, "two of four are no majority"
    assert result(follow(quorum, FOUR)).error is ErrorCode.NONE
    assert quorum.replica.log.committed_offset == BEGUN + 1


def test_a_change_can_be_answered_before_it_is_committed() -> None:
    """KIP-1186: with AckWhenCommitted false, the answer waits only for the leader's sync."""
    quorum = three_with_observer()
    assert change(quorum, AddVoter(Voter(FOUR)), waits_for_commit=False).changes == []
    assert result(sync(quorum)).error is ErrorCode.NONE
    assert quorum.replica.log.committed_offset == BEGUN
    assert follow(quorum, TWO, FOUR).changes == []


def test_a_removed_voter_counts_no_more() -> None:
    quorum = three_with_observer()
    change(quorum, RemoveVoter(THREE))
    assert ids(quorum) == [1, 2]
    sync(quorum)
    assert follow(quorum, THREE).committed_offset == BEGUN
    assert result(follow(quorum, TWO)).error is ErrorCode.NONE


def test_the_record_names_the_present_addresses() -> None:
    quorum = three_with_observer()
    old, new = Endpoint("BROKER", "two", 1), Endpoint("BROKER", "two.example", 2)
    change(quorum, AddVoter(Voter(FOUR, (ENDPOINT,))), addresses={TWO: (old,)})
    sync(quorum)
    follow(quorum, TWO, THREE, FOUR)
    change(quorum, RemoveVoter(THREE), addresses={TWO: (new,), THREE: (old,)})
    voters = quorum.replica.voters.latest.voters
    assert [one.endpoints for one in voters] == [(), (new,), (ENDPOINT,)]


def test_an_update_changes_the_addresses_of_one_voter() -> None:
    """UpdateRaftVoter. Its own address wins over a registration that is older."""
    quorum = three_with_observer()
    old, new = Endpoint("BROKER", "two", 1), Endpoint("BROKER", "two.example", 2)
    change(quorum, AddVoter(Voter(FOUR, (ENDPOINT,))), addresses={TWO: (old,)})
    sync(quorum)
    follow(quorum, TWO, THREE, FOUR)
    ready = change(quorum, UpdateVoter(Voter(TWO, (new,))), waits_for_commit=False)
    assert len(ready.append) == 1 and ready.changes == []
    assert result(sync(quorum)).error is ErrorCode.NONE, "it does not wait for the commit"
    voters = quorum.replica.voters.latest.voters
    assert [one.endpoints for one in voters] == [(), (new,), (), (ENDPOINT,)]
    again = change(quorum, UpdateVoter(Voter(THREE, (new,))))
    assert result(again).error is ErrorCode.REQUEST_TIMED_OUT, "one change at a time"


def test_an_update_that_changes_nothing_writes_nothing() -> None:
    quorum = three_with_observer()
    ready = change(quorum, UpdateVoter(Voter(TWO)))
    assert result(ready).error is ErrorCode.NONE
    assert ready.append == []


def test_an_update_needs_no_majority_that_has_caught_up() -> None:
    quorum = three_with_observer()
    later_ms = TIMING.caught_up_ms + 1
    assert len(change(quorum, UpdateVoter(Voter(TWO, (ENDPOINT,))), later_ms).append) == 1
    assert ids(quorum) == [1, 2, 3]


def test_only_a_voter_with_its_disk_is_updated() -> None:
    other_disk = ReplicaKey(TWO.node_id, Uuid(int=99))
    for key in (FOUR, other_disk):
        ready = change(three_with_observer(), UpdateVoter(Voter(key, (ENDPOINT,))))
        assert result(ready).error is ErrorCode.VOTER_NOT_FOUND
        assert ready.append == []
    refused = change(three_with_observer(), UpdateVoter(Voter(TWO, (ENDPOINT,), 0, 0)))
    assert result(refused).error is ErrorCode.INVALID_REQUEST


def test_traps_22_one_change_at_a_time() -> None:
    """canonical/raft#386, braft#182: a change is refused until the change before it is
    committed."""
    quorum = three_with_observer()
    change(quorum, AddVoter(Voter(FOUR)))
    refused = change(quorum, RemoveVoter(THREE))
    assert result(refused).error is ErrorCode.REQUEST_TIMED_OUT
    assert "not committed" in result(refused).reason
    assert refused.append == []
    assert ids(quorum) == [1, 2, 3, 4]
    sync(quorum)
    follow(quorum, TWO, THREE, FOUR)
    assert len(change(quorum, RemoveVoter(THREE)).append) == 1


def test_no_change_before_a_record_of_the_own_epoch_is_committed() -> None:
    """braft#182: an uncommitted change of an earlier epoch could still be committed by another
    leader."""
    quorum = leader_quorum()
    ask(quorum, fetch(quorum, TWO, 0, -1, wait_ms=0), call_id=1)
    refused = change(quorum, RemoveVoter(THREE))
    assert result(refused).error is ErrorCode.REQUEST_TIMED_OUT
    assert "its epoch" in result(refused).reason
    follow(quorum, TWO, THREE)
    assert len(change(quorum, RemoveVoter(THREE)).append) == 1


def test_a_voters_record_is_served_only_when_it_is_durable_at_the_leader() -> None:
    """If a lone leader served the record earlier, it could lose the record in a power cut. Then it
    would elect itself without the new voter."""
    quorum = lone_leader()
    ask(quorum, fetch(quorum, TWO, BEGUN, 1, known=BEGUN), call_id=6)
    assert change(quorum, AddVoter(Voter(TWO))).replies == [], "the parked Fetch keeps waiting"
    at_end = ask(quorum, fetch(quorum, TWO, BEGUN, 1, known=BEGUN), call_id=7)
    assert [one.call_id for one in at_end.replies] == [6], "its new Fetch waits as well"
    assert served(at_end, 6) is None
    assert served(sync(quorum), 7) == BEGUN + 1


def test_records_before_a_voters_record_are_served_at_once() -> None:
    quorum = lone_leader()
    quorum.step(Propose(1, [batch()]), 0)
    change(quorum, AddVoter(Voter(TWO)))
    ready = ask(quorum, fetch(quorum, TWO, 0, -1), call_id=7)
    assert served(ready, 7) == BEGUN + 1


def test_an_observer_that_lags_does_not_become_a_voter() -> None:
    for now_ms, who in ((TIMING.caught_up_ms + 1, FOUR), (0, ReplicaKey(5, Uuid(int=5)))):
        quorum = three_with_observer()
        follow(quorum, TWO, THREE, now_ms=now_ms)
        refused = change(quorum, AddVoter(Voter(who)), now_ms)
        assert result(refused).error is ErrorCode.REQUEST_TIMED_OUT
        assert "caught up" in result(refused).reason
        assert refused.append == []


def test_kafka_18775_a_voter_is_named_by_its_disk() -> None:
    quorum = three_with_observer()
    other_disk = ReplicaKey(TWO.node_id, Uuid(int=99))
    follow(quorum, other_disk)
    assert result(change(quorum, RemoveVoter(other_disk))).error is ErrorCode.VOTER_NOT_FOUND
    added = result(change(quorum, AddVoter(Voter(other_disk))))
    assert added.error is ErrorCode.DUPLICATE_VOTER
    assert result(change(quorum, RemoveVoter(FOUR))).error is ErrorCode.VOTER_NOT_FOUND
    assert ids(quorum) == [1, 2, 3]


def test_the_only_voter_stays() -> None:
    quorum = lone_leader()
    refused = result(change(quorum, RemoveVoter(ME)))
    assert refused.error is ErrorCode.INVALID_REQUEST and "only voter" in refused.reason


def test_a_voter_supports_the_quorums_version() -> None:
    refused = result(change(three_with_observer(), AddVoter(Voter(FOUR, (), 0, 0))))
    assert refused.error is ErrorCode.INVALID_REQUEST and "kraft.version" in refused.reason


def test_the_new_voters_have_a_majority_that_has_caught_up() -> None:
    quorum = leader_quorum()
    follow(quorum, TWO)
    refused = result(change(quorum, RemoveVoter(TWO)))
    assert refused.error is ErrorCode.REQUEST_TIMED_OUT and "nodes 3 have not" in refused.reason


def test_who_does_not_lead_changes_nothing() -> None:
    quorum, _ = follower_quorum()
    refused = change(quorum, RemoveVoter(THREE))
    assert result(refused).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_change_that_waits_too_long_stays_in_the_log() -> None:
    quorum = three_with_observer()
    change(quorum, AddVoter(Voter(FOUR)))
    assert quorum.next_deadline_ms <= 1_000
    late = quorum.step(Tick(), 1_000)
    assert result(late).error is ErrorCode.REQUEST_TIMED_OUT
    assert ids(quorum) == [1, 2, 3, 4]
    sync(quorum, 1_000)
    assert follow(quorum, TWO, FOUR, now_ms=1_000).committed_offset == BEGUN + 1


def test_a_change_on_a_full_disk_is_undone() -> None:
    quorum = three_with_observer()
    change(quorum, AddVoter(Voter(FOUR)))
    undone = quorum.step(Unwritten(BEGUN), 0)
    assert result(undone).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert ids(quorum) == [1, 2, 3]
    ask(quorum, fetch(quorum, TWO, BEGUN, 1, known=BEGUN), call_id=6)
    again = quorum.step(Propose(1, [batch()]), 0)
    assert served(again, 6) == BEGUN + 1, "the new record at this offset names no voters"


def test_a_leader_that_is_deposed_does_not_know_the_outcome() -> None:
    quorum = three_with_observer()
    change(quorum, AddVoter(Voter(FOUR)))
    ready = ask(quorum, vote(TWO, 2, last_epoch=2, end_offset=9))
    assert result(ready).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_kafka_17608_a_leader_removes_itself_and_resigns_when_that_is_committed() -> None:
    quorum = three_with_observer()
    change(quorum, RemoveVoter(ME))
    sync(quorum)
    assert follow(quorum, TWO).committed_offset == BEGUN, "its own disk does not count"
    assert isinstance(quorum.role, Leader)
    ready = follow(quorum, THREE)
    assert result(ready).error is ErrorCode.NONE
    assert ready.committed_offset == BEGUN + 1
    assert isinstance(quorum.role, Resigned) and isinstance(ready.role, HasNoLeader)
    told = {reply.answer.high_watermark for reply in ready.replies if reply.read is None}  # type: ignore[union-attr]
    assert BEGUN + 1 in told, "who waits learns that the change is committed"
    quorum.step(Tick(), TIMING.election_timeout_ms)
    assert isinstance(quorum.role, Unattached)
    asking = quorum.step(Tick(), 5_000)
    assert all(isinstance(send.request, Fetch) for send in asking.sends), "it starts no election"


def test_a_removed_leader_is_elected_while_its_removal_is_open() -> None:
    """Only the removed leader's log has the removal. Voter 2 has a shorter log and cannot get the
    vote that it needs, so the removed leader must lead."""
    two = VoterSet([Voter(ME), Voter(TWO)])
    quorum = new_quorum(voters=two, epochs=[(1, 0)], end_offset=4)
    quorum.replica.voters.append(3, VoterSet([Voter(TWO)]))
    assert not quorum.replica.is_voter
    asking = quorum.step(Tick(), 10_000)
    assert isinstance(quorum.role, Prospective)
    voting = quorum.step(granted(asking.sends[0], 1), 10_000)
    assert voting.vote is not None
    quorum.step(VoteSaved(voting.vote), 10_000)
    assert not isinstance(quorum.role, Leader), "its own vote is none of the new set's"
    quorum.step(granted(voting.sends[0], 2), 10_000)
    assert isinstance(quorum.role, Leader)
    sync(quorum, 10_000)
    follow(quorum, TWO, now_ms=10_000)
    assert isinstance(quorum.role, Resigned)


def test_kafka_16526_who_does_not_know_that_it_votes_votes_when_asked() -> None:
    quorum = new_quorum(FOUR)
    ready = ask(quorum, vote(ME, 1, voter=FOUR))
    assert ready.replies[0].answer.vote_granted  # type: ignore[union-attr]
    empty = new_quorum(FOUR, voters=VoterSet(), bootstrap=[1])
    ready = ask(empty, vote(ME, 1, voter=FOUR))
    assert ready.replies[0].answer.vote_granted  # type: ignore[union-attr]


def test_a_truncation_restores_the_voters() -> None:
    quorum, send = follower_quorum()
    leader = leader_quorum()
    follow(leader, TWO, THREE, FOUR)
    appended = change(leader, AddVoter(Voter(FOUR))).append[0]
    quorum.step(fetched(send, batch(count=BEGUN, epoch=1), appended), 0)
    assert ids(quorum) == [1, 2, 3, 4]
    quorum.replica.truncate_to(BEGUN)
    assert ids(quorum) == [1, 2, 3]


def test_an_observer_asks_the_bootstrap_nodes_beside_the_voters_that_it_knows() -> None:
    quorum = new_quorum(FOUR, bootstrap=[1, 5, 6])
    asked = set()
    for number in range(12):
        ready = quorum.step(Tick(), number * 10_000)
        asked |= {send.node_id for send in ready.sends}
        for send in ready.sends:
            quorum.step(RequestFailed(send.request_id), number * 10_000)
    assert asked == {1, 2, 3, 5, 6}
