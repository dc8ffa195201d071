"""The lag of a follower: in offsets, in estimated bytes, and in time."""

from __future__ import annotations

from broker.replication.follower_lag import FAR_BYTES, FAR_MS, FollowerLag

MIB = 1 << 20


def test_before_the_first_answer_nothing_is_known() -> None:
    lag = FollowerLag(10)
    assert (lag.has_caught_up, lag.is_far_behind) == (False, False)


def test_it_has_caught_up_when_all_below_the_high_watermark_is_durable() -> None:
    lag = FollowerLag(10)
    lag.answered(12, 100, 0)
    assert not lag.has_caught_up
    lag.reached(11)
    assert not lag.has_caught_up
    lag.reached(12)
    assert lag.has_caught_up


def test_an_answer_without_records_is_enough_for_a_log_that_lacks_nothing() -> None:
    lag = FollowerLag(10)
    lag.answered(10, 0, 0)
    assert (lag.has_caught_up, lag.is_far_behind) == (True, False)


def test_an_empty_partition_has_caught_up_too() -> None:
    lag = FollowerLag(0)
    lag.answered(0, 0, 0)
    assert lag.has_caught_up


def test_the_bytes_that_are_missing_are_estimated_by_the_last_answer() -> None:
    """One MiB had 100 records, so 800 more records are estimated as 8 MiB."""
    lag = FollowerLag(0)
    lag.answered(900, MIB, 0)
    lag.reached(100)
    assert not lag.is_far_behind
    lag = FollowerLag(0)
    lag.answered(901, MIB, 0)
    lag.reached(100)
    assert lag.is_far_behind
    assert FAR_BYTES == 8 * MIB


def test_a_small_rest_is_far_behind_when_it_stays_behind_for_long() -> None:
    """Producers write to the leader as fast as the follower copies, so the lag stays small but does
    not end."""
    lag = FollowerLag(0)
    for number in range(FAR_MS // 100 + 1):
        lag.answered(10 * number + 20, 100, 100 * number)
        lag.reached(10 * number + 10)
        assert not lag.is_far_behind
    lag.answered(1_000, 100, FAR_MS + 1)
    lag.reached(990)
    assert lag.is_far_behind


def test_once_caught_up_the_time_begins_again() -> None:
    lag = FollowerLag(0)
    lag.answered(20, 100, 0)
    lag.reached(10)
    lag.answered(20, 100, FAR_MS)
    lag.reached(20)
    lag.answered(40, 100, 2 * FAR_MS)
    lag.reached(30)
    assert not lag.is_far_behind


def test_a_log_that_was_cut_is_behind_and_not_far() -> None:
    lag = FollowerLag(50)
    lag.reached(40)
    assert not lag.is_far_behind
    lag.answered(60, 100, 5)
    lag.reached(45)
    assert (lag.has_caught_up, lag.is_far_behind) == (False, False)
