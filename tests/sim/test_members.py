"""Membership of a cluster over a faulty network: registration, heartbeats and fencing."""

import pytest

from broker.cluster.membership import HEARTBEAT_MS, READ_LEASE_MS, STOP_HEARTBEAT_MS
from broker.controller.liveness import SESSION_TIMEOUT_MS
from broker.controller.suspicion import RECONNECT_MS
from broker.real.dialling import SILENCE_MS_MAX
from broker.world import End
from protocol.errors import ErrorCode
from protocol.messages.membership import AlterPartitionRequest, AlterPartitionResponse
from protocol.types import uuid_to_base64
from tests.harness.seed import seeded
from tests.sim.member_nodes import MemberCluster, MemberNode, Stranger

LIVES = 4
MANY_LIVES = 400
FAULTS = 24


def settled(seed: str) -> MemberCluster:
    """Return a cluster with all nodes in service. Its network is never late."""
    cluster = MemberCluster(seed)
    cluster.network.mix.late = 0.0
    cluster.settle()
    return cluster


def test_all_register_and_come_into_service() -> None:
    cluster = MemberCluster("members")
    cluster.settle()
    assert cluster.now_ms < 3_000
    cluster.network.timeline.run_for(30_000)
    assert cluster.in_service() == {1, 2, 3}
    assert [what for node in cluster.members for _, what in node.heard] == ["unfenced"] * 3
    assert all(len(epochs) == 1 for epochs in cluster.epochs.values())


def test_a_killed_broker_is_out_of_service_at_once() -> None:
    cluster = settled("killed")
    dead = cluster.follower()
    dead.kill()
    took_ms = cluster.pass_until(
        lambda: dead.node_id not in cluster.in_service(), 1_000, "it is fenced"
    )
    assert took_ms <= 100
    dead.start()
    cluster.settle()
    assert len(cluster.epochs[dead.node_id]) == 2


