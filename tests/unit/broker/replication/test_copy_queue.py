"""The queue of large copies, of which a few run and the others wait."""

from __future__ import annotations

from broker.replication.copy_queue import (
    LARGE_BYTES,
    LARGE_COPIES_MAX,
    NOTHING,
    CopyQueue,
    QueueMove,
)
from broker.replication.follower_steps import PartitionId
from protocol.types import Uuid

TOPIC = Uuid(int=7)


def place(index: int) -> PartitionId:
    return PartitionId(TOPIC, index)


def full() -> CopyQueue:
    """Return a queue in which the largest possible number of copies runs. They copy clients'
    topics, each larger than the one before."""
    queue = CopyQueue()
    for index in range(LARGE_COPIES_MAX):
        assert queue.sized(place(index), LARGE_BYTES + 10 + index, is_internal=False) == NOTHING
    return queue


def test_small_copies_never_wait() -> None:
    queue = full()
    assert queue.sized(place(100), LARGE_BYTES, is_internal=False) == NOTHING
    assert place(100) not in queue.running


def test_the_ninth_large_copy_waits_for_a_place() -> None:
    queue = full()
    moved = queue.sized(place(8), LARGE_BYTES + 1, is_internal=False)
    assert moved == QueueMove(paused=(place(8),))
    assert LARGE_COPIES_MAX == len(queue.running) == 8
    assert queue.leave(place(3)) == QueueMove(resumed=(place(8),))
    assert place(8) in queue.running and place(3) not in queue.running


def test_the_smallest_goes_first_and_a_running_one_keeps_its_place() -> None:
    queue = full()
    queue.sized(place(20), LARGE_BYTES + 500, is_internal=False)
    queue.sized(place(21), LARGE_BYTES + 200, is_internal=False)
    queue.sized(place(22), LARGE_BYTES + 300, is_internal=False)
    # Copy 21 grows while it waits, so copy 22 goes first.
    assert queue.sized(place(21), LARGE_BYTES + 400, is_internal=False) == NOTHING
    order = [queue.leave(place(index)).resumed for index in range(4)]
    assert order == [(place(22),), (place(21),), (place(20),), ()]


def test_an_internal_topic_takes_the_place_of_the_largest_other() -> None:
    queue = full()
    moved = queue.sized(place(50), LARGE_BYTES * 9, is_internal=True)
    assert moved == QueueMove(paused=(place(LARGE_COPIES_MAX - 1),))
    queue.sized(place(51), LARGE_BYTES + 1, is_internal=False)
    for number in range(LARGE_COPIES_MAX - 1):
        queue.sized(place(60 + number), LARGE_BYTES + 1, is_internal=True)
    # All places have internal topics, so copy 70 waits. It is the first to be resumed.
    assert queue.sized(place(70), LARGE_BYTES * 2, is_internal=True).paused == (place(70),)
    assert queue.leave(place(50)).resumed == (place(70),)


def test_a_copy_that_became_small_gives_its_place() -> None:
    queue = full()
    queue.sized(place(8), LARGE_BYTES + 1, is_internal=False)
    moved = queue.sized(place(0), LARGE_BYTES, is_internal=False)
    assert moved == QueueMove(resumed=(place(8),))


def test_one_that_waits_and_became_small_goes_on() -> None:
    """Retention at the leader can remove records that the follower has not copied yet."""
    queue = full()
    queue.sized(place(8), LARGE_BYTES + 1, is_internal=False)
    moved = queue.sized(place(8), LARGE_BYTES, is_internal=False)
    assert moved == QueueMove(resumed=(place(8),))
    assert queue.leave(place(0)) == NOTHING


def test_what_is_not_in_the_queue_can_leave() -> None:
    assert CopyQueue().leave(place(1)) == NOTHING
