"""Groups with members: the code of each refused request, and what members can rely on."""

from typing import Any

import pytest

from broker.coordinators.group_state import GroupState, IllegalGroupMove, check_move
from broker.coordinators.group_terms import JoinAnswer, JoinRequest, SyncRequest
from protocol.errors import ErrorCode
from tests.unit.broker.group_scene import GROUP, Asked, Client, Scene, subscription


def stable(*clients: Client, scene: Scene | None = None) -> Scene:
    """Return a scene with a stable group of these clients. The first client leads, and the
    assignment of each client is its name."""
    scene = scene or Scene()
    for client in clients:
        scene.join(client)
        for other in clients[: clients.index(client)]:
            scene.join(other)
    shares = {client.member_id: client.name.encode() for client in clients}
    for client in clients:
        scene.sync(client, shares)
    assert scene.group.state is GroupState.STABLE
    return scene


def error(asked: Asked) -> ErrorCode:
    assert asked.reply is not None
    return asked.reply.error


# Joining.


@pytest.mark.parametrize(
    ("client", "code"),
    [
        (Client("a", session_ms=999), ErrorCode.INVALID_SESSION_TIMEOUT),
        (Client("a", session_ms=60_001), ErrorCode.INVALID_SESSION_TIMEOUT),
        (Client("a", member_id="stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (Client("a", protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (Client("a", protocol_type=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_group_is_not_made_by_a_join_that_is_refused(client: Client, code: ErrorCode) -> None:
    scene = Scene()
    assert error(scene.join(client)) is code
    assert scene.shard.state(GROUP) is GroupState.DEAD


def test_a_group_needs_a_name() -> None:
    scene = Scene()
    client = Client("a")
    asked = Asked(client)
    joining = JoinRequest(asked, "", None, "a", "/here", 10_000, 10_000, "consumer", (("r", b""),))
    scene.shard.members.join("", joining, scene.moment)
    scene.shard.members.sync("", SyncRequest(asked, "", None, 0, None, None, {}), scene.moment)
    replies: Any = [effect.reply.error for effect in scene.shard.members.outbox]  # type: ignore[union-attr]  # answers
    assert replies == [ErrorCode.INVALID_GROUP_ID] * 2
    code = scene.shard.members.heartbeat("", "a", None, 1, scene.moment)
    assert code is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("client", "code"),
    [
        (Client("x", protocols=("other",)), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (Client("x", protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (Client("x", member_id="stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (Client("x", member_id="stranger", instance="i9"), ErrorCode.UNKNOWN_MEMBER_ID),
        (Client("x", member_id="stranger", instance="i1"), ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_a_refused_join_disturbs_no_member(client: Client, code: ErrorCode) -> None:
    member = Client("a", instance="i1")
    scene = stable(member)
    assert error(scene.join(client)) is code
    assert scene.heartbeat(member) is ErrorCode.NONE


def test_a_member_id_is_given_out_once_and_kept_for_one_session() -> None:
    """KIP-394: a client that loses the response leaves no unused member in the group."""
    scene = Scene()
    client = Client("a", session_ms=5_000)
    assert error(scene.join(client, needs_id=True)) is ErrorCode.MEMBER_ID_REQUIRED
    assert client.member_id.startswith("a-")
    scene.pass_to(5_001)
    assert error(scene.join(client, needs_id=True)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.shard.state(GROUP) is GroupState.DEAD


def test_static_members_are_not_asked_to_come_twice() -> None:
    scene = Scene()
    assert error(scene.join(Client("a", instance="i1"), needs_id=True)) is ErrorCode.NONE


def test_a_static_member_has_its_place_in_a_full_group_when_it_starts_again() -> None:
    """Kafka refuses such a member until the session of its former process has expired. The refusal
    ends the consumer."""
    a, b = Client("a", instance="i1"), Client("b", instance="i2")
    scene = stable(a, b, scene=Scene(size_max=2))
    again = scene.join(Client("a", instance="i1"))
    assert again.joined.generation_id == a.generation
    assert error(scene.join(Client("c"))) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_leader_alone_is_told_who_is_there_and_what_they_said() -> None:
    a, b = Client("a", said=subscription("t", "u")), Client("b", instance="i2")
    scene = Scene()
    scene.join(a)
    second = scene.join(b)
    first = scene.join(a)
    assert first.joined.leader_id == second.joined.leader_id == a.member_id
    assert second.joined.members == ()
    assert [(one.group_instance_id, one.metadata) for one in first.joined.members] == [
        (None, subscription("t", "u")),
        ("i2", subscription("t")),
    ]


def test_pitfall_35_a_member_that_joins_again_may_change_all_it_said() -> None:
    a, b = Client("a"), Client("b")
    scene = stable(a, b)
    a.session_ms, a.rebalance_ms, a.said = 20_000, 40_000, subscription("u")
    a.name = "a-renamed"
    scene.join(a)
    member = scene.group.roster.members[a.member_id]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (20_000, 40_000)
    assert member.client_id == "a-renamed"
    assert member.metadata("range") == subscription("u")
    scene.heartbeat(b)
    scene.join(b)
    scene.sync(a)
    scene.heartbeat(b)
    scene.pass_to(15_000)
    assert a.member_id in scene.group.roster, "its new session time-out is longer"
    assert b.member_id not in scene.group.roster


def test_a_second_join_of_a_waiting_member_answers_the_first() -> None:
    a, b = Client("a"), Client("b")
    scene = stable(a, b)
    first = scene.join(a)
    second = scene.join(a)
    assert error(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.reply is None
    scene.join(b)
    assert error(second) is ErrorCode.NONE


def test_pitfall_36_members_that_join_all_at_once_all_get_a_share() -> None:
    """No live member becomes unknown or gets an empty assignment, in any order of the requests."""
    clients = [Client(f"c{number}") for number in range(20)]
    scene = Scene(delay_ms=3_000)
    asked = [scene.join(client) for client in clients]
    scene.pass_to(6_000)
    assert {error(one) for one in asked} == {ErrorCode.NONE}
    followers = [scene.sync(client) for client in clients[1:10]]
    assert all(one.reply is None for one in followers)
    shares = {client.member_id: client.name.encode() for client in clients}
    synced = [scene.sync(client, shares) for client in (clients[0], *clients[10:])]
    given = [one.synced.assignment.decode() for one in (*followers, *synced)]
    assert sorted(given) == sorted(client.name for client in clients)
    assert {scene.heartbeat(client) for client in clients} == {ErrorCode.NONE}


def test_a_member_the_leader_forgot_is_given_nothing() -> None:
    a, b = Client("a"), Client("b")
    scene = Scene()
    scene.join(a)
    scene.join(b)
    scene.join(a)
    scene.sync(a, {a.member_id: b"all", "who?": b"never"})
    assert scene.sync(b).synced.assignment == b""


# Syncing, heartbeats, leaving.


def test_what_a_sync_is_refused_with() -> None:
    a, b = Client("a"), Client("b")
    scene = stable(a)
    assert error(scene.sync(Client("x", member_id="stranger"))) is ErrorCode.UNKNOWN_MEMBER_ID
    old = Client("a", member_id=a.member_id, generation=a.generation - 1)
    assert error(scene.sync(old)) is ErrorCode.ILLEGAL_GENERATION
    for protocol in (("connect", "range"), ("consumer", "sticky")):
        code = error(scene.sync(a, protocol=protocol))
        assert code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.sync(a, protocol=("consumer", "range")).synced.assignment == b"a"
    scene.join(b)
    assert error(scene.sync(a)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_what_a_heartbeat_is_refused_with() -> None:
    a = Client("a", instance="i1")
    scene = stable(a)
    assert scene.heartbeat(Client("x", member_id="stranger")) is ErrorCode.UNKNOWN_MEMBER_ID
    stranger = Client("x", member_id="stranger", instance="i2")
    assert scene.heartbeat(stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    twin = Client("x", member_id="stranger", instance="i1", generation=a.generation)
    assert scene.heartbeat(twin) is ErrorCode.FENCED_INSTANCE_ID
    old = Client("a", member_id=a.member_id, instance="i1", generation=a.generation + 1)
    assert scene.heartbeat(old) is ErrorCode.ILLEGAL_GENERATION
    code = scene.shard.members.heartbeat("other", a.member_id, None, 1, scene.moment)
    assert code is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_leave_one_by_one_and_each_is_told_how_it_went() -> None:
    a, b = Client("a", instance="i1"), Client("b")
    scene = stable(a, b)
    assert scene.leave(Client("x", member_id="stranger")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.leave(Client("x", member_id="stranger", instance="i1")) is (
        ErrorCode.FENCED_INSTANCE_ID
    )
    assert scene.leave(Client("x", instance="i9")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.leave(Client("x", instance="i1")) is ErrorCode.NONE
    assert scene.leave(b) is ErrorCode.NONE
    assert scene.shard.members.leave("other", "a", None, scene.moment) is (
        ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert scene.group.state is GroupState.EMPTY


def test_a_member_that_leaves_while_it_waits_gets_its_answer() -> None:
    a, b = Client("a"), Client("b")
    scene = stable(a, b)
    joining = scene.join(a)
    scene.leave(a)
    assert error(joining) is ErrorCode.UNKNOWN_MEMBER_ID
    scene.join(b)
    scene.is_held = True
    syncing = scene.sync(b)
    scene.leave(b)
    assert error(syncing) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.group.state is GroupState.EMPTY


def test_a_coordinator_that_goes_sends_everyone_away() -> None:
    a, b, c = Client("a"), Client("b"), Client("c")
    scene = stable(a, b)
    group = scene.group
    joining = scene.join(c)
    scene.shard.members.unload(scene.moment)
    scene._perform()
    assert error(joining) is ErrorCode.NOT_COORDINATOR
    assert group.state is GroupState.DEAD
    assert len(scene.shard.members.timers) == 0
    assert group.leave(a.member_id, None, scene.moment) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = Asked(c)
    group.join(
        JoinRequest(again, "", None, "c", "/here", 10_000, 10_000, "consumer", (("range", b""),)),
        "c-1",
        scene.moment,
    )
    scene._perform()
    assert again.reply == JoinAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)


# Time.


def test_a_heartbeat_costs_no_deadline() -> None:
    clients = [Client(f"c{number}") for number in range(5)]
    scene = stable(*clients)
    before = len(scene.shard.members.timers._heap)
    for now_ms in range(0, 50_000, 100):
        scene.pass_to(now_ms)
        assert {scene.heartbeat(client) for client in clients} == {ErrorCode.NONE}
    assert len(scene.shard.members.timers._heap) <= before


def test_pitfall_34_a_waiting_member_is_not_expired_by_its_session() -> None:
    a, b = Client("a", session_ms=5_000), Client("b", session_ms=60_000, rebalance_ms=50_000)
    scene = stable(a, b)
    joining = scene.join(a)
    scene.pass_to(45_000)
    assert joining.reply is None
    scene.join(b)
    assert error(joining) is ErrorCode.NONE
    scene.pass_to(49_999)
    assert a.member_id in scene.group.roster, "its session begins with the answer"
    scene.pass_to(50_001)
    assert a.member_id not in scene.group.roster


@pytest.mark.parametrize("target", list(GroupState))
def test_no_state_is_reached_but_by_the_rules(target: GroupState) -> None:
    moves: dict[GroupState, set[str]] = {
        GroupState.EMPTY: {"PreparingRebalance"},
        GroupState.PREPARING_REBALANCE: {"Empty", "CompletingRebalance", "Stable"},
        GroupState.COMPLETING_REBALANCE: {"PreparingRebalance"},
        GroupState.STABLE: {"CompletingRebalance"},
        GroupState.DEAD: set(GroupState),
    }
    allowed = moves[target]
    for source in GroupState:
        if source in allowed:
            check_move(source, target)
        else:
            with pytest.raises(IllegalGroupMove):
                check_move(source, target)


# What the log keeps.


def test_a_generation_is_stored_before_anyone_is_told_of_its_shares() -> None:
    a = Client("a")
    scene = Scene()
    scene.is_held = True
    scene.join(a)
    asked = scene.sync(a, {a.member_id: b"all"})
    assert asked.reply is None
    scene.let_store()
    assert asked.synced.assignment == b"all"


def test_after_a_restart_the_group_is_what_it_was() -> None:
    a, b = Client("a", said=subscription("t", "u")), Client("b", instance="i2", session_ms=7_000)
    scene = stable(a, b)
    before = scene.group
    scene.restart()
    after = scene.group
    assert after is not before
    for name in ("state", "generation_id", "protocol_type", "protocol_name", "topics"):
        assert getattr(after, name) == getattr(before, name)
    assert after.roster.leader_id == before.roster.leader_id == a.member_id
    assert after.topics == frozenset({"t", "u"})
    for old, new in zip(before.roster, after.roster, strict=True):
        for name in ("member_id", "group_instance_id", "client_id", "client_host", "protocols",
                     "session_timeout_ms", "rebalance_timeout_ms", "assignment"):  # fmt: skip
            assert getattr(old, name) == getattr(new, name)


def test_a_group_that_outgrew_its_limit_rebalances_when_it_is_loaded() -> None:
    a, b = Client("a"), Client("b")
    scene = stable(a, b, scene=Scene(size_max=2))
    scene.limits = Scene(size_max=1).limits
    scene.restart()
    assert scene.group.state is GroupState.PREPARING_REBALANCE
    assert scene.join(a).reply is None
    assert error(scene.join(b)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.generation == 3
