"""Quotas on a real broker: librdkafka is throttled, gets no error and loses nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from appliance.cli.app import main
from tests.harness.broker import BrokerProcess
from tests.interop.conftest import RunMain

pytestmark = pytest.mark.live

RATE = 200_000
"""Bytes per second. The first ten seconds' worth passes at once."""

COUNT, SIZE_BYTES = 60, 50_000
"""Together 3 MB, so one megabyte must wait."""

WAITED_S_MIN = 3.0
"""The megabyte above the burst takes five seconds, less the time of the burst."""


@pytest.fixture
def quota(broker: BrokerProcess, run_main: RunMain) -> RunMain:
    """Return a function that runs `millrace quota` and returns what it prints."""
    return lambda *words, **code: run_main(main, "quota", *words, "-b", broker.bootstrap, **code)


class Throttles:
    """The pauses that librdkafka was told, in seconds."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def __call__(self, event: Any) -> None:
        if event.throttle_time:
            self.told.append(event.throttle_time)


def write(broker: BrokerProcess, client_id: str, throttles: Throttles) -> float:
    """Produce all messages. Return the seconds until the last acknowledgement."""
    failures: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "throttle_cb": throttles,
            "linger.ms": 0,
            "batch.size": SIZE_BYTES,
        }
    )
    began = monotonic()
    for _ in range(COUNT):
        producer.produce(
            "limited",
            b"x" * SIZE_BYTES,
            partition=0,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(120) == 0
    assert not failures
    return monotonic() - began


def read(broker: BrokerProcess, client_id: str, count: int, throttles: Throttles) -> float:
    """Consume this number of messages. Return the seconds that this took."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "group.id": f"of-{client_id}",
            "auto.offset.reset": "earliest",
            "throttle_cb": throttles,
        }
    )
    consumer.subscribe(["limited"])
    began = monotonic()
    left = count
    while left and monotonic() - began < 120:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            left -= 1
    consumer.close()
    assert not left
    return monotonic() - began


def test_librdkafka_pauses_and_loses_nothing(
    broker: BrokerProcess, quota: Callable[..., str]
) -> None:
    assert quota("set", "--client-id", "limited", f"produce={RATE}", f"consume={RATE}") == (
        "client-id limited: produce 200000/s, consume 200000/s\n"
    )
    free, limited = Throttles(), Throttles()
    write(broker, "free", free)
    assert write(broker, "limited", limited) >= WAITED_S_MIN
    assert limited.told and not free.told
    slow = Throttles()
    assert read(broker, "limited", 2 * COUNT, slow) >= WAITED_S_MIN
    assert slow.told
    read(broker, "free", 2 * COUNT, free)
    assert not free.told
    assert quota("remove", "--client-id", "limited") == ("client-id limited: removed 2 quotas\n")
    limited.told.clear()
    write(broker, "limited", limited)
    assert not limited.told


def test_what_the_command_shows_and_refuses(quota: Callable[..., str]) -> None:
    assert quota("list") == "no quotas\n"
    quota("set", "--default-user", "consume=50MiB")
    quota("set", "--user", "shop", "--client-id", "web", "produce=20MiB", "requests=12.5")
    rows = json.loads(quota("list", "--json"))["data"]
    assert rows == [
        {"for": "default user", "produce": None, "consume": "50MiB/s", "requests": None},
        {"for": "user shop, client-id web", "produce": "20MiB/s", "consume": None,
         "requests": "12.5%"},
    ]  # fmt: skip
    assert "expected produce=SIZE" in quota("set", "--user", "shop", "write=1", code=2)
    assert "expected more than 0" in quota("set", "--user", "shop", "produce=0", code=2)
    assert "whose quota?" in quota("set", "produce=1", code=2)
    assert "has no such quota" in quota("remove", "--user", "absent", code=4)
    quota("remove", "--default-user")
    quota("remove", "--user", "shop", "--client-id", "web", "produce", "requests")
    assert quota("list") == "no quotas\n"
