"""The rebalances of a member, step by step: its next request, and the effect of each response."""

import random
from typing import Any, TypeVar

import pytest

from protocol.client.assignment import decode_subscription, encode_assignment, encode_subscription
from protocol.client.assignors import ASSIGNORS
from protocol.client.group_core import GroupCore
from protocol.client.group_steps import (
    Adopt,
    Count,
    GroupMembership,
    GroupSettings,
    Join,
    Leave,
    MemberPhase,
    RevokePartitions,
    Step,
    Sync,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.group import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)
from protocol.types import TopicPartition

ZERO, ONE, TWO = (TopicPartition("t", index) for index in range(3))

S = TypeVar("S", bound=Step)


def a_core(*assignors: str, **settings: Any) -> GroupCore:
    chosen = tuple(ASSIGNORS[name] for name in assignors or ("range",))
    group = GroupSettings("g", chosen, retry_backoff_ms=(100, 100), **settings)
    core = GroupCore(group, random.Random(1), 0)
    core.subscribe(["t"])
    return core


def take(core: GroupCore, kind: type[S], now_ms: int = 0) -> S:
    step = core.step(now_ms)
    assert isinstance(step, kind), step
    return step


def join(core: GroupCore, generation_id: int, *, leader: str = "other", now_ms: int = 0) -> Join:
    step = take(core, Join, now_ms)
    members = []
    if leader == "me":
        metadata = step.request.protocols[0].metadata
        members.append(JoinGroupResponseMember(member_id="me", metadata=metadata))
    core.on_join(
        JoinGroupResponse(
            generation_id=generation_id,
            protocol_name=step.request.protocols[0].name,
            leader=leader,
            member_id="me",
            members=members,
        ),
        now_ms,
    )
    return step


def sync(core: GroupCore, *tps: TopicPartition, now_ms: int = 0) -> Sync:
    step = take(core, Sync, now_ms)
    core.on_sync(step, SyncGroupResponse(assignment=encode_assignment(tps)), now_ms)
    return step


def stable(core: GroupCore, *tps: TopicPartition, generation_id: int = 1) -> GroupCore:
    join(core, generation_id)
    sync(core, *tps)
    core.adopted(take(core, Adopt))
    assert core.step(0) is None
    assert (core.phase, core.owned) == (MemberPhase.STABLE, frozenset(tps))
    return core


def beat(core: GroupCore, code: ErrorCode, now_ms: int = 3_000) -> None:
    request = core.heartbeat(now_ms)
    assert request is not None
    core.on_heartbeat(request, code, now_ms)


def test_a_follower_s_round() -> None:
    core = a_core()
    request = join(core, 1).request
    assert (request.group_id, request.member_id, request.protocol_type) == ("g", "", "consumer")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (45_000, 300_000)
    assert [p.name for p in request.protocols] == ["range"]
    assert core.heartbeat(60_000) is None
    assert sync(core, ZERO).request.assignments == []
    step = take(core, Adopt)
    assert (step.added, step.assignment) == (frozenset({ZERO}), frozenset({ZERO}))
    core.adopted(step)
    assert core.step(0) is None
    assert core.membership == GroupMembership(1, "me")


def test_a_leader_counts_and_assigns() -> None:
    core = a_core()
    join(core, 1, leader="me")
    assert take(core, Count).topics == {"t"}
    core.counted({"t": 2})
    (given,) = take(core, Sync).request.assignments
    assert (given.member_id, given.assignment) == ("me", encode_assignment([ZERO, ONE]))


def test_a_leader_that_came_back_statically_assigns_nothing() -> None:
    core = a_core(group_instance_id="static")
    step = take(core, Join)
    core.on_join(
        JoinGroupResponse(
            generation_id=4, protocol_name="range", leader="me", member_id="me",
            skip_assignment=True,
            members=[
                JoinGroupResponseMember(member_id="me", metadata=step.request.protocols[0].metadata)
            ],
        ),
        0,
    )  # fmt: skip
    core.counted(dict.fromkeys(take(core, Count).topics, 3))
    assert take(core, Sync).request.assignments == []
    sync(core, ZERO)
    core.adopted(take(core, Adopt))
    core.topics_seen({"t": 4})
    assert isinstance(core.step(0), RevokePartitions)
    assert not core.leaves_at_the_end


