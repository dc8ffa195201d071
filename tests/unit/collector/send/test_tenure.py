"""When collectors try to take over their instances: alone, and many at once."""

import random

from collector.config.settings import CollectorSection
from collector.send.tenure import first_wait_ms, start_wait

RNG = random.Random(7)


def section(group: str | None, interval: str = "5s") -> CollectorSection:
    return CollectorSection.model_validate({"group": group, "commit_interval": interval})


def test_a_collector_of_the_mill_starts_at_once() -> None:
    assert first_wait_ms(section(None), RNG) == 0
    wait = start_wait(section(None), RNG)
    assert [wait.next_ms() for _ in range(3)] == [200, 400, 800]


def test_a_thousand_that_start_together_dial_at_most_a_hundred_times_a_second() -> None:
    """`enrol` gives a thousand collectors an interval of five seconds."""
    waits = [first_wait_ms(section("web"), RNG) for _ in range(1_000)]
    assert min(waits) >= 0
    assert max(waits) <= 10_000
    assert all(50 < sum(start <= one < start + 1_000 for one in waits) < 150
               for start in range(0, 10_000, 1_000))  # fmt: skip


def test_a_thousand_whose_first_attempt_failed_do_not_return_together() -> None:
    waits = [start_wait(section("web"), RNG).next_ms() for _ in range(1_000)]
    assert min(waits) >= 200
    assert sum(one < 1_000 for one in waits) < 150


def test_few_collectors_wait_no_longer_than_before() -> None:
    few = section("web", "25ms")
    assert max(first_wait_ms(few, RNG) for _ in range(100)) <= 50
    assert {start_wait(few, RNG).next_ms() for _ in range(20)} == {200}


def test_no_wait_is_longer_than_half_a_minute() -> None:
    longest = section("web", "60s")
    assert max(first_wait_ms(longest, RNG) for _ in range(1_000)) <= 30_000
    wait = start_wait(longest, RNG)
    assert max(wait.next_ms() for _ in range(100)) <= 30_000
