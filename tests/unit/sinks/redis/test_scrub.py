"""Which windows the scrub checks next, and which windows it accepts as complete."""

import dataclasses

import pytest

from sinks.cells.merge import WindowId
from sinks.redis.scrub import (
    HashFacts,
    WindowCycle,
    is_scrubbed,
    looks_whole,
    oldest_scrubbed_s,
    shows_latest,
)
from sinks.redis.view import Write
from sinks.rows import MetricDefinition
from tests.harness import worked
from tests.harness.seed import seeded

COUNT = dataclasses.replace(worked.DEFINITIONS[1], name="m", top=3, max_keys=5)
WRITE = Write("mill:m:1m:x", "x", 900, "mill:m:1m", 3)


def seen(
    fields: int, ranked: int, expire: int = 900, ranking: int | None = None, start: int = 0
) -> HashFacts:
    return HashFacts(fields, expire, ranked, expire if ranking is None else ranking, start)


def test_every_window_of_every_size_is_passed_once_a_round_whatever_is_added_meanwhile() -> None:
    chance = seeded("scrub rounds")
    metrics = [
        dataclasses.replace(COUNT, name=name, windows_s=sizes)
        for name, sizes in (("a", (60, 0)), ("b", (10, 3_600, 0)))
    ]
    there = {
        (metric.name, size_s): {0} if size_s == 0 else set(range(0, 70 * size_s, size_s))
        for metric in metrics
        for size_s in metric.windows_s
    }
    at_first = {(*size, start) for size, starts in there.items() for start in starts}
    passed: list[tuple[str, int, int]] = []
    round_ = WindowCycle(metrics)
    sizes: list[int] = []
    while round_.rounds_total == 0:
        metric, size_s, before_s = round_.place
        sizes.append(size_s)
        all_starts = sorted(there[metric, size_s], reverse=True)
        asked = chance.randrange(1, 40)
        page = [start for start in all_starts if before_s is None or start < before_s][:asked]
        round_.passed(page, asked)
        passed += [(metric, size_s, start) for start in page]
        if size_s:
            there[metric, size_s].add(max(there[metric, size_s]) + size_s)
    assert at_first <= set(passed)
    assert len(passed) == len(set(passed))
    assert sizes == sorted(sizes)


@pytest.mark.parametrize(
    ("n_keys", "told", "whole"),
    [
        (4, seen(4, 3), True),
        (4, seen(3, 3), False),
        (4, seen(5, 3), False),
        (4, seen(0, 0, -2), False),
        (4, seen(4, 2), False),
        (4, seen(4, 0, 900, -2), False),
        (4, seen(4, 3, -1), False),
        (4, seen(4, 3, 900, -1), False),
        (2, seen(2, 2), True),
        (0, seen(0, 0, -2), True),
        # At the limit of keys, Redis may have the overflow key too, which is not counted.
        (5, seen(6, 3), True),
        (5, seen(5, 3), True),
        (5, seen(7, 3), False),
        (4, seen(-1, 3), False),
    ],
)
def test_a_window_looks_whole_by_its_number_of_keys(
    n_keys: int, told: HashFacts, whole: bool
) -> None:
    assert looks_whole(COUNT, 60, n_keys, WRITE, told) is whole


def test_totals_never_expire_and_a_percentile_has_four_fields() -> None:
    latency = dataclasses.replace(COUNT, measure="percentile", top=None, key_columns=())
    totals = Write("mill:m:all", "", 0, None, None)
    assert looks_whole(latency, 0, 1, totals, seen(4, 0, -1, -2))
    assert not looks_whole(latency, 0, 1, totals, seen(3, 0, -1, -2))
    assert not looks_whole(latency, 0, 1, totals, seen(4, 0, 900, -2))
    # Redis has a ranking that the metric no longer defines.
    assert not looks_whole(latency, 0, 1, totals, seen(4, 1, -1, -1))


def test_the_latest_key_is_a_copy_with_a_start_that_never_expires() -> None:
    own = seen(4, 3)
    assert shows_latest(own, seen(5, 3, -1, start=1))
    for wrong in (
        seen(5, 3, -1, start=0),
        seen(4, 3, -1, start=1),
        seen(5, 3, 900, -1, start=1),
        seen(5, 3, -1, 900, start=1),
        seen(5, 2, -1, start=1),
        seen(0, 0, -2),
    ):
        assert not shows_latest(own, wrong)
    assert shows_latest(seen(4, 0, 900, -2), seen(5, 0, -1, -2, start=1))


@pytest.mark.parametrize(
    ("redis_s", "mysql_s", "oldest_s"), [(100, None, 841), (100, 50, 891), (50, 100, 891)]
)
def test_windows_are_scrubbed_while_both_sides_keep_them(
    redis_s: int, mysql_s: int | None, oldest_s: int
) -> None:
    metric: MetricDefinition = dataclasses.replace(
        COUNT, keep_redis_s={60: redis_s}, keep_mysql_s={60: mysql_s}
    )
    assert oldest_scrubbed_s(metric, 60, 1_000) == oldest_s
    assert is_scrubbed(WindowId("m", 60, oldest_s), metric, 1_000)
    assert not is_scrubbed(WindowId("m", 60, oldest_s - 1), metric, 1_000)
    assert oldest_scrubbed_s(metric, 0, 1_000) == 0
    assert is_scrubbed(WindowId("m", 0, 0), metric, 1_000)