def test_a_member_id_that_is_required_is_used_at_once() -> None:
    core = a_core()
    take(core, Join)
    core.on_join(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="given"), 0)
    assert take(core, Join).request.member_id == "given"


def test_an_eager_member_gives_all_back_before_it_joins_again() -> None:
    core = stable(a_core(), ZERO, ONE)
    beat(core, ErrorCode.REBALANCE_IN_PROGRESS)
    step = take(core, RevokePartitions, 3_000)
    assert (step.partitions, step.is_lost) == (frozenset({ZERO, ONE}), False)
    core.revoked(step)
    request = take(core, Join, 3_000).request
    assert request.member_id == "me"
    assert decode_subscription("me", request.protocols[0].metadata).owned == ()


def test_an_eager_sticky_member_remembers_what_it_had() -> None:
    core = stable(a_core("sticky"), ZERO, ONE, generation_id=5)
    core.rejoin()
    core.revoked(take(core, RevokePartitions))
    metadata = take(core, Join).request.protocols[0].metadata
    found = decode_subscription("me", metadata, trusts_user_data=True)
    assert (set(found.owned), found.generation_id) == ({ZERO, ONE}, 5)


def test_a_cooperative_member_keeps_reading_and_joins_twice_if_it_must_give_back() -> None:
    core = stable(a_core("cooperative-sticky"), ZERO, ONE)
    core.rejoin()
    request = join(core, 2).request
    found = decode_subscription("me", request.protocols[0].metadata)
    assert (set(found.owned), found.generation_id) == ({ZERO, ONE}, 1)
    sync(core, ZERO)
    step = take(core, RevokePartitions)
    assert (step.partitions, step.is_lost) == (frozenset({ONE}), False)
    core.revoked(step)
    core.adopted(take(core, Adopt))
    assert core.owned == {ZERO}
    join(core, 3)
    sync(core, ZERO, TWO)
    step_added = take(core, Adopt)
    assert step_added.added == {TWO}
    core.adopted(step_added)
    assert core.step(0) is None


def test_a_cooperative_member_gives_back_what_it_no_longer_wants() -> None:
    core = stable(a_core("cooperative-sticky"), ZERO)
    core.subscribe(["u"])
    step = take(core, RevokePartitions)
    assert step.partitions == {ZERO}
    core.revoked(step)
    assert take(core, Join)


def test_one_eager_assignor_makes_the_member_eager() -> None:
    core = stable(a_core("range", "cooperative-sticky"), ZERO)
    core.rejoin()
    assert take(core, RevokePartitions).partitions == {ZERO}


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_what_a_forgotten_member_owned_is_lost(code: ErrorCode) -> None:
    core = stable(a_core("cooperative-sticky"), ZERO)
    beat(core, code)
    assert core.membership is None
    step = take(core, RevokePartitions, 3_000)
    assert (step.partitions, step.is_lost) == (frozenset({ZERO}), True)
    core.revoked(step)
    request = take(core, Join, 3_000).request
    # After ILLEGAL_GENERATION the member keeps its member id.
    assert request.member_id == ("" if code == ErrorCode.UNKNOWN_MEMBER_ID else "me")
    assert decode_subscription("me", request.protocols[0].metadata).owned == ()


def test_a_commit_that_is_refused_says_so_too() -> None:
    core = stable(a_core(), ZERO)
    stale = GroupMembership(0, "me")
    core.on_commit_refused(stale, ErrorCode.UNKNOWN_MEMBER_ID)
    assert core.phase is MemberPhase.STABLE
    assert core.membership is not None
    core.on_commit_refused(core.membership, ErrorCode.UNKNOWN_MEMBER_ID)
    assert take(core, RevokePartitions).is_lost


