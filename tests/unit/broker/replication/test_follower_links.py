"""The reports of a follower about its fetches, by which one of its two connections to a leader is
chosen."""

from __future__ import annotations

from broker.replication.follower import BACKOFF_MIN_MS
from broker.replication.tracked import CopyPause
from protocol.errors import ErrorCode
from tests.unit.broker.replication.test_follower import Scene, data, diverging


def test_it_says_when_it_could_ask() -> None:
    """A partition moves to this connection only when the connection can send a request. Until then,
    neither connection would fetch the partition."""
    scene = Scene()
    key = scene.follow(0, 10, (5, 0))
    assert scene.fetch.is_free(scene.now_ms)
    scene.asks()
    assert not scene.fetch.is_free(scene.now_ms)
    scene.answer(data(0, b"records"))
    assert not scene.fetch.is_free(scene.now_ms)
    scene.fetch.synced(key, 11)
    assert scene.fetch.is_free(scene.now_ms)
    scene.asks()
    scene.answer(code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert not scene.fetch.is_free(scene.now_ms)
    assert scene.fetch.is_free(scene.now_ms + BACKOFF_MIN_MS)


def test_the_lag_of_a_partition_is_known_when_it_may_leave() -> None:
    """The lag is unknown while the partition's records are not durable, while its log is truncated,
    or while it waits."""
    scene = Scene()
    one, two = scene.follow(0, 10, (5, 0)), scene.follow(1, 60, (1, 0), (4, 40))
    assert not scene.fetch.lag_of(one).has_caught_up  # type: ignore[union-attr]
    scene.asks()
    scene.answer(data(0, b"records", high_watermark=11), diverging(1, 1, 20))
    assert scene.fetch.lag_of(one) is None
    assert scene.fetch.lag_of(two) is None
    scene.fetch.synced(one, 11)
    scene.fetch.truncated(two, 20, 1)
    assert scene.fetch.lag_of(one).has_caught_up  # type: ignore[union-attr]
    assert scene.fetch.lag_of(two) is not None
    scene.asks()
    scene.answer(data(0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert scene.fetch.lag_of(one) is None
    scene.fetch.drop(one)
    assert scene.fetch.lag_of(one) is None


def test_a_partition_that_pauses_is_left_out_of_requests() -> None:
    """A paused partition leaves the leader's fetch session. Otherwise the leader would continue to
    send its records."""
    scene = Scene()
    one, two = scene.follow(0, 10, (5, 0)), scene.follow(1, 10, (5, 0))
    scene.asks()
    scene.answer()
    scene.fetch.pause(one, CopyPause.QUEUE)
    assert scene.asks() == []
    assert scene.plan is not None
    assert scene.plan.forgotten == (one.partition,)
    scene.answer(data(1, b"records"))
    scene.fetch.synced(two, 11)
    assert [asked.key for asked in scene.asks()] == [two]
    scene.answer()
    scene.fetch.resume(one, CopyPause.QUEUE)
    assert [asked.key for asked in scene.asks()] == [one]


def test_a_pause_ends_with_its_last_reason() -> None:
    scene = Scene()
    key = scene.follow(0, 10, (5, 0))
    scene.fetch.pause(key, CopyPause.QUEUE)
    scene.fetch.pause(key, CopyPause.ROOM)
    assert scene.fetch.next_fetch(scene.now_ms) is None
    scene.fetch.resume(key, CopyPause.QUEUE)
    assert scene.fetch.next_fetch(scene.now_ms) is None
    scene.fetch.resume(key, CopyPause.ROOM)
    assert [asked.key for asked in scene.asks()] == [key]


def test_a_new_session_does_not_name_what_pauses() -> None:
    scene = Scene()
    one, two = scene.follow(0, 10, (5, 0)), scene.follow(1, 10, (5, 0))
    scene.asks()
    scene.fetch.pause(one, CopyPause.THROTTLE)
    scene.answer(code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    scene.now_ms += BACKOFF_MIN_MS
    assert [asked.key for asked in scene.asks()] == [two]


def test_an_answer_to_a_request_from_before_a_pause_is_not_appended() -> None:
    scene = Scene()
    key = scene.follow(0, 10, (5, 0))
    scene.asks()
    scene.fetch.pause(key, CopyPause.QUEUE)
    assert scene.answer(data(0, b"records")) == []
    scene.fetch.resume(key, CopyPause.QUEUE)
    assert [asked.fetch_offset for asked in scene.asks()] == [10]


def test_a_partition_in_a_new_epoch_does_not_pause() -> None:
    scene = Scene()
    scene.fetch.pause(scene.follow(0, 10, (5, 0)), CopyPause.QUEUE)
    key = scene.follow(0, 10, (5, 0), epoch=6)
    assert [asked.key for asked in scene.asks()] == [key]


def test_it_says_which_partitions_fail() -> None:
    scene = Scene()
    one, two = scene.follow(0, 10, (5, 0)), scene.follow(1, 10, (5, 0))
    scene.asks()
    assert not scene.fetch.is_failing(one)
    scene.answer(data(0, error_code=ErrorCode.KAFKA_STORAGE_ERROR))
    assert (scene.fetch.is_failing(one), scene.fetch.is_failing(two)) == (True, False)
    scene.asks()
    scene.answer(code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert scene.fetch.is_failing(two)
