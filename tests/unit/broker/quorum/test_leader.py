import pytest

from broker.quorum.control_records import (
    KRaftVersion,
    LeaderChange,
    Voters,
    read_control_batch,
    voters_of,
)
from broker.quorum.election import Resigned, Unattached
from broker.quorum.events import (
    BeginQuorumEpoch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    Propose,
    Snapshotted,
    Synced,
    Tick,
    Unwritten,
    VoteSaved,
)
from broker.quorum.leader import OBSERVERS_MAX, Leader
from broker.quorum.quorum import Quorum
from broker.quorum.ready import Barrier, BatchesToRead, HasNoLeader, LeadsEpoch, PieceToRead, Ready
from broker.quorum.replica import NEVER_MS, QuorumTiming
from broker.quorum.snapshot import SnapshotId
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode
from protocol.types import Uuid
from protocol.wire.records import check_batch
from tests.unit.broker.quorum.kit import (
    FOUR,
    ME,
    THREE,
    TWO,
    ask,
    batch,
    fetch,
    leader_quorum,
    new_quorum,
    vote,
)

TIMING = QuorumTiming()
BEGUN = 3
"""The end offset of a leader's first batch in a new quorum: leader change, version, voters."""


def fetch_answer(ready: Ready, number: int = 0) -> FetchAnswer:
    answer = ready.replies[number].answer
    assert isinstance(answer, FetchAnswer)
    return answer


def propose(quorum: Quorum, count: int = 1, now_ms: int = 0) -> Ready:
    return quorum.step(Propose(quorum.replica.epoch, [batch(count=count)]), now_ms)


def leader_of_one() -> tuple[Quorum, Ready]:
    quorum = new_quorum(voters=VoterSet([Voter(ME)]))
    ready = quorum.step(Tick(), 0)
    assert ready.vote is not None
    return quorum, quorum.step(VoteSaved(ready.vote), 0)


def test_the_first_batch_of_the_first_epoch_says_who_votes() -> None:
    _, ready = leader_of_one()
    ((_, change), (_, version), (_, voters)) = read_control_batch(ready.append[0])
    assert isinstance(change, LeaderChange) and change.leader_id == 1
    assert [name.voter_id for name in change.granting_voters] == [1]
    assert isinstance(version, KRaftVersion) and version.kraft_version == 1
    assert isinstance(voters, Voters) and voters_of(voters) == VoterSet([Voter(ME)])


def test_later_epochs_begin_with_the_leader_change_alone() -> None:
    quorum, _ = leader_of_one()
    later = new_quorum(voters=VoterSet([Voter(ME)]), epochs=[(1, 0)], end_offset=3)
    later.replica.voters.append(2, quorum.replica.voters.latest)
    ready = later.step(Tick(), 0)
    assert ready.vote is not None
    ready = later.step(VoteSaved(ready.vote), 0)
    assert [type(record) for _, record in read_control_batch(ready.append[0])] == [LeaderChange]
    assert check_batch(ready.append[0]).base_offset == 3


def test_a_single_voter_commits_what_its_disk_has() -> None:
    quorum, ready = leader_of_one()
    assert ready.committed_offset == 0
    assert quorum.step(Synced(BEGUN), 1).committed_offset == BEGUN
    ready = propose(quorum, 5)
    assert check_batch(ready.append[0]).base_offset == BEGUN
    assert check_batch(ready.append[0]).partition_leader_epoch == 1
    assert quorum.step(Synced(BEGUN + 5), 2).committed_offset == BEGUN + 5
    assert quorum.next_deadline_ms == NEVER_MS
    quorum.step(Tick(), 10**9)
    assert isinstance(quorum.role, Leader)


def test_a_majority_commits_and_the_leader_counts_with_its_disk() -> None:
    quorum = leader_quorum()
    propose(quorum)
    ready = ask(quorum, fetch(quorum, TWO, BEGUN + 1, 1))
    assert ready.committed_offset == BEGUN, "the record is not on the leader's disk yet"
    assert quorum.step(Synced(BEGUN + 1), 1).committed_offset == BEGUN + 1