def test_a_commit_refused_within_a_round_begins_no_other() -> None:
    core = stable(a_core("cooperative-sticky"), ZERO)
    core.rejoin()
    join(core, 2)
    assert core.membership is not None
    core.on_commit_refused(core.membership, ErrorCode.REBALANCE_IN_PROGRESS)
    sync(core, ZERO)
    core.adopted(take(core, Adopt))
    assert core.step(0) is None


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_refused_commit_does_not_bring_a_failed_member_back(code: ErrorCode) -> None:
    core = stable(a_core(), ZERO)
    assert core.membership is not None
    core.fail(ValueError("a listener raised"))
    core.revoked(take(core, RevokePartitions))
    core.on_commit_refused(core.membership, code)
    assert core.phase is MemberPhase.FAILED
    assert core.step(1_000_000) is None


def test_being_thrown_out_while_adopting_loses_what_was_just_added() -> None:
    core = a_core()
    join(core, 1)
    sync(core, ZERO)
    step = take(core, Adopt)
    beat(core, ErrorCode.UNKNOWN_MEMBER_ID)
    core.adopted(step)
    revoked = take(core, RevokePartitions)
    assert (revoked.partitions, revoked.is_lost) == (frozenset({ZERO}), True)


def test_a_sync_that_comes_too_late_joins_again() -> None:
    core = a_core()
    join(core, 1)
    step = take(core, Sync)
    core.on_sync(step, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), 0)
    assert take(core, Join).request.member_id == "me"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REBALANCE_IN_PROGRESS,
        None,
    ],
)
def test_what_passes_by_itself_is_asked_again_after_a_while(code: ErrorCode | None) -> None:
    core = a_core()
    take(core, Join)
    if code is None:
        core.on_join_lost(0)
    else:
        core.on_join(JoinGroupResponse(error_code=code), 0)
    assert core.step(0) is None
    deadline = core.next_deadline_ms()
    assert deadline is not None
    assert 80 <= deadline <= 120
    assert take(core, Join, deadline)
    assert core.failure is None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_what_no_repetition_changes_ends_it(code: ErrorCode) -> None:
    core = a_core()
    take(core, Join)
    core.on_join(JoinGroupResponse(error_code=code), 0)
    assert isinstance(core.failure, ApiError)
    assert core.failure.code == code
    assert core.step(10_000) is None


def test_a_fenced_static_member_has_lost_its_part() -> None:
    core = stable(a_core(group_instance_id="static"), ZERO)
    beat(core, ErrorCode.FENCED_INSTANCE_ID)
    step = take(core, RevokePartitions)
    assert step.is_lost
    core.revoked(step)
    assert core.step(0) is None
    assert core.failure is not None


def test_heartbeats_come_in_time_and_soon_after_one_that_was_lost() -> None:
    core = stable(a_core(), ZERO)
    assert core.heartbeat(2_999) is None
    request = core.heartbeat(3_000)
    assert request is not None
    assert (request.generation_id, request.member_id) == (1, "me")
    assert core.heartbeat_at_ms == 6_000
    core.on_heartbeat_lost(3_500)
    assert core.heartbeat_at_ms == 3_600
    again = core.heartbeat(3_600)
    assert again is not None
    core.on_heartbeat(again, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 3_600)
    assert core.phase is MemberPhase.STABLE


def test_answers_of_an_older_generation_change_nothing() -> None:
    core = stable(a_core(), ZERO)
    old = core.heartbeat(3_000)
    assert old is not None
    core.rejoin()
    core.revoked(take(core, RevokePartitions))
    join(core, 2)
    sync(core, ONE)
    core.on_heartbeat(old, ErrorCode.UNKNOWN_MEMBER_ID, 0)
    assert core.phase is MemberPhase.ADOPTING
    core.adopted(take(core, Adopt))
    assert core.owned == {ONE}


