"""The progress of one follower: when it was last caught up, and which of its processes counts."""

from __future__ import annotations

from broker.replication.progress import NO_BROKER_EPOCH, FollowerProgress
from protocol.types import NO_OFFSET


def test_nothing_is_known_at_first() -> None:
    progress = FollowerProgress(None)
    assert not progress.has_fetched
    assert (progress.durable_end, progress.start_offset) == (NO_OFFSET, NO_OFFSET)
    assert progress.broker_epoch == NO_BROKER_EPOCH
    assert not progress.is_caught_up(0, 5_000)


def test_who_has_the_leader_s_end_is_caught_up_now() -> None:
    progress = FollowerProgress(None)
    assert progress.fetched(1, 10, 2, leader_end=10, now_ms=700)
    assert (progress.last_caught_up_ms, progress.start_offset) == (700, 2)


def test_who_has_what_was_there_at_the_last_fetch_was_caught_up_then() -> None:
    progress = FollowerProgress(None)
    progress.fetched(1, 5, 0, leader_end=10, now_ms=100)
    assert progress.last_caught_up_ms is None
    progress.fetched(1, 9, 0, leader_end=20, now_ms=200)
    assert progress.last_caught_up_ms is None
    progress.fetched(1, 20, 0, leader_end=30, now_ms=300)
    assert progress.last_caught_up_ms == 200


def test_the_first_fetch_proves_nothing_by_what_came_before() -> None:
    progress = FollowerProgress(None)
    progress.fetched(1, 0, 0, leader_end=10, now_ms=100)
    assert progress.last_caught_up_ms is None


def test_the_lag_time_is_inclusive() -> None:
    progress = FollowerProgress(1_000)
    assert progress.is_caught_up(6_000, 5_000)
    assert not progress.is_caught_up(6_001, 5_000)


def test_a_replaced_incarnation_is_not_heard() -> None:
    progress = FollowerProgress(None)
    assert progress.fetched(7, 5, 0, leader_end=5, now_ms=100)
    assert not progress.fetched(6, 9, 0, leader_end=9, now_ms=200)
    assert (progress.durable_end, progress.broker_epoch) == (5, 7)
    assert progress.fetched(8, 3, 0, leader_end=9, now_ms=300)
    assert (progress.durable_end, progress.broker_epoch) == (3, 8)


def test_a_later_time_that_is_known_stays() -> None:
    progress = FollowerProgress(500)
    progress.caught_up_at(400)
    assert progress.last_caught_up_ms == 500
