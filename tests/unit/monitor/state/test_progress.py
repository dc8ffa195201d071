"""Health requires progress: a part that has work waiting but never finishes any is stuck."""

from monitor.state.progress import (
    STUCK_AFTER_MS,
    STUCK_STARTING_MS,
    UNENDED_BYTES_MAX,
    ProgressMemory,
    Work,
    collector_work,
)


def work(waiting: int, done: object) -> Work:
    return Work("stream", waiting, "lines", f"{waiting} lines wait", done)


def test_a_part_that_worked_and_finishes_nothing_is_stuck_since_its_last_finish() -> None:
    memory = ProgressMemory()
    assert memory.judge([work(5, 0)], 0) == ()
    assert memory.judge([work(5, 1)], 10_000) == ()
    assert memory.judge([work(9, 1)], 10_000 + STUCK_AFTER_MS - 1) == ()
    (found,) = memory.judge([work(9, 1)], 10_000 + STUCK_AFTER_MS)
    assert (found.part, found.since_ms) == ("stream", 10_000)
    assert found.text(90_000) == "has made no progress for 80 s; 9 lines wait"
    assert memory.judge([work(9, 2)], 200_000) == (), "one finish ends it"


def test_idle_is_not_stuck_however_long_it_lasts() -> None:
    memory = ProgressMemory()
    memory.judge([work(0, 1)], 0)
    assert memory.judge([work(0, 1)], 86_400_000) == ()
    assert memory.judge([work(7, 1)], 86_401_000) == (), "its time begins when work comes"


def test_a_driver_that_restarts_over_and_over_is_stuck_after_the_time_of_a_start() -> None:
    memory = ProgressMemory()
    for at_ms in range(0, STUCK_STARTING_MS, 2_000):
        assert memory.judge([work(5, "never")], at_ms) == ()
    assert len(memory.judge([work(5, "never")], STUCK_STARTING_MS)) == 1


def test_a_part_of_which_nothing_is_known_keeps_its_time() -> None:
    memory = ProgressMemory()
    memory.judge([work(5, 0)], 0)
    memory.judge([work(5, 1)], 1_000)
    memory.judge([], 30_000)
    assert len(memory.judge([work(5, 1)], 61_000)) == 1


def test_a_line_without_an_end_waits_for_its_writer_and_not_for_the_collector() -> None:
    row = {"path": "watched/a.log", "lag_bytes": 40, "state": "reading"}
    details: dict[str, object] = {"files": [row], "bytes_total": 9, "lines_total": 1}
    quiet = collector_work("collector", details, has_problems=False)
    assert quiet is not None
    assert quiet.waiting == 0
    held = collector_work("collector", details, has_problems=True)
    assert held is not None
    assert held.waiting == 40
    assert "watched/a.log" in held.over
    row["lag_bytes"] = UNENDED_BYTES_MAX
    large = collector_work("collector", details, has_problems=False)
    assert large is not None
    assert large.waiting == UNENDED_BYTES_MAX
    row["state"] = "damaged"
    damaged = collector_work("collector", details, has_problems=False)
    assert damaged is not None
    assert damaged.waiting == 0
    assert collector_work("collector", {}, has_problems=False) is None
