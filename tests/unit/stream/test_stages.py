"""The times of batches by stage, over two windows, and the age of live lines."""

from typing import Any

import pytest

from stream.stages import (
    AGE_MS_MAX,
    BATCHES_KEPT,
    STAGES,
    UNFINISHED_MAX,
    WINDOWS,
    BatchWork,
    StageSums,
    quantiles,
)

BEGAN_S = 1_000.0
SPARK = {
    "latestOffset": 5, "getBatch": 1, "walCommit": 4, "commitOffsets": 8, "addBatch": 70,
    "queryPlanning": 6, "triggerExecution": 100,
}  # fmt: skip
SECONDS = {"source": 0.004, "parse": 0.02, "fold": 0.01, "mysql": 0.03, "redis": 0.005}


def work(lines: int = 10, cells: int = 4, *ages: tuple[float, int], **seconds: float) -> BatchWork:
    return BatchWork({**SECONDS, **seconds}, lines, cells, ages)


def batch(
    stages: StageSums, number: int, now_s: float, one: BatchWork | None = None, ms: int = 100
) -> None:
    stages.begins(now_s - ms / 1000)
    stages.applied(number, one or work(), now_s, replayed=False)
    stages.ends()
    stages.finished(number, {**SPARK, "triggerExecution": ms}, now_s, int(now_s * 1000))


def told(stages: StageSums, now_s: float) -> dict[str, Any]:
    return dict(stages.told(now_s))


def test_before_the_first_batch_nothing_is_known() -> None:
    found = told(StageSums(BEGAN_S), BEGAN_S + 5)
    assert (found["last"], found["median"], found["slowest"]) == (None, None, None)
    minute = found["windows"]["1m"]
    assert (minute["batches"], minute["busy"], minute["stages"]) == (0, 0.0, {})
    assert (minute["batch_ms"], minute["line_ms"]) == (None, None)


def test_a_batch_is_told_by_stage_with_what_spark_and_the_sinks_measured() -> None:
    stages = StageSums(BEGAN_S)
    batch(stages, 7, BEGAN_S + 1)
    found = told(stages, BEGAN_S + 2)
    expected = {"source": 10, "parse": 20, "fold": 10, "mysql": 30, "redis": 5, "commit": 12}
    assert found["last"]["stage_ms"] == expected
    assert (found["last"]["batch_id"], found["last"]["ms"]) == (7, 100)
    assert found["last"] == found["median"] == found["slowest"]
    minute = found["windows"]["1m"]
    assert {name: one["ms"] for name, one in minute["stages"].items()} == expected
    assert list(minute["stages"]) == list(STAGES)
    assert minute["seconds"] == 2.0, "the stream is no older"
    assert minute["busy"] == pytest.approx(0.1 / 2)
    assert minute["stages"]["mysql"]["busy"] == pytest.approx(0.03 / 2)
    assert (minute["lines"], minute["cells"]) == (10, 4)


def test_pieces_of_a_batch_are_one_batch() -> None:
    stages = StageSums(BEGAN_S)
    stages.applied(3, work(), BEGAN_S + 1, replayed=False)
    stages.applied(3, work(), BEGAN_S + 2, replayed=False)
    stages.finished(3, SPARK, BEGAN_S + 2, 0)
    found = told(stages, BEGAN_S + 2)
    assert found["last"]["stage_ms"]["mysql"] == 60
    assert (found["windows"]["1m"]["batches"], found["windows"]["1m"]["lines"]) == (1, 20)


def test_a_mill_without_a_sink_has_no_such_stage() -> None:
    stages = StageSums(BEGAN_S)
    seconds = {name: SECONDS[name] for name in ("source", "parse", "fold", "redis")}
    stages.applied(1, BatchWork(seconds, 1, 1), BEGAN_S, replayed=False)
    stages.finished(1, SPARK, BEGAN_S, 0)
    assert "mysql" not in told(stages, BEGAN_S + 1)["windows"]["1m"]["stages"]
    assert "mysql" not in told(stages, BEGAN_S + 1)["last"]["stage_ms"]


def test_windows_forget_and_totals_do_not() -> None:
    stages = StageSums(BEGAN_S)
    batch(stages, 1, BEGAN_S + 1, ms=900)
    batch(stages, 2, BEGAN_S + 300, ms=100)
    found = told(stages, BEGAN_S + 310)
    assert [found["windows"][name]["batches"] for name in WINDOWS] == [1, 2]
    assert found["slowest"]["batch_id"] == 1
    later = told(stages, BEGAN_S + 2_000)
    assert [later["windows"][name]["batches"] for name in WINDOWS] == [0, 0]
    assert later["windows"]["10m"]["busy"] == 0.0
    assert later["slowest"] is None
    assert later["last"]["batch_id"] == 2, "the last one stays the last one"
    assert later["total"]["seconds"]["mysql"] == pytest.approx(0.06)
    assert later["total"]["busy_seconds"] == pytest.approx(1.0)