def test_a_member_that_is_not_polled_leaves_and_comes_back_with_the_next_poll() -> None:
    core = stable(a_core(max_poll_interval_ms=10_000), ZERO)
    core.poll_began(1_000)
    assert core.next_deadline_ms() is None
    assert core.step(50_000) is None
    core.poll_ended(60_000)
    assert core.next_deadline_ms() == 70_000
    assert core.step(69_999) is None
    assert take(core, Leave, 70_000).member_id == "me"
    step = take(core, RevokePartitions, 70_000)
    assert step.is_lost
    core.revoked(step)
    assert core.step(80_000) is None
    assert core.next_deadline_ms() is None
    core.poll_began(90_000)
    assert take(core, Join, 90_000).request.member_id == ""


def test_wishes_that_change_during_a_round_begin_another() -> None:
    core = a_core()
    join(core, 1)
    core.subscribe(["t", "u"])
    sync(core, ZERO)
    core.adopted(take(core, Adopt))
    core.revoked(take(core, RevokePartitions))
    metadata = take(core, Join).request.protocols[0].metadata
    assert decode_subscription("me", metadata).topics == ("t", "u")


def test_only_the_leader_answers_for_topics_that_grow() -> None:
    follower = stable(a_core(), ZERO)
    follower.topics_seen({"t": 9})
    assert follower.step(0) is None
    leader = a_core()
    join(leader, 1, leader="me")
    leader.counted(dict.fromkeys(take(leader, Count).topics, 1))
    sync(leader, ZERO)
    leader.adopted(take(leader, Adopt))
    assert leader.watched_topics == {"t"}
    leader.topics_seen({"t": 1})
    assert leader.step(0) is None
    leader.topics_seen({"t": 2})
    assert take(leader, RevokePartitions)


def test_the_leader_answers_for_topics_that_come_after_they_were_assigned() -> None:
    leader = a_core()
    join(leader, 1, leader="me")
    take(leader, Count)
    leader.counted({})
    sync(leader)
    leader.adopted(take(leader, Adopt))
    assert leader.watched_topics == {"t"}
    leader.topics_seen({})
    assert leader.step(0) is None
    leader.topics_seen({"t": 1})
    assert take(leader, Join)


def test_topics_that_cannot_be_asked_for_give_the_round_up() -> None:
    core = a_core()
    join(core, 1, leader="me")
    take(core, Count)
    core.on_count_lost(0)
    deadline = core.next_deadline_ms()
    assert deadline is not None
    assert take(core, Join, deadline)


def test_nonsense_of_a_peer_ends_the_leader_with_an_error() -> None:
    core = a_core()
    take(core, Join)
    member = JoinGroupResponseMember(member_id="other", metadata=b"\0")
    core.on_join(
        JoinGroupResponse(protocol_name="range", leader="me", member_id="me", members=[member]), 0
    )
    assert core.failure is not None


def test_a_protocol_that_was_not_offered_ends_it() -> None:
    core = a_core()
    take(core, Join)
    core.on_join(JoinGroupResponse(protocol_name="other", leader="x", member_id="me"), 0)
    assert core.failure is not None


def test_other_members_of_other_clients_are_assigned_too() -> None:
    core = a_core("roundrobin")
    step = take(core, Join)
    members = [
        JoinGroupResponseMember(member_id="me", metadata=step.request.protocols[0].metadata),
        JoinGroupResponseMember(member_id="java", metadata=encode_subscription(["t"], (), -1)),
    ]
    core.on_join(
        JoinGroupResponse(protocol_name="roundrobin", leader="me", member_id="me", members=members),
        0,
    )
    core.counted(dict.fromkeys(take(core, Count).topics, 2))
    given = {a.member_id: a.assignment for a in take(core, Sync).request.assignments}
    assert given == {"java": encode_assignment([ZERO]), "me": encode_assignment([ONE])}


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="assignor"):
        GroupSettings("g", ())
    with pytest.raises(ValueError, match="heartbeat"):
        GroupSettings("g", (ASSIGNORS["range"],), heartbeat_interval_ms=45_000)
