import pytest

from broker.quorum.control_records import build_control_batch, voters_record
from broker.quorum.election import Prospective, Unattached
from broker.quorum.events import (
    BeginQuorumEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    LeaderDead,
    QuorumEpochEnd,
    RequestAnswered,
    RequestFailed,
    SnapshotSpoiled,
    SnapshotStored,
    Synced,
    Tick,
    Truncated,
    Unwritten,
)
from broker.quorum.follower import Follower
from broker.quorum.quorum import Quorum
from broker.quorum.ready import Barrier, FollowsLeader, Ready, Send
from broker.quorum.replica import QuorumTiming
from broker.quorum.snapshot import SnapshotId
from broker.quorum.voters import Voter, VoterSet
from protocol.errors import ErrorCode
from tests.unit.broker.quorum.kit import (
    FOUR,
    ME,
    THREE,
    THREE_VOTERS,
    TWO,
    ask,
    batch,
    fetched,
    follower_quorum,
    is_granted,
    new_quorum,
    vote,
)

TIMING = QuorumTiming()
SNAPSHOT = SnapshotId(40, 3)


def answer(quorum: Quorum, send: Send, now_ms: int = 1, **fields: object) -> Ready:
    """Answer the replica's Fetch as its leader. By default the leader is node 2, in the replica's
    epoch."""
    error = fields.pop("error", ErrorCode.NONE)
    leader = fields.pop("leader", 2)
    epoch = fields.pop("epoch", quorum.replica.epoch)
    return quorum.step(
        RequestAnswered(send.request_id, FetchAnswer(error, leader, epoch, **fields)),  # type: ignore[arg-type]
        now_ms,
    )


def piece(quorum: Quorum, send: Send, data: bytes, now_ms: int = 1, **fields: object) -> Ready:
    request = send.request
    assert isinstance(request, FetchSnapshot)
    told = {"size_bytes": 10, "position": request.position, **fields}
    snapshot_id = told.pop("snapshot_id", request.snapshot_id)
    found = FetchSnapshotAnswer(
        ErrorCode.NONE,
        2,
        quorum.replica.epoch,
        snapshot_id,  # type: ignore[arg-type]
        data=data,
        **told,  # type: ignore[arg-type]
    )
    return quorum.step(RequestAnswered(send.request_id, found), now_ms)


def test_it_fetches_at_once_and_names_its_leader() -> None:
    quorum, send = follower_quorum()
    assert send.node_id == 2 and send.barrier is Barrier.SYNC
    assert isinstance(send.request, Fetch)
    assert (send.request.fetch_offset, send.request.last_fetched_epoch) == (0, -1)
    assert quorum.role.leader_id == 2


def test_the_next_fetch_waits_for_the_disk_and_names_what_is_known() -> None:
    quorum, send = follower_quorum()
    ready = quorum.step(fetched(send, batch(epoch=1, count=3), committed=2), 1)
    assert len(ready.append) == 1 and ready.committed_offset == 2
    (following,) = ready.sends
    assert following.barrier is Barrier.SYNC
    assert isinstance(following.request, Fetch)
    assert following.request.fetch_offset == 3
    assert following.request.last_fetched_epoch == 1
    assert following.request.high_watermark == 2


def test_nothing_is_committed_beyond_its_own_log() -> None:
    quorum, send = follower_quorum()
    ready = quorum.step(fetched(send, batch(epoch=1), committed=50), 1)
    assert ready.committed_offset == 1


def test_a_late_answer_is_not_taken() -> None:
    """Equal offsets are not enough. The replica uses only the answer to the request in flight."""
    quorum, late = follower_quorum(epochs=[(1, 0)], end_offset=5)
    quorum.step(RequestFailed(late.request_id), 1)
    (send,) = quorum.step(Tick(), quorum.next_deadline_ms).sends
    ready = answer(quorum, late, 200, diverging=QuorumEpochEnd(1, 0))
    assert ready.truncate_to is None
    ready = answer(quorum, send, 201)
    assert ready.sends


def test_it_truncates_by_epochs_and_never_below_what_is_committed() -> None:
    quorum, send = follower_quorum(epoch=5, epochs=[(1, 0), (3, 4)], end_offset=9)
    ready = answer(quorum, send, diverging=QuorumEpochEnd(2, 6))
    assert ready.truncate_to == 4
    assert ready.sends[0].barrier is Barrier.SYNC
    quorum.step(Truncated(4), 2)
    quorum.replica.log.committed_offset = 4
    with pytest.raises(AssertionError):
        answer(quorum, ready.sends[0], diverging=QuorumEpochEnd(1, 3))


