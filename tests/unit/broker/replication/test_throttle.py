"""The bucket that limits the bytes of copies per second, and the lists of limited replicas."""

from __future__ import annotations

from random import Random

import pytest

from broker.replication.throttle import REFILL_MS, UNLIMITED, CopyThrottle, is_listed

RATE = 1_000_000


def test_without_a_rate_there_is_always_room() -> None:
    throttle = CopyThrottle()
    throttle.take(1 << 40, UNLIMITED, 0)
    assert throttle.room(UNLIMITED, 0) == UNLIMITED
    assert throttle.wait_ms(UNLIMITED, 0) == 0


def test_a_bucket_holds_one_second() -> None:
    throttle = CopyThrottle()
    assert throttle.room(RATE, 0) == RATE
    throttle.take(400_000, RATE, 0)
    assert throttle.room(RATE, 0) == 600_000
    assert throttle.room(RATE, 100) == 700_000
    assert throttle.room(RATE, 3_600_000) == RATE


def test_an_empty_bucket_opens_when_it_has_the_bytes_of_a_moment() -> None:
    """The copy waits until the bucket has the bytes of REFILL_MS. Otherwise it would send a
    response for each batch."""
    throttle = CopyThrottle()
    throttle.take(RATE, RATE, 0)
    assert throttle.wait_ms(RATE, 0) == REFILL_MS
    assert throttle.room(RATE, REFILL_MS - 1) == 0
    assert throttle.room(RATE, REFILL_MS) == RATE * REFILL_MS // 1_000
    assert throttle.wait_ms(RATE, REFILL_MS) == 0


def test_a_batch_larger_than_the_bucket_is_a_debt() -> None:
    throttle = CopyThrottle()
    throttle.take(3 * RATE, RATE, 0)
    wait_ms = throttle.wait_ms(RATE, 0)
    assert wait_ms == 2_000 + REFILL_MS
    assert throttle.room(RATE, wait_ms - 1) == 0
    assert throttle.room(RATE, wait_ms) > 0


def test_a_changed_rate_counts_at_once() -> None:
    """A new rate applies at once, even if the copies sent so far would block the old rate for
    hours (trap 15, KAFKA-10143)."""
    throttle = CopyThrottle()
    throttle.take(1 << 20, 1, 0)
    assert throttle.room(1, 1) == 0
    assert throttle.room(RATE, 2) == RATE
    throttle.take(RATE, RATE, 2)
    assert throttle.room(UNLIMITED, 3) == UNLIMITED


def test_a_rate_of_zero_stops_copies_until_it_changes() -> None:
    """Trap 15: a rate of 0 neither divides by zero nor means no limit."""
    throttle = CopyThrottle()
    assert throttle.room(0, 0) == 0
    assert throttle.wait_ms(0, 1 << 40) is None
    assert throttle.room(RATE, 1 << 40) == RATE


@pytest.mark.parametrize("rate", [1, 7, 999, 1_000_000, 10**12])
def test_after_the_wait_there_is_room(rate: int) -> None:
    throttle = CopyThrottle()
    throttle.take(2 * rate + 5, rate, 0)
    wait_ms = throttle.wait_ms(rate, 0)
    assert wait_ms
    assert throttle.room(rate, wait_ms) > 0


def test_a_clock_that_stands_still_adds_nothing() -> None:
    throttle = CopyThrottle()
    throttle.take(RATE, RATE, 50)
    for _ in range(100):
        assert throttle.room(RATE, 50) == 0


def test_the_bytes_of_any_time_are_bounded() -> None:
    """I22: copies take at most rate x t, one bucket and one batch in any time t."""
    chance = Random("bucket")
    for _ in range(200):
        rate = chance.choice((10, 50_000, 3_000_000))
        batch_max = chance.choice((1, rate // 2 + 1, 4 * rate))
        throttle, now_ms, copied = CopyThrottle(), 0, 0
        for _ in range(200):
            now_ms += chance.choice((0, 1, 3, 40, 700))
            if throttle.room(rate, now_ms):
                size = chance.randint(1, batch_max)
                throttle.take(size, rate, now_ms)
                copied += size
            assert copied * 1_000 <= rate * now_ms + 1_000 * (rate + batch_max)


def test_a_bucket_that_is_always_emptied_gives_the_whole_rate() -> None:
    throttle, copied = CopyThrottle(), 0
    for now_ms in range(20_000):
        room = throttle.room(RATE, now_ms)
        throttle.take(room, RATE, now_ms)
        copied += room
    assert 19 * RATE < copied <= 21 * RATE


@pytest.mark.parametrize(
    ("replicas", "partition", "broker", "listed"),
    [
        ("", 0, 1, False),
        ("*", 7, 1, True),
        ("0:1,1:2", 0, 1, True),
        ("0:1,1:2", 1, 1, False),
        ("0:1,1:2", 1, 2, True),
        (",0:1,", 0, 1, True),
        ("10:1", 1, 1, False),
        ("007:01", 7, 1, True),
        ("9" * 5_000 + ":1,3:1", 3, 1, True),
    ],
)
def test_a_list_names_replicas(replicas: str, partition: int, broker: int, listed: bool) -> None:
    assert is_listed(replicas, partition, broker) is listed
