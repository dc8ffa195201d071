"""Pitfall 36: clients whose login is refused must not retry in a storm (kafka-python #1892 broke a
firewall). `test_login` has the waits of one client."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import NoReturn

import pytest

from protocol.client.backoff import JITTER, Backoff
from protocol.client.cluster import RECONNECT_BACKOFF_MS
from protocol.client.connection import Connection
from protocol.client.errors import BrokerUnreachable
from protocol.client.login import LoginRefused
from protocol.client.nodes import REFUSED_BACKOFF_MS, LinkSettings, NodeLink, refusal_of

CLIENTS = 200


class FakeTime:
    """A clock that moves only while the link waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0
        self.waits_ms: list[int] = []
        monkeypatch.setattr("protocol.client.nodes.asyncio.sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.waits_ms.append(round(seconds * 1000))
        self.now_ms += self.waits_ms[-1]


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    return FakeTime(monkeypatch)


def link(time: FakeTime, seed: int = 1) -> NodeLink:
    chance = random.Random(seed)
    backoff = Backoff(*RECONNECT_BACKOFF_MS, chance)
    return NodeLink("mill", 9192, LinkSettings("test"), backoff, lambda: time.now_ms)


def answering(monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]) -> None:
    """Let every attempt to connect fail with the error."""

    async def fail(*_: object, **__: object) -> NoReturn:
        raise error()

    monkeypatch.setattr(Connection, "open", fail)


async def attempts(one: NodeLink, count: int) -> None:
    for _ in range(count):
        with pytest.raises(BrokerUnreachable):
            await one.get()


def test_pitfall_36_clients_that_are_refused_together_do_not_return_together(
    time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the fifth minute all of them together make fewer than ten attempts a second, and no second
    has a burst of them."""
    answering(monkeypatch, lambda: LoginRefused("wrong password"))
    seconds: dict[int, int] = {}
    for seed in range(CLIENTS):
        time.now_ms = 0
        one = link(time, seed)
        while time.now_ms < 300_000:
            asyncio.run(attempts(one, 1))
            seconds[time.now_ms // 1000] = seconds.get(time.now_ms // 1000, 0) + 1
    last_minute = [seconds.get(second, 0) for second in range(240, 300)]
    assert sum(last_minute) / 60 < 10
    assert max(last_minute) < CLIENTS / 8
    assert seconds[0] >= CLIENTS


def test_a_broker_that_is_away_is_tried_sooner_than_one_that_refuses(
    time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waits of both kinds do not lengthen each other."""
    one = link(time)
    answering(monkeypatch, lambda: LoginRefused("wrong password"))
    asyncio.run(attempts(one, 9))
    assert time.waits_ms[-1] >= REFUSED_BACKOFF_MS[1] * (1 - JITTER)
    answering(monkeypatch, lambda: BrokerUnreachable("connection refused"))
    asyncio.run(attempts(one, 9))
    away_ms = time.waits_ms[9:]
    assert len(away_ms) == 8
    assert away_ms[0] <= RECONNECT_BACKOFF_MS[0] * (1 + JITTER)
    assert max(away_ms) <= RECONNECT_BACKOFF_MS[1] * (1 + JITTER)


def test_the_reason_of_a_refused_login_is_known_beside_a_broker_that_is_away(
    time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, away, open_one = link(time), link(time), link(time)

    async def work() -> None:
        answering(monkeypatch, lambda: BrokerUnreachable("away"))
        await attempts(away, 1)
        assert refusal_of([away]) is None
        answering(monkeypatch, lambda: LoginRefused("the proof is wrong"))
        await attempts(refused, 1)
        assert str(refusal_of([away, refused])) == "the proof is wrong"

        async def accept(*_: object, **__: object) -> object:
            return SimpleNamespace(is_closed=False)

        monkeypatch.setattr(Connection, "open", accept)
        await open_one.get()
        assert refusal_of([away, refused, open_one]) is None

    asyncio.run(work())