def test_an_answer_that_makes_no_sense_is_asked_for_again() -> None:
    for fields in (
        {"diverging": QuorumEpochEnd(-1, -1)},
        {"diverging": QuorumEpochEnd(1, 9)},
        {"leader": 3},
        {"epoch": 0},
        {"error": ErrorCode.UNKNOWN_LEADER_EPOCH},
    ):
        quorum, send = follower_quorum(epochs=[(1, 0)], end_offset=5)
        ready = answer(quorum, send, 10, **fields)
        assert ready.truncate_to is None and ready.sends == []
        assert quorum.next_deadline_ms == 10 + TIMING.backoff_ms
        assert quorum.step(Tick(), 10 + TIMING.backoff_ms).sends


@pytest.mark.parametrize(
    "wrong",
    [
        batch(offset=1, epoch=1),
        batch(offset=0, epoch=2),
        batch(offset=0, epoch=1)[:-1],
        b"short",
    ],
)
def test_a_batch_that_does_not_follow_is_not_appended(wrong: bytes) -> None:
    quorum, send = follower_quorum()
    ready = quorum.step(fetched(send, wrong), 1)
    assert ready.append == [] and ready.sends == []


def test_batches_before_a_wrong_one_are_kept() -> None:
    quorum, send = follower_quorum()
    ready = quorum.step(fetched(send, batch(epoch=1), batch(offset=5, epoch=1)), 1)
    assert len(ready.append) == 1 and ready.sends == []
    assert quorum.replica.log.end_offset == 1


def test_epochs_rise() -> None:
    quorum, send = follower_quorum(epoch=4, epochs=[(3, 0)], end_offset=1)
    assert quorum.step(fetched(send, batch(offset=1, epoch=2)), 1).append == []


def test_voters_hold_from_the_append_on_and_are_taken_back_by_a_truncation() -> None:
    quorum, send = follower_quorum(epoch=5, epochs=[(1, 0)], end_offset=2)
    two = VoterSet([Voter(ME), Voter(TWO)])
    data = bytes(build_control_batch([voters_record(two)], base_offset=2, epoch=2))
    ready = quorum.step(fetched(send, data), 1)
    assert quorum.replica.voters.latest == two
    answer(quorum, ready.sends[0], 2, diverging=QuorumEpochEnd(1, 2))
    assert quorum.replica.voters.latest == THREE_VOTERS


def test_the_leader_is_lost_after_the_time_out_and_rank_decides_who_tries() -> None:
    for me, leader_id, wait_ms in ((ME, 2, 0), (THREE, 1, TIMING.rank_wait_ms)):
        quorum = new_quorum(me)
        begin = BeginQuorumEpoch("cluster", me, leader_id, 1)
        (send,) = ask(quorum, begin).sends
        quorum.step(fetched(send, leader=leader_id), 100)
        lost_ms = 100 + TIMING.fetch_timeout_ms
        assert quorum.next_deadline_ms == lost_ms
        quorum.step(Tick(), lost_ms)
        assert isinstance(quorum.role, Prospective) == (wait_ms == 0)
        quorum.step(Tick(), lost_ms + wait_ms)
        assert isinstance(quorum.role, Prospective)
        assert quorum.role.leader_id == leader_id


def test_the_leader_itself_says_that_it_leads_no_longer() -> None:
    quorum, send = follower_quorum()
    quorum.step(fetched(send), 1)
    quorum, send = follower_quorum()
    answer(quorum, send, 10, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=-1)
    assert isinstance(quorum.role, Prospective)


def test_a_newer_epoch_in_an_answer_is_followed() -> None:
    quorum, send = follower_quorum()
    ready = answer(quorum, send, 10, error=ErrorCode.FENCED_LEADER_EPOCH, leader=3, epoch=4)
    assert ready.role == FollowsLeader(3, 4)
    assert ready.vote is not None and ready.vote.epoch == 4
    assert ready.sends[0].node_id == 3


def test_an_observer_that_loses_its_leader_asks_around() -> None:
    quorum, send = observer()
    quorum.step(LeaderDead(2, 1), 5)
    assert isinstance(quorum.role, Follower), "verdicts are for voters"
    quorum.step(fetched(send), 10)
    quorum.step(Tick(), 10 + TIMING.fetch_timeout_ms)
    assert isinstance(quorum.role, Unattached)


def observer() -> tuple[Quorum, Send]:
    quorum = new_quorum(FOUR)
    (send,) = quorum.step(Tick(), 0).sends
    ready = answer(quorum, send, error=ErrorCode.FENCED_LEADER_EPOCH, leader=2, epoch=1)
    return quorum, ready.sends[0]


