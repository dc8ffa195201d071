"""Groups after the broker's process was stopped for a while, and with timeouts of zero."""

from broker.coordinators.group_state import GroupState
from broker.coordinators.membership import HEARING_MS, STOPPED_MS_MIN
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.test_groups import stable
from tests.unit.broker.group_scene import Client, Scene


def ring_after_a_stop(scene: Scene, now_ms: int) -> None:
    """Continue after the process was stopped. No deadline was handled in the meantime."""
    scene.now_ms = now_ms
    scene.shard.members.ring(scene.moment)
    scene._perform()


def test_members_outlive_a_broker_that_was_stopped() -> None:
    """When the broker handles its deadlines again, the members' heartbeats are still unread in the
    sockets."""
    client = Client("a")
    scene = stable(client)
    ring_after_a_stop(scene, 60_000)
    assert scene.heartbeat(client) is ErrorCode.NONE
    scene.pass_to(60_000 + HEARING_MS + 1)
    assert scene.group.state is GroupState.STABLE
    assert scene.heartbeat(client) is ErrorCode.NONE


def test_members_that_stay_silent_after_a_stop_are_removed_a_little_later() -> None:
    client = Client("a")
    scene = stable(client)
    ring_after_a_stop(scene, 60_000)
    scene.pass_to(60_000 + HEARING_MS)
    assert scene.group.state is GroupState.EMPTY
    assert scene.heartbeat(client) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_ends_on_time_where_the_broker_was_only_late() -> None:
    client = Client("a", session_ms=10_000)
    scene = stable(client)
    ring_after_a_stop(scene, 10_000 + STOPPED_MS_MIN - 1)
    assert scene.group.state is GroupState.EMPTY


def test_a_rebalance_waits_a_little_longer_after_a_stop() -> None:
    one, other = Client("a", rebalance_ms=20_000), Client("b", rebalance_ms=20_000)
    scene = stable(one, other)
    scene.join(one)
    assert scene.group.state is GroupState.PREPARING_REBALANCE
    ring_after_a_stop(scene, 40_000)
    joined = scene.join(other)
    assert joined.joined.error is ErrorCode.NONE
    assert len(scene.group.roster) == 2


def test_absent_static_members_without_a_rebalance_timeout_keep_no_loop_busy() -> None:
    """A check of the group must not set the next deadline to the current time. Otherwise the loop
    would be busy until the member's session ends."""
    stays = Client("s", instance="i", rebalance_ms=0)
    goes = Client("d", rebalance_ms=0)
    scene = stable(stays, goes)
    scene.leave(goes)
    timers, ring_count = scene.shard.members.timers, 0
    while (deadline_ms := timers.next_deadline_ms) is not None and deadline_ms < 10_000:
        scene.now_ms = max(deadline_ms, scene.now_ms)
        scene.shard.members.ring(scene.moment)
        scene._perform()
        ring_count += 1
        assert ring_count <= 20
    states = [scene.group.state]
    scene.pass_to(12_000)
    states.append(scene.group.state)
    assert states == [GroupState.PREPARING_REBALANCE, GroupState.EMPTY]


def test_a_static_member_that_comes_back_within_a_zero_rebalance_timeout_leads() -> None:
    stays = Client("s", instance="i", rebalance_ms=0)
    goes = Client("d", rebalance_ms=0)
    scene = stable(stays, goes)
    scene.leave(goes)
    scene.pass_to(500)
    joined = scene.join(stays)
    assert joined.joined.error is ErrorCode.NONE
    assert scene.group.roster.leader_id == stays.member_id
