"""What a follower reports about its fetches, so that one of the two connections to a leader can be
chosen."""

from __future__ import annotations

from broker.replication.follower import BACKOFF_MIN_MS
from protocol.errors import ErrorCode
from tests.unit.broker.replication.test_follower import Scene, data, diverging


def test_it_says_when_it_could_ask() -> None:
    """Partitions of the other connection are added only then. Before, neither connection would
    fetch them."""
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