def test_a_window_is_as_long_as_it_says() -> None:
    stages = StageSums(BEGAN_S)
    for number in range(100):
        batch(stages, number, BEGAN_S + number + 0.5, ms=500)
    minute = told(stages, BEGAN_S + 100)["windows"]["1m"]
    assert minute["seconds"] == minute["batches"]
    assert minute["busy"] == pytest.approx(0.5)


def test_a_batch_in_hand_is_busy_before_it_ends() -> None:
    """Without this, a stream that counts one batch for minutes would seem idle until the batch
    ends."""
    stages = StageSums(BEGAN_S)
    stages.begins(BEGAN_S + 10)
    assert told(stages, BEGAN_S + 20)["windows"]["1m"]["busy"] == pytest.approx(0.5)
    assert told(stages, BEGAN_S + 500)["windows"]["1m"]["busy"] == 1.0
    stages.ends()
    assert told(stages, BEGAN_S + 500)["windows"]["1m"]["busy"] == 0.0


def test_a_replayed_batch_takes_time_and_has_no_lines() -> None:
    stages = StageSums(BEGAN_S)
    stages.applied(1, work(10, 4, (500, 10)), BEGAN_S, replayed=True)
    minute = told(stages, BEGAN_S + 1)["windows"]["1m"]
    assert (minute["replays"], minute["lines"], minute["cells"]) == (1, 0, 0)
    assert (minute["live_lines"], minute["line_ms"]) == (0, None)
    assert minute["stages"]["mysql"]["busy"] > 0


def test_reports_of_batches_that_had_nothing_to_count_are_none() -> None:
    stages = StageSums(BEGAN_S)
    stages.finished(4, SPARK, BEGAN_S, 0)
    assert told(stages, BEGAN_S + 1)["last"] is None


def test_batches_of_which_spark_never_reports_are_forgotten() -> None:
    stages = StageSums(BEGAN_S)
    for number in range(UNFINISHED_MAX + 1):
        stages.applied(number, work(), BEGAN_S, replayed=False)
    stages.finished(0, SPARK, BEGAN_S, 0)
    assert told(stages, BEGAN_S)["last"] is None
    stages.finished(UNFINISHED_MAX, SPARK, BEGAN_S, 0)
    assert told(stages, BEGAN_S)["last"]["batch_id"] == UNFINISHED_MAX


def test_the_median_batch_is_a_batch_and_the_slowest_is_kept_beside_a_flood_of_others() -> None:
    stages = StageSums(BEGAN_S)
    for number in range(3 * BATCHES_KEPT):
        batch(stages, number, BEGAN_S + 1 + number / 1_000, ms=10 + number % 5)
    batch(stages, 9_999, BEGAN_S + 3, ms=4_000)
    found = told(stages, BEGAN_S + 4)
    assert found["median"]["ms"] == 12
    assert (found["slowest"]["batch_id"], found["slowest"]["ms"]) == (9_999, 4_000)
    assert found["windows"]["1m"]["batches"] == 3 * BATCHES_KEPT + 1


def test_half_of_the_live_lines_are_younger_than_p50() -> None:
    stages = StageSums(BEGAN_S)
    stages.applied(1, work(100, 1, (200, 98), (3_000, 2)), BEGAN_S, replayed=False)
    line_ms = told(stages, BEGAN_S + 1)["windows"]["1m"]["line_ms"]
    assert line_ms["p50"] == pytest.approx(200, rel=0.05)
    assert line_ms["p99"] == pytest.approx(3_000, rel=0.05)
    total = told(stages, BEGAN_S + 1)["total"]
    assert (total["live_lines"], total["line_seconds"]) == (100, pytest.approx(25.6))


def test_time_stamps_that_are_no_moment_of_sending_do_not_count() -> None:
    """A producer can set record timestamps to the times inside its lines."""
    stages = StageSums(BEGAN_S)
    stages.applied(1, work(2, 1, (AGE_MS_MAX + 1, 1), (-50.0, 1)), BEGAN_S, replayed=False)
    minute = told(stages, BEGAN_S + 1)["windows"]["1m"]
    assert (minute["live_lines"], minute["line_ms"]) == (1, {"p50": 0.0, "p99": 0.0})


def test_no_ages_have_no_quantiles() -> None:
    assert quantiles(StageSums(0.0).total.ages) == {}