def test_two_followers_are_a_majority_without_the_leaders_disk() -> None:
    quorum = leader_quorum()
    propose(quorum)
    ask(quorum, fetch(quorum, TWO, BEGUN + 1, 1))
    ready = ask(quorum, fetch(quorum, THREE, BEGUN + 1, 1))
    assert ready.committed_offset == BEGUN + 1


def test_older_epochs_are_committed_under_a_record_of_its_own_only() -> None:
    """Raft §5.4.2: a record of an earlier epoch is not committed by a majority that has it. A
    record of the leader's own epoch behind it must be committed."""
    quorum = leader_quorum(epochs=[(1, 0)], end_offset=4)
    assert quorum.replica.epoch == 2
    assert ask(quorum, fetch(quorum, TWO, 4, 1)).committed_offset == 0
    end_offset = quorum.replica.log.end_offset
    assert ask(quorum, fetch(quorum, TWO, end_offset, 2)).committed_offset == end_offset


def test_an_emptied_disk_and_an_observer_count_for_nothing() -> None:
    quorum = leader_quorum()
    other_disk = ReplicaKey(TWO.node_id, Uuid(int=99))
    for who in (other_disk, FOUR):
        assert ask(quorum, fetch(quorum, who, BEGUN, 1)).committed_offset == 0
    assert ask(quorum, fetch(quorum, TWO, BEGUN, 1)).committed_offset == BEGUN


def test_kafka_14145_parked_fetches_leave_when_more_is_committed() -> None:
    quorum = leader_quorum()
    assert ask(quorum, fetch(quorum, TWO, 0, -1), call_id=1).replies[0].call_id == 1
    parked = ask(quorum, fetch(quorum, FOUR, BEGUN, 1), call_id=2)
    assert parked.replies == []
    ready = ask(quorum, fetch(quorum, TWO, BEGUN, 1), call_id=3)
    assert sorted(reply.call_id for reply in ready.replies) == [2, 3]
    assert {fetch_answer(ready, number).high_watermark for number in (0, 1)} == {BEGUN}


def test_parked_fetches_leave_with_a_write_before_its_own_sync() -> None:
    quorum = leader_quorum()
    ask(quorum, fetch(quorum, TWO, BEGUN, 1), call_id=1)
    assert ask(quorum, fetch(quorum, TWO, BEGUN, 1, known=BEGUN), call_id=2).replies == []
    ready = propose(quorum, 2)
    (reply,) = ready.replies
    assert (reply.call_id, reply.barrier) == (2, Barrier.NOW)
    assert reply.read == BatchesToRead(BEGUN, BEGUN + 2, 1_000)


def test_a_fetch_that_finds_nothing_waits_as_long_as_it_may() -> None:
    quorum = leader_quorum()
    ask(quorum, fetch(quorum, TWO, BEGUN, 1), 10)
    waiting = fetch(quorum, TWO, BEGUN, 1, known=BEGUN, wait_ms=300)
    assert ask(quorum, waiting, 20, 5).replies == []
    assert quorum.step(Tick(), 319).replies == []
    assert quorum.next_deadline_ms == 320
    ready = quorum.step(Tick(), 320)
    assert ready.replies[0].call_id == 5 and ready.replies[0].read is None
    at_once = fetch(quorum, TWO, BEGUN, 1, known=BEGUN, wait_ms=0)
    assert len(ask(quorum, at_once, 330).replies) == 1


def test_a_second_fetch_of_one_replica_ends_the_first() -> None:
    quorum = leader_quorum()
    ask(quorum, fetch(quorum, TWO, BEGUN, 1))
    ask(quorum, fetch(quorum, TWO, BEGUN, 1, known=BEGUN), call_id=5)
    ready = ask(quorum, fetch(quorum, TWO, BEGUN, 1, known=BEGUN), call_id=6)
    assert [reply.call_id for reply in ready.replies] == [5]


