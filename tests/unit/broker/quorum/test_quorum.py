import pytest

from broker.quorum.election import Unattached
from broker.quorum.events import (
    BeginQuorumEpoch,
    BeginQuorumEpochAnswer,
    EndQuorumEpoch,
    Fetch,
    Request,
    Tick,
)
from broker.quorum.follower import Follower
from broker.quorum.leader import Leader
from broker.quorum.ready import Barrier, FollowsLeader
from broker.quorum.vote_file import ElectionState
from broker.quorum.voters import ReplicaKey
from protocol.errors import ErrorCode
from protocol.types import Uuid
from tests.sim.quorum_world import Mix, World
from tests.unit.broker.quorum.kit import (
    CLUSTER,
    ME,
    THREE,
    TWO,
    ask,
    follower_quorum,
    leader_quorum,
    new_quorum,
    vote,
)

OTHER_DISK = ReplicaKey(ME.node_id, Uuid(int=99))


@pytest.mark.parametrize(
    "request_",
    [
        vote(TWO, 1, cluster="other"),
        BeginQuorumEpoch("other", ME, 2, 1),
        EndQuorumEpoch("other", 2, 1, ()),
        Fetch("other", TWO, 0, 0, -1, 0, 0, 1),
    ],
)
def test_another_cluster_is_refused_and_changes_nothing(request_: Request) -> None:
    quorum = new_quorum()
    ready = ask(quorum, request_)
    assert ready.replies[0].answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert ready.vote is None and quorum.replica.epoch == 0


@pytest.mark.parametrize(
    "request_",
    [
        vote(TWO, 1, voter=THREE),
        vote(TWO, 1, voter=OTHER_DISK),
        BeginQuorumEpoch(CLUSTER, OTHER_DISK, 2, 1),
    ],
)
def test_another_node_or_disk_was_meant(request_: Request) -> None:
    quorum = new_quorum()
    ready = ask(quorum, request_)
    assert ready.replies[0].answer.error is ErrorCode.INVALID_VOTER_KEY
    assert ready.vote is None and quorum.replica.epoch == 0


@pytest.mark.parametrize(
    "request_",
    [
        vote(TWO, 3),
        vote(TWO, 3, is_pre_vote=True),
        BeginQuorumEpoch(CLUSTER, ME, 2, 3),
        EndQuorumEpoch(CLUSTER, 2, 3, (ME,)),
    ],
)
def test_an_older_epoch_is_fenced_and_told_the_newer_one(request_: Request) -> None:
    quorum = new_quorum(election=ElectionState(4))
    ready = ask(quorum, request_)
    answer = ready.replies[0].answer
    assert answer.error is ErrorCode.FENCED_LEADER_EPOCH
    assert (answer.leader_id, answer.leader_epoch) == (-1, 4)


def test_a_new_epoch_leaves_only_when_it_is_stored() -> None:
    quorum = new_quorum()
    ready = ask(quorum, BeginQuorumEpoch(CLUSTER, ME, 2, 6))
    assert ready.vote == ElectionState(6, None, 2)
    assert ready.role == FollowsLeader(2, 6)
    assert ready.replies[0].barrier is Barrier.VOTE
    assert ready.sends[0].barrier is Barrier.SYNC


def test_the_leader_of_a_known_epoch_costs_no_write() -> None:
    quorum = new_quorum(election=ElectionState(6, TWO))
    ready = ask(quorum, BeginQuorumEpoch(CLUSTER, ME, 2, 6))
    assert ready.vote is None and ready.role == FollowsLeader(2, 6)


def test_two_leaders_of_one_epoch_are_not_believed() -> None:
    quorum, _ = follower_quorum()
    answer = ask(quorum, BeginQuorumEpoch(CLUSTER, ME, 3, 1)).replies[0].answer
    assert answer == BeginQuorumEpochAnswer(ErrorCode.INVALID_REQUEST, 2, 1)
    assert quorum.role.leader_id == 2
    leader = leader_quorum()
    assert (
        ask(leader, BeginQuorumEpoch(CLUSTER, ME, 3, 1)).replies[0].answer.error
        is ErrorCode.INVALID_REQUEST
    )
    assert isinstance(leader.role, Leader)


def test_no_peer_makes_a_replica_the_leader() -> None:
    """Voters that still follow a restarted voter can send it a request that names it as the leader.
    This must not make it the leader."""
    quorum = new_quorum(election=ElectionState(5, ME))
    answer = ask(quorum, BeginQuorumEpoch(CLUSTER, ME, 1, 5)).replies[0].answer
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert isinstance(quorum.role, Unattached)


def test_the_end_of_a_newer_epoch_ends_the_older_one_too() -> None:
    quorum, _ = follower_quorum()
    ask(quorum, EndQuorumEpoch(CLUSTER, 3, 4, (TWO, ME)), 10)
    assert isinstance(quorum.role, Unattached) and quorum.replica.epoch == 4
    assert quorum.next_deadline_ms == 10 + 150


def test_the_end_of_an_epoch_by_another_than_its_leader_is_nothing() -> None:
    quorum, _ = follower_quorum()
    ask(quorum, EndQuorumEpoch(CLUSTER, 3, 1, (ME,)), 10)
    assert isinstance(quorum.role, Follower)


def test_a_replica_does_not_fetch_from_itself() -> None:
    quorum = leader_quorum()
    for who in (ME, OTHER_DISK):
        ready = ask(quorum, Fetch(CLUSTER, who, 1, 0, -1, 0, 0, 1))
        assert ready.replies[0].answer.error is ErrorCode.INVALID_REQUEST


def test_a_log_ahead_of_the_vote_file_is_damage() -> None:
    with pytest.raises(ValueError, match="this disk must not vote"):
        new_quorum(epochs=[(4, 0)], end_offset=2, election=ElectionState(3))


def test_nothing_happens_while_no_time_is_lived() -> None:
    """Trap 29: the node's clock does not count the time of a suspended machine, so no timeout
    passes."""
    quorum, _ = follower_quorum()
    for _ in range(100):
        ready = quorum.step(Tick(), 0)
        assert ready.sends == [] and ready.role is None
    assert isinstance(quorum.role, Follower)


@pytest.mark.parametrize("sync_ms", [(150, 400), (600, 900)])
def test_a_leader_is_elected_on_slow_disks(sync_ms: tuple[int, int]) -> None:
    """Each candidate needs more time to store its vote than the next candidate in rank waits."""
    for number in range(10):
        world = World(f"slow disks {number}", 3, 0, Mix())
        for node in world.nodes.values():
            node.sync_ms = sync_ms
        is_led = world.run_until(30_000, lambda world=world: world.check.end_offset > 0)  # type: ignore[misc]
        assert is_led, world.describe()
