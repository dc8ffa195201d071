"""Backoff times are random, grow with each failure, and have a maximum."""

import asyncio
import random

import pytest

from protocol.client.backoff import Backoff
from protocol.client.errors import BrokerUnreachable, UnsupportedVersion
from protocol.client.retry import repeat


def test_waits_double_up_to_the_bound_with_jitter() -> None:
    backoff = Backoff(100, 1000, random.Random(3))
    for expected in (100, 200, 400, 800, 1000, 1000):
        assert expected * 0.8 <= backoff.next_ms() <= expected * 1.2
    backoff.reset()
    assert backoff.next_ms() <= 120
    many = Backoff(100, 1000, random.Random(3))
    assert len({many.next_ms() for _ in range(200)}) > 50


def test_repeat_ends_with_the_last_error() -> None:
    now_ms = 0
    attempts = 0
    left: list[int] = []

    async def attempt(left_ms: int) -> None:
        nonlocal now_ms, attempts
        now_ms += 40
        attempts += 1
        left.append(left_ms)
        raise BrokerUnreachable(f"attempt {attempts}")

    async def run(timeout_ms: int) -> None:
        backoff = Backoff(1, 1, random.Random(3))
        await repeat(attempt, backoff=backoff, clock=lambda: now_ms, timeout_ms=timeout_ms)

    with pytest.raises(BrokerUnreachable, match="attempt 3"):
        asyncio.run(run(100))
    assert left == [100, 60, 20]
    attempts = 0
    with pytest.raises(BrokerUnreachable, match="attempt 1"):
        asyncio.run(run(0))


def test_repeat_gives_up_at_once_where_nothing_would_change() -> None:
    async def attempt(left_ms: int) -> None:
        raise UnsupportedVersion("no")

    async def run() -> None:
        backoff = Backoff(1, 1, random.Random(3))
        await repeat(attempt, backoff=backoff, clock=lambda: 0, timeout_ms=1000)

    with pytest.raises(UnsupportedVersion):
        asyncio.run(run())