def test_who_waits_is_told_when_the_leader_is_none_any_more() -> None:
    quorum = leader_quorum()
    ask(quorum, fetch(quorum, TWO, BEGUN, 1))
    ask(quorum, fetch(quorum, TWO, BEGUN, 1, known=BEGUN), call_id=5)
    ready = ask(quorum, BeginQuorumEpoch("cluster", ME, 3, 7), call_id=6)
    answers = {reply.call_id: reply.answer for reply in ready.replies}
    assert answers[5] == FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 7)
    assert len(ready.replies) == 2


def test_trap_14_the_epoch_is_compared_before_the_role() -> None:
    leader, follower = leader_quorum(), new_quorum()
    ask(follower, BeginQuorumEpoch("cluster", ME, 3, 1))
    for quorum in (leader, follower):
        older = ask(quorum, fetch(quorum, TWO, 0, -1, epoch=0))
        assert fetch_answer(older).error is ErrorCode.FENCED_LEADER_EPOCH
        newer = ask(quorum, fetch(quorum, TWO, 0, -1, epoch=2))
        assert fetch_answer(newer).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    same = fetch_answer(ask(follower, fetch(follower, TWO, 0, -1)))
    assert same.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (same.leader_id, same.leader_epoch) == (3, 1)
    assert isinstance(leader.role, Leader), "a fetch in a newer epoch deposes no leader"


def test_a_follower_with_another_history_is_told_where_it_diverges() -> None:
    quorum = leader_quorum(epochs=[(1, 0), (3, 2)], end_offset=6)
    diverging = fetch_answer(ask(quorum, fetch(quorum, TWO, 5, 2))).diverging
    assert diverging is not None and (diverging.epoch, diverging.end_offset) == (1, 2)
    assert isinstance(quorum.role, Leader)
    assert quorum.role.progress[TWO].end_offset == -1, "it holds nothing that is known of"


def test_trap_28_who_needs_what_is_gone_is_given_the_snapshot() -> None:
    quorum = leader_quorum()
    ask(quorum, fetch(quorum, TWO, BEGUN, 1))
    snapshot_id = SnapshotId(BEGUN, 1)
    quorum.step(Snapshotted(snapshot_id, BEGUN), 1)
    assert fetch_answer(ask(quorum, fetch(quorum, THREE, 0, -1))).snapshot_id == snapshot_id
    request = FetchSnapshot("cluster", THREE, 1, snapshot_id, 10, 99)
    (reply,) = ask(quorum, request).replies
    assert reply.read == PieceToRead(snapshot_id, 10, 99)
    assert isinstance(reply.answer, FetchSnapshotAnswer)
    assert reply.answer.error is ErrorCode.NONE
    stale = FetchSnapshot("cluster", THREE, 0, snapshot_id, 10, 99)
    assert ask(quorum, stale).replies[0].answer.error is ErrorCode.FENCED_LEADER_EPOCH


def test_a_prefix_that_goes_while_a_fetch_is_parked_is_not_read() -> None:
    quorum = leader_quorum(epochs=[(1, 0)], end_offset=4)
    end_offset = quorum.replica.log.end_offset
    ask(quorum, fetch(quorum, TWO, end_offset, 2))
    ask(quorum, fetch(quorum, THREE, end_offset, 2, known=end_offset), call_id=5)
    quorum.step(Snapshotted(SnapshotId(end_offset, 2), end_offset), 1)
    ready = propose(quorum)
    assert ready.replies[0].read == BatchesToRead(end_offset, end_offset + 1, 1_000)


def test_check_quorum_counts_from_the_youngest_fetches_of_a_majority() -> None:
    quorum = leader_quorum()
    assert quorum.role.deadline_ms <= TIMING.check_quorum_ms
    ask(quorum, fetch(quorum, TWO, BEGUN, 1), 1_000)
    ask(quorum, fetch(quorum, FOUR, BEGUN, 1), 3_900)
    quorum.step(Tick(), 3_999)
    assert isinstance(quorum.role, Leader), "one of the two others is enough"
    ready = quorum.step(Tick(), 1_000 + TIMING.check_quorum_ms)
    assert isinstance(quorum.role, Resigned)
    assert ready.role == HasNoLeader(1)


