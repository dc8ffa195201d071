"""Quotas on a real broker: librdkafka is throttled, gets no error and loses nothing."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from appliance.cli.app import main
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.headers import encode_request
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
        {"for": "default user", "produce": None, "consume": "50MiB/s", "requests": None,
         "mutations": None, "connections": None},
        {"for": "user shop, client-id web", "produce": "20MiB/s", "consume": None,
         "requests": "12.5%", "mutations": None, "connections": None},
    ]  # fmt: skip
    assert "expected produce=SIZE" in quota("set", "--user", "shop", "write=1", code=2)
    assert "expected more than 0" in quota("set", "--user", "shop", "produce=0", code=2)
    assert "found no option that says whose quota it is" in quota("set", "produce=1", code=2)
    assert "has none of these quotas" in quota("remove", "--user", "absent", code=4)
    quota("remove", "--default-user")
    quota("remove", "--user", "shop", "--client-id", "web", "produce", "requests")
    assert quota("list") == "no quotas\n"


def held(broker: BrokerProcess, address: str, count: int) -> int:
    """Connect from an address, and return the number of connections that the broker keeps."""
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(
                socket.create_connection(
                    ("127.0.0.1", broker.host_port), timeout=20, source_address=(address, 0)
                )
            )
            for _ in range(count)
        ]
        kept = 0
        for one in opened:
            request = encode_request(ApiVersionsRequest(), 0, 1, "held")
            try:
                one.sendall(request)
                kept += bool(one.recv(4))
            except ConnectionError:
                continue
        return kept


def test_an_address_over_its_quota_is_not_let_in(
    broker: BrokerProcess, quota: Callable[..., str]
) -> None:
    """KIP-612. The quota gives ten seconds' worth at once; other addresses have none."""
    said = quota("set", "--ip", "127.0.0.7", "connections=1")
    assert said == "ip 127.0.0.7: connections 1/s\n"
    assert 10 <= held(broker, "127.0.0.7", 40) <= 12
    assert held(broker, "127.0.0.8", 40) == 40
    assert "connection_creation_rate 1 of 127.0.0.7 is reached" in broker.log_text()
    assert "is not a valid IP" in quota("set", "--ip", "localhost", "connections=1", code=1)
    assert quota("remove", "--ip", "127.0.0.7") == "ip 127.0.0.7: removed 1 quota\n"
    assert held(broker, "127.0.0.7", 40) == 40


def test_librdkafka_waits_after_it_has_created_too_much(
    broker: BrokerProcess, quota: Callable[..., str]
) -> None:
    """KIP-599. librdkafka does not know the error, so its topics are created and it pauses. The
    quota gives eleven seconds' worth at once."""
    quota("set", "--client-id", "maker", "mutations=0.5")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "maker"})

    def create(name: str, count: int) -> float:
        began = monotonic()
        topic = NewTopic(name, num_partitions=count, replication_factor=1)
        admin.create_topics([topic], request_timeout=60)[name].result(60)
        return monotonic() - began

    # Of ten partitions 4.5 are above the quota, which is nine seconds.
    create("many", 10)
    assert create("more", 1) >= WAITED_S_MIN
    assert quota("remove", "--client-id", "maker") == "client-id maker: removed 1 quota\n"
