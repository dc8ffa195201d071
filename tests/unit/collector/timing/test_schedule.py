"""The order in which files take turns to be read."""

import random

from collector.timing.schedule import DoublingWait, ReadQueue, Schedule


def turns(schedule: Schedule[str, int], read_queue: ReadQueue, count: int) -> list[str | None]:
    return [schedule.next(read_queue) for _ in range(count)]


def test_turns_go_round() -> None:
    schedule: Schedule[str, int] = Schedule()
    for name in "abc":
        schedule.ready(name, ReadQueue.LIVE)
    order = []
    for _ in range(6):
        turn = schedule.next(ReadQueue.LIVE)
        assert turn is not None
        order.append(turn)
        schedule.ready(turn, ReadQueue.LIVE)
    assert "".join(order) == "abcabc"


def test_a_file_stands_in_one_lane_once() -> None:
    schedule: Schedule[str, int] = Schedule()
    schedule.ready("a", ReadQueue.BACKFILL)
    schedule.ready("a", ReadQueue.BACKFILL)
    schedule.ready("a", ReadQueue.LIVE)
    assert schedule.waiting(ReadQueue.BACKFILL) == 0
    assert turns(schedule, ReadQueue.LIVE, 2) == ["a", None]


def test_parked_files_wait_for_their_partition() -> None:
    schedule: Schedule[str, int] = Schedule()
    schedule.ready("a", ReadQueue.LIVE)
    schedule.park("a", 1)
    schedule.park("b", 1)
    schedule.park("c", 2)
    schedule.ready("a", ReadQueue.LIVE)
    assert schedule.next(ReadQueue.LIVE) is None
    assert schedule.release(1) == ["a", "b"]
    schedule.ready("a", ReadQueue.LIVE)
    assert schedule.next(ReadQueue.LIVE) == "a"
    assert schedule.release(1) == []


def test_delayed_files_come_back_in_time() -> None:
    schedule: Schedule[str, int] = Schedule()
    schedule.delay("a", 100)
    schedule.ready("a", ReadQueue.LIVE)
    assert (schedule.next(ReadQueue.LIVE), schedule.deadline_ms) == (None, 100)
    assert schedule.expire(99) == []
    assert schedule.expire(100) == ["a"]
    assert schedule.deadline_ms is None


def test_a_dropped_file_is_nowhere() -> None:
    schedule: Schedule[str, int] = Schedule()
    schedule.ready("a", ReadQueue.LIVE)
    schedule.park("b", 1)
    schedule.delay("c", 5)
    for name in "abc":
        schedule.drop(name)
    assert schedule.next(ReadQueue.LIVE) is None
    assert schedule.release(1) == []
    assert schedule.expire(10) == []


def test_backoff_doubles_up_to_its_most() -> None:
    backoff = DoublingWait(100, 500)
    assert [backoff.next_ms() for _ in range(5)] == [100, 200, 400, 500, 500]
    backoff.reset()
    assert backoff.next_ms() == 100


def test_waits_with_jitter_lie_between_the_shortest_and_the_doubled_one() -> None:
    waits = [DoublingWait(200, 30_000, random.Random(seed)) for seed in range(50)]
    for limit in (200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000):
        found = [one.next_ms() for one in waits]
        assert min(found) >= 200
        assert max(found) <= limit
        if limit > 200:
            assert len(set(found)) > 10, "collectors that failed together do not retry together"