def test_a_snapshot_is_fetched_piece_by_piece_and_nothing_else_until_then() -> None:
    quorum, send = follower_quorum()
    (ask_1,) = answer(quorum, send, snapshot_id=SNAPSHOT).sends
    assert ask_1.request == FetchSnapshot("cluster", ME, 1, SNAPSHOT, 0, TIMING.fetch_bytes)
    ready = piece(quorum, ask_1, b"123456")
    assert ready.piece is not None and ready.piece.position == 0 and ready.snapshot is None
    (ask_2,) = ready.sends
    ready = piece(quorum, ask_2, b"7890", 3)
    assert ready.piece is not None and ready.piece.position == 6
    assert ready.snapshot == SNAPSHOT and ready.sends == []
    assert quorum.replica.log.end_offset == 0, "not before the disk has it"
    # While the disk stores the snapshot, the follower sends no Fetch and starts no election,
    # however long that takes.
    for now_ms in (1_000, 3_000, 60_000):
        assert quorum.step(Tick(), now_ms).sends == []
        assert isinstance(quorum.role, Follower)
    ready = quorum.step(SnapshotStored(SNAPSHOT, THREE_VOTERS), 60_001)
    assert quorum.replica.log.end_offset == 40 and ready.committed_offset == 40
    assert isinstance(ready.sends[0].request, Fetch)
    assert (ready.sends[0].request.fetch_offset, ready.sends[0].request.last_fetched_epoch) == (
        40,
        3,
    )


def test_a_snapshot_that_is_not_whole_is_fetched_again() -> None:
    quorum, send = follower_quorum()
    (ask_1,) = answer(quorum, send, snapshot_id=SNAPSHOT).sends
    piece(quorum, ask_1, b"1234567890")
    quorum.step(SnapshotSpoiled(SNAPSHOT), 10)
    (send,) = quorum.step(Tick(), 10 + TIMING.backoff_ms).sends
    assert isinstance(send.request, Fetch) and send.request.fetch_offset == 0


@pytest.mark.parametrize(
    "fields",
    [{"position": 3}, {"snapshot_id": SnapshotId(41, 3)}, {"size_bytes": 4}, {"data": b""}],
)
def test_a_piece_that_was_not_asked_for_restarts_the_fetch(fields: dict[str, object]) -> None:
    quorum, send = follower_quorum()
    (ask_1,) = answer(quorum, send, snapshot_id=SNAPSHOT).sends
    data = fields.pop("data", b"12345")
    assert isinstance(data, bytes)
    ready = piece(quorum, ask_1, data, 10, **fields)
    assert ready.piece is None and ready.sends == []
    (send,) = quorum.step(Tick(), 10 + TIMING.backoff_ms).sends
    assert isinstance(send.request, Fetch)


def test_a_snapshot_older_than_what_is_committed_here_is_not_fetched() -> None:
    quorum, send = follower_quorum(epochs=[(1, 0)], end_offset=50)
    quorum.replica.log.committed_offset = 45
    assert answer(quorum, send, snapshot_id=SNAPSHOT).sends == []


def test_a_new_leader_changes_nothing_about_a_snapshot_being_stored() -> None:
    quorum, send = follower_quorum()
    (ask_1,) = answer(quorum, send, snapshot_id=SNAPSHOT).sends
    piece(quorum, ask_1, b"1234567890")
    assert is_granted(ask(quorum, vote(TWO, 5, last_epoch=3, end_offset=41), 4))
    assert isinstance(quorum.role, Unattached)
    for now_ms in (5_000, 6_000):
        quorum.step(Tick(), now_ms)
        assert isinstance(quorum.role, Unattached), "it could not win, and does not try"
    quorum.step(SnapshotStored(SNAPSHOT, THREE_VOTERS), 7_000)
    quorum.step(Tick(), 8_000)
    assert isinstance(quorum.role, Prospective)


def test_a_full_disk_is_waited_for() -> None:
    quorum, send = follower_quorum()
    quorum.step(fetched(send, batch(epoch=1), committed=1), 1)
    ready = quorum.step(Unwritten(0), 2)
    assert ready.committed_offset == 0 and ready.sends == []
    assert quorum.next_deadline_ms == 2 + TIMING.full_disk_wait_ms
    (send,) = quorum.step(Tick(), 2 + TIMING.full_disk_wait_ms).sends
    assert isinstance(send.request, Fetch) and send.request.fetch_offset == 0
    quorum.step(Synced(0), 2_000)