def test_a_broker_whose_links_were_lost_is_known_again_at_once() -> None:
    """After its links were lost, a broker must connect to the controller again at once. Otherwise
    the controller would notice its death only by the missing heartbeat."""
    cluster = settled("links lost")
    node, leader = cluster.follower(), cluster.leader()
    cluster.network.timeline.run_for(HEARTBEAT_MS // 4)
    cluster.network.lose_links(node.host, leader.host)
    cluster.network.timeline.run_for(HEARTBEAT_MS // 4)
    node.kill()
    took_ms = cluster.pass_until(
        lambda: node.node_id not in cluster.in_service(), 10_000, "it is fenced"
    )
    assert took_ms <= 100


def test_a_host_without_power_is_out_of_service_when_its_silence_is_noticed() -> None:
    cluster = settled("power")
    dead = cluster.follower()
    dead.cut_power(cluster.chance)
    took_ms = cluster.pass_until(
        lambda: dead.node_id not in cluster.in_service(), 4_000, "it is fenced"
    )
    assert SILENCE_MS_MAX <= took_ms <= SILENCE_MS_MAX + RECONNECT_MS + 600
    dead.start()
    cluster.settle()


def test_a_frozen_broker_keeps_its_place_for_a_session_and_gets_it_back() -> None:
    cluster = settled("frozen")
    frozen = cluster.follower()
    cluster.network.freeze(frozen.host)
    took_ms = cluster.pass_until(
        lambda: frozen.node_id not in cluster.in_service(), 11_000, "it is fenced"
    )
    assert SESSION_TIMEOUT_MS - HEARTBEAT_MS <= took_ms <= SESSION_TIMEOUT_MS + 300
    cluster.network.thaw(frozen.host)
    assert not frozen.membership.may_read
    cluster.settle()
    assert [what for _, what in frozen.heard] == ["unfenced", "fenced", "unfenced"]
    assert len(cluster.epochs[frozen.node_id]) == 1


def test_a_broker_that_is_cut_off_is_fenced_and_comes_back_when_the_cut_is_healed() -> None:
    cluster = settled("cut off")
    lost, leader = cluster.follower(), cluster.leader()
    for way in ((lost.host, leader.host), (leader.host, lost.host)):
        cluster.network.cut(*way)
    took_ms = cluster.pass_until(
        lambda: lost.node_id not in cluster.in_service(), 6_000, "it is fenced"
    )
    # Two waits follow each other: for the silent link and for the probe. The time to reconnect
    # runs in parallel.
    assert SILENCE_MS_MAX <= took_ms <= SILENCE_MS_MAX + RECONNECT_MS + 600
    cluster.network.timeline.run_for(READ_LEASE_MS)
    assert not lost.membership.may_read
    cluster.network.heal()
    cluster.settle()


def test_a_new_controller_fences_only_the_one_that_died() -> None:
    cluster = settled("controller killed")
    for _ in range(2):
        dead = cluster.leader()
        before = {one.node_id: len(one.heard) for one in cluster.members}
        dead.kill()
        took_ms = cluster.pass_until(
            lambda dead=dead: (
                cluster.active() is not None and dead.node_id not in cluster.in_service()
            ),
            1_000,
            "another controller has fenced it",
        )
        assert took_ms <= 700
        cluster.network.timeline.run_for(2 * SESSION_TIMEOUT_MS)
        for node in cluster.members:
            assert node is dead or len(node.heard) == before[node.node_id]
        assert len(cluster.in_service()) == 2
        dead.start()
        cluster.settle()


def test_a_controller_that_was_frozen_fences_no_broker() -> None:
    """When the controller wakes, every session seems to have expired. It must not fence the
    brokers, because it could not receive heartbeats."""
    cluster = settled("controller stalled")
    leader = cluster.leader()
    before = [len(one.heard) for one in cluster.members]
    # Freeze the others as well, because otherwise one of them would lead in the meantime.
    for node in cluster.members:
        if node is not leader:
            cluster.network.freeze(node.host)
    cluster.network.freeze(leader.host)
    cluster.network.timeline.run_for(3 * SESSION_TIMEOUT_MS)
    for node in (leader, *(one for one in cluster.members if one is not leader)):
        cluster.network.thaw(node.host)
    cluster.network.timeline.run_for(SESSION_TIMEOUT_MS + 1_000)
    assert [len(one.heard) for one in cluster.members] == before
    assert cluster.in_service() == {1, 2, 3}


def test_a_deposed_controller_that_wakes_does_not_let_itself_read() -> None:
    """The controller still believes that it leads, and answers its own heartbeats. It must not
    extend its own read lease, because its writes cannot be committed."""
    cluster = settled("deposed")
    old = cluster.leader()
    others = [one for one in cluster.members if one is not old]
    for other in others:
        cluster.network.cut(old.host, other.host)
        cluster.network.cut(other.host, old.host)
    cluster.network.freeze(old.host)

    def successor() -> MemberNode | None:
        return next((one for one in others if one.liveness.is_active), None)

    cluster.pass_until(successor, 5_000, "another controller")
    new = successor()
    assert new is not None and new.metadata is not None and old.metadata is not None
    metadata = new.metadata
    cluster.pass_until(
        lambda: metadata.image.brokers[old.node_id].is_fenced, 12_000, "the old one is fenced"
    )
    cluster.network.timeline.run_for(READ_LEASE_MS)
    cluster.network.thaw(old.host)
    assert old.metadata.controller.is_active
    for _ in range(400):
        assert not old.membership.may_read
        cluster.network.timeline.run_for(10)
    cluster.network.heal()
    known_end = metadata.image.end_offset
    cluster.pass_until(lambda: old.membership.may_read, 6_000, "it may read again")
    assert old.metadata.image.end_offset >= known_end


def test_a_second_process_of_an_id_is_refused_while_the_first_one_lives() -> None:
    cluster = settled("duplicate")
    first = cluster.follower()
    stranger = Stranger(cluster, first.node_id)
    answer = stranger.register()
    assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert first.life is not None and answer.error_message is not None
    assert uuid_to_base64(first.life.incarnation_id) in answer.error_message
    assert cluster.in_service() == {1, 2, 3}
    first.kill()
    cluster.pass_until(lambda: first.node_id not in cluster.in_service(), 1_000, "it is fenced")
    assert stranger.register().error_code == 0


def test_a_process_owns_its_id_from_the_answer_on() -> None:
    """A process owns its id as soon as it gets the response to its registration. Its first
    heartbeat would be too late, because an earlier request of a killed process can still arrive."""
    cluster = settled("given")
    gone = cluster.follower()
    first, second = (Stranger(cluster, gone.node_id, number) for number in range(2))
    gone.kill()
    cluster.pass_until(lambda: gone.node_id not in cluster.in_service(), 1_000, "it is fenced")
    assert first.register().error_code == 0
    assert second.register().error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert first.register().error_code == 0, "it may ask twice"


def test_a_frozen_process_whose_id_was_taken_ends_when_it_wakes() -> None:
    cluster = settled("old incarnation")
    old = cluster.follower()
    cluster.network.freeze(old.host)
    cluster.pass_until(lambda: old.node_id not in cluster.in_service(), 11_000, "it is fenced")
    assert Stranger(cluster, old.node_id).register().error_code == 0
    life = old.life
    assert life is not None
    cluster.network.thaw(old.host)
    cluster.pass_until(lambda: bool(life.refusal), 1_000, "it ends")
    assert "Only one process may run under an id" in life.refusal
    assert old.node_id not in cluster.in_service()


def test_a_broker_that_wants_to_stop_may_when_all_others_know() -> None:
    cluster = settled("stop")
    leaving = cluster.follower()
    leaving.membership.want_stop()
    life = leaving.life
    assert life is not None
    took_ms = cluster.pass_until(lambda: life.may_stop, 3_000, "it may stop")
    assert took_ms <= 2 * STOP_HEARTBEAT_MS + 300
    assert leaving.node_id not in cluster.in_service()


def test_brokers_ask_the_controller_wherever_it_is() -> None:
    cluster = settled("asking")
    for node in cluster.members:
        answers: list[AlterPartitionResponse] = []
        life = node.life
        assert life is not None and life.broker_epoch is not None
        request = AlterPartitionRequest(broker_id=node.node_id, broker_epoch=life.broker_epoch)
        node.membership.ask_controller(request, answers.append, lambda end: None)
        assert answers == []
        cluster.pass_until(lambda answers=answers: bool(answers), 1_000, "an answer")
        assert answers[0].error_code == 0
    for node in cluster.members[:2]:
        node.kill()
    ends: list[End] = []
    last = cluster.members[2]
    cluster.network.timeline.run_for(6_000)
    last.membership.ask_controller(request, lambda answer: None, ends.append)
    cluster.pass_until(lambda: bool(ends), 1_000, "it has failed")
    assert ends in ([End.UNRESOLVED], [End.REFUSED])


def live(seed: str) -> MemberCluster:
    """Perform one run of a cluster. All faults happen at random, and then they end."""
    cluster = MemberCluster(seed)
    cluster.settle()
    chance = cluster.chance
    for _ in range(FAULTS):
        cluster.network.timeline.run_for(chance.choice((30, 300, 3_000, 12_000)))
        cluster.misbehave()
    cluster.mend()
    # Wait for an election, and until ids that dead processes have registered are free again.
    cluster.settle()
    told = [len(one.heard) for one in cluster.members]
    cluster.network.timeline.run_for(SESSION_TIMEOUT_MS + HEARTBEAT_MS)
    assert [len(one.heard) for one in cluster.members] == told, (
        "a broker was fenced without a fault"
    )
    assert cluster.in_service() == {1, 2, 3}
    assert not cluster.refusals, cluster.refusals
    return cluster


def lives(count: int, name: str) -> None:
    chance = seeded(name)
    fenced = incarnations = 0
    for _ in range(count):
        cluster = live(f"{name} {chance.getrandbits(32)}")
        fenced += len(cluster.fenced)
        incarnations += cluster.incarnations
    # The average run has 4.5 fenced brokers and 6.9 processes. Far fewer would prove nothing.
    assert fenced > count
    assert incarnations > 3 * count


def test_whatever_fails_all_come_back_into_service_and_stay_there() -> None:
    lives(LIVES, "member lives")


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_same_many_times() -> None:
    lives(MANY_LIVES, "many member lives")