def test_trap_29_a_new_leader_gives_everyone_the_full_time() -> None:
    quorum = leader_quorum()
    quorum.step(Tick(), TIMING.check_quorum_ms - 1)
    assert isinstance(quorum.role, Leader)
    quorum.step(Tick(), TIMING.check_quorum_ms)
    assert isinstance(quorum.role, Resigned)


def test_a_snapshot_being_fetched_counts_for_check_quorum() -> None:
    quorum = leader_quorum()
    ask(quorum, FetchSnapshot("cluster", TWO, 1, SnapshotId(1, 1), 0, 9), 2_000)
    quorum.step(Tick(), TIMING.check_quorum_ms)
    assert isinstance(quorum.role, Leader)


def test_it_makes_itself_known_only_to_voters_that_do_not_fetch() -> None:
    quorum = leader_quorum()
    told: list[int] = []
    now_ms = 0
    while now_ms < 2_500:
        ask(quorum, fetch(quorum, TWO, BEGUN, 1, known=BEGUN), now_ms)
        now_ms = min(quorum.next_deadline_ms, now_ms + 400)
        ready = quorum.step(Tick(), now_ms)
        for send in ready.sends:
            assert isinstance(send.request, BeginQuorumEpoch)
            assert send.barrier is Barrier.NOW
            told.append(send.node_id)
    assert set(told) == {3}
    assert len(told) <= 2_500 // TIMING.begin_epoch_interval_ms + 1


def test_the_observer_longest_unheard_of_is_forgotten_first() -> None:
    quorum = leader_quorum()
    keys = [ReplicaKey(100 + number, Uuid(int=number)) for number in range(OBSERVERS_MAX + 1)]
    replies: list[int] = []
    for number, key in enumerate(keys):
        request = fetch(quorum, key, BEGUN, 1, wait_ms=10_000)
        ready = ask(quorum, request, now_ms=number, call_id=number)
        replies += [reply.call_id for reply in ready.replies]
    assert isinstance(quorum.role, Leader)
    assert len(quorum.role.progress) == OBSERVERS_MAX
    assert keys[0] not in quorum.role.progress and keys[-1] in quorum.role.progress
    assert replies == [0], "it is answered, not left waiting"


def test_proposals_of_another_epoch_or_role_are_nothing() -> None:
    quorum = leader_quorum()
    for epoch in (0, 2):
        assert quorum.step(Propose(epoch, [batch()]), 1).append == []
    ask(quorum, vote(TWO, 5, last_epoch=9))
    assert isinstance(quorum.role, Unattached)
    assert quorum.step(Propose(5, [batch()]), 1).append == []


def test_a_full_disk_undoes_records_before_any_reader_sees_them() -> None:
    quorum = leader_quorum()
    ask(quorum, fetch(quorum, TWO, BEGUN, 1))
    propose(quorum, 4)
    ready = quorum.step(Unwritten(BEGUN), 1)
    assert isinstance(quorum.role, Leader) and ready.committed_offset == BEGUN
    assert check_batch(propose(quorum).append[0]).base_offset == BEGUN


def test_a_leader_that_cannot_write_its_first_record_resigns() -> None:
    quorum = leader_quorum(epochs=[(1, 0)], end_offset=4)
    ready = quorum.step(Unwritten(4), 1)
    assert isinstance(quorum.role, Resigned) and isinstance(ready.role, HasNoLeader)
    assert quorum.replica.log.last_epoch == 1


@pytest.mark.parametrize("epochs", [[], [(1, 0)]])
def test_it_says_up_to_where_a_controller_must_have_replayed(
    epochs: list[tuple[int, int]],
) -> None:
    voters = VoterSet([Voter(ME)])
    quorum = new_quorum(voters=voters, epochs=epochs, end_offset=4 if epochs else 0)
    ready = quorum.step(Tick(), 0)
    assert ready.vote is not None
    ready = quorum.step(VoteSaved(ready.vote), 0)
    assert ready.role == LeadsEpoch(quorum.replica.epoch, quorum.replica.log.end_offset)
