"""The roles of a partition, and the records that are committed in each role. The high watermark
never falls within an epoch."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from broker.replication.leader import Assignment
from broker.replication.partition import (
    FollowerRole,
    LeaderRole,
    OfflineRole,
    PartitionState,
    RoleChange,
)
from broker.replication.progress import FollowerStatus
from protocol.errors import ErrorCode
from protocol.types import NO_NODE, NO_OFFSET
from tests.unit.broker.replication.kit import ASSIGNED, ME, ONE, TWO, Scene, ends


def test_a_role_comes_from_the_log() -> None:
    scene = Scene()
    assert scene.change == RoleChange(OfflineRole(-1), LeaderRole(5))
    scene.log_says(leader=ONE, leader_epoch=6)
    assert scene.change == RoleChange(LeaderRole(5), FollowerRole(ONE, 6))
    scene.log_says(leader=NO_NODE, leader_epoch=7, in_sync_replicas=())
    assert scene.change == RoleChange(FollowerRole(ONE, 6), OfflineRole(7))


def test_the_same_leader_in_a_later_epoch_has_another_role() -> None:
    scene = Scene()
    scene.log_says(leader_epoch=6)
    assert scene.change == RoleChange(LeaderRole(5), LeaderRole(6))


def test_who_is_no_replica_is_offline() -> None:
    scene = Scene()
    scene.log_says(leader=ONE, leader_epoch=6, replicas=(ONE, TWO), in_sync_replicas=(ONE, TWO))
    assert scene.state.role == OfflineRole(6)


def test_a_change_of_members_is_no_change_of_role() -> None:
    scene = Scene()
    scene.log_says(in_sync_replicas=(ME, ONE))
    assert scene.change is None
    assert scene.state.in_sync_replicas == (ME, ONE)


def test_what_is_older_than_the_own_registration_is_ignored() -> None:
    state = PartitionState(ME, broker_epoch=100)
    assert state.assign(ASSIGNED, ends(0), 0) is None
    assert state.role == OfflineRole(-1)
    assert state.assign(replace(ASSIGNED, offset=101), ends(0), 0) is not None


def test_older_news_than_the_last_is_ignored() -> None:
    scene = Scene()
    scene.log_says(leader=ONE, leader_epoch=6)
    assert scene.state.assign(ASSIGNED, ends(0), 0) is None
    assert scene.state.role == FollowerRole(ONE, 6)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.NONE),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-1, ErrorCode.NONE),
    ],
)
def test_a_leader_judges_the_epoch(asked: int, code: ErrorCode) -> None:
    assert Scene().state.refusal(asked) is code


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_the_epoch_is_judged_before_the_role(asked: int, code: ErrorCode) -> None:
    scene = Scene(replace(ASSIGNED, leader=ONE))
    assert scene.state.refusal(asked) is code


def test_a_follower_learns_no_further_than_its_own_end() -> None:
    scene = Scene(replace(ASSIGNED, leader=ONE))
    scene.state.learned(50, 30)
    assert scene.state.high_watermark == 30
    scene.state.learned(20, 40)
    assert scene.state.high_watermark == 30
    scene.state.learned(50, 40)
    assert scene.state.high_watermark == 40


def test_a_high_watermark_is_never_above_a_log_that_was_cut() -> None:
    scene = Scene(replace(ASSIGNED, leader=ONE), ends(50, high_watermark=40))
    assert scene.state.high_watermark == 40
    scene.state.learned(40, 35)
    assert scene.state.high_watermark == 35


def test_a_checkpoint_is_a_floor_within_the_log() -> None:
    assert Scene(log=ends(20, high_watermark=30)).state.high_watermark == 20


def test_a_new_leader_knows_a_floor_until_its_epoch_start_is_passed() -> None:
    scene = Scene(log=ends(100, high_watermark=60))
    assert scene.state.high_watermark == 60
    assert scene.state.is_high_watermark_floor
    scene.fetched(ONE, 99)
    scene.fetched(TWO, 100)
    assert scene.state.is_high_watermark_floor
    scene.fetched(ONE, 100)
    assert scene.state.high_watermark == 100
    assert not scene.state.is_high_watermark_floor


def test_a_follower_s_watermark_survives_its_election() -> None:
    scene = Scene(replace(ASSIGNED, leader=ONE), ends(80))
    scene.state.learned(70, 80)
    scene.log = ends(80)
    scene.log_says(leader=ME, leader_epoch=6)
    assert scene.state.high_watermark == 70


def test_only_a_leader_has_members_and_a_low_watermark() -> None:
    scene = Scene(replace(ASSIGNED, leader=ONE))
    state = scene.state
    assert (state.in_sync_replicas, state.maximal_in_sync_replicas) == ((), ())
    assert (state.low_watermark, state.is_under_min_isr) == (NO_OFFSET, False)
    assert (state.is_high_watermark_floor, state.is_replica(ONE)) == (False, False)
    assert state.proposal(10**6) is None
    state.answered(0, ErrorCode.NONE)
    state.fetched(TWO, 12, 5, 0, 0)
    state.trimmed(3)
    state.advance_durable_end(9)
    assert (state.high_watermark, state.durable_end) == (0, 9)


def test_a_leader_learns_from_nobody() -> None:
    with pytest.raises(AssertionError, match="does not learn"):
        Scene().state.learned(5, 5)


def test_an_old_epoch_s_answer_does_not_meet_a_new_epoch_s_proposal() -> None:
    """The proposals of the two epochs have different numbers, so the old response is ignored."""
    scene = Scene(replace(ASSIGNED, in_sync_replicas=(ME, TWO)))
    scene.fetched(ONE, 0)
    assert scene.proposes() == (ME, ONE, TWO)
    old = scene.number
    scene.log_says(leader_epoch=6, in_sync_replicas=(ME, TWO))
    scene.fetched(ONE, 0)
    assert scene.proposes() == (ME, ONE, TWO)
    scene.state.answered(old, ErrorCode.INELIGIBLE_REPLICA)
    assert scene.state.maximal_in_sync_replicas == (ME, ONE, TWO)


@pytest.mark.parametrize("seed", range(50))
def test_alone_it_is_the_one_broker_mill(seed: int) -> None:
    """With one replica, every durable record is committed, whatever the minimum is. The leader
    proposes nothing."""
    chance = random.Random(seed)
    end = chance.randrange(100)
    alone = Assignment(
        offset=50,
        leader=ME,
        leader_epoch=1,
        partition_epoch=0,
        replicas=(ME,),
        in_sync_replicas=(ME,),
        min_in_sync_replicas=chance.choice((1, 2, 3)),
    )
    state = PartitionState(ME, broker_epoch=1)
    state.eligible({ME: 1})
    assert state.assign(alone, ends(end, high_watermark=chance.randrange(100)), 0) is not None
    assert (state.high_watermark, state.durable_end) == (end, end)
    assert not state.is_high_watermark_floor
    now_ms = start = 0
    for _ in range(200):
        now_ms += chance.randrange(10_000)
        deed = chance.randrange(4)
        if deed == 0:
            end += chance.randrange(50)
            state.advance_durable_end(end)
        elif deed == 1:
            start = chance.randint(start, end)
            state.trimmed(start)
        elif deed == 2:
            state.eligible({} if chance.random() < 0.5 else {ME: 1})
        else:
            assert state.proposal(now_ms) is None, seed
        assert state.high_watermark == state.durable_end == end, seed
        assert state.low_watermark == start, seed
        assert not state.is_under_min_isr, seed


def test_a_leader_knows_how_far_each_follower_is_and_since_when_one_lacks_something() -> None:
    scene = Scene()
    assert scene.state.followers(0) == (
        FollowerStatus(ONE, None, None, 0, True),
        FollowerStatus(TWO, None, None, 0, True),
    )
    scene.state.advance_durable_end(10)
    scene.now_ms = 100
    scene.fetched(ONE, 10)
    scene.fetched(TWO, 4)
    assert scene.state.followers(350) == (
        FollowerStatus(ONE, 10, 0, 0, True),
        FollowerStatus(TWO, 4, 6, 350, True),
    )
    scene.log_says(in_sync_replicas=(ME, ONE))
    assert [one.is_in_sync for one in scene.state.followers(350)] == [True, False]
    scene.log_says(leader=ONE, leader_epoch=6)
    assert scene.state.followers(350) == ()
