"""Batches with wrong contents and a right checksum are sent to a real broker that requires a login,
and to Apache Kafka. Every reader can read what our broker has stored."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException

from protocol.client.login import LoginSettings
from protocol.client.tls import TlsSettings
from protocol.errors import ErrorCode
from protocol.types import TopicPartition
from tests.harness.broker import BrokerProcess
from tests.harness.certificates import TestAuthority
from tests.harness.damaged_batches import damaged_batches
from tests.harness.kafka import KafkaProcess
from tests.harness.secured import give_password, wire_log_in
from tests.harness.tally import tell
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient, create, produce_request
from tests.interop import client_scenarios as scenarios
from tests.interop import transaction_scenarios
from tests.interop.client_scenarios import connected, read_all

pytestmark = pytest.mark.live

USER, PASSWORD = "shop", "correct, horse = battery"
LOGIN = LoginSettings(USER, PASSWORD)


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: TestAuthority
) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, tls=authority.write(), needs_login=True) as running:
        give_password(running.bootstrap, USER, PASSWORD)
        yield running


def options(authority: TestAuthority) -> dict[str, Any]:
    return {"tls": TlsSettings(ca=str(authority.file)), "login": LOGIN}


def send(client: WireClient, topic: str, batch: bytes) -> Any:
    answer = client.ask(produce_request(topic, batch), 9)
    return answer.responses[0].partition_responses[0]


def test_only_what_can_be_read_is_stored(broker: BrokerProcess, authority: TestAuthority) -> None:
    stored = 0
    context = ssl.create_default_context(cafile=str(authority.file))
    with WireClient(broker.net_bootstrap, tls=context) as client:
        wire_log_in(client, USER, PASSWORD)
        create(client, "damaged")
        for case in damaged_batches(time.time_ns() // 1_000_000):
            one = send(client, "damaged", case.batch)
            assert ErrorCode(one.error_code) is case.ours, (case.name, one.error_message)
            if case.ours is ErrorCode.NONE:
                assert one.base_offset == stored
                stored += 2
            else:
                assert one.base_offset == -1

    async def read(cluster: Any) -> None:
        tp = TopicPartition("damaged", 0)
        values = await read_all(cluster, [tp], stored)
        assert values == {tp: [b"v"] * stored}

    connected(broker.net_bootstrap, read, **options(authority))
    assert read_by_librdkafka(broker.bootstrap, stored) == [b"v"] * stored


def read_by_librdkafka(bootstrap: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["damaged"])
    found: list[bytes | None] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), 30)
            assert messages, f"only {len(found)} of {count} records came"
            for message in messages:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                found.append(message.value())
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("codec", scenarios.CODECS)
def test_good_batches_of_every_codec_pass(
    broker: BrokerProcess, authority: TestAuthority, codec: str
) -> None:
    connected(
        broker.net_bootstrap, lambda cluster: scenarios.round_trip(cluster, codec),
        **options(authority),
    )  # fmt: skip


def test_transactions_pass(broker: BrokerProcess, authority: TestAuthority) -> None:
    connected(
        broker.net_bootstrap,
        transaction_scenarios.committed_is_seen_and_aborted_is_not,
        **options(authority),
    )


@pytest.mark.slow
def test_kafka_refuses_the_same(tmp_path: Path) -> None:
    """Each case has Kafka's own answer. It differs from our broker's answer only where
    `damaged_batches` says so."""
    found = {}
    cases = damaged_batches(time.time_ns() // 1_000_000)
    with KafkaProcess(tmp_path) as kafka, WireClient(kafka.bootstrap) as client:
        create(client, "damaged")
        first = cases[0].batch
        wait_until(lambda: send(client, "damaged", first).error_code == 0, 30, "it has a leader")
        for case in cases:
            found[case.name] = ErrorCode(send(client, "damaged", case.batch).error_code)
    assert found == {case.name: case.kafkas for case in cases}
    refused = [case for case in cases if case.kafkas]
    assert all(case.ours for case in refused), "our broker stores what Kafka refuses"
    tell(f"damaged batches: Kafka refuses {len(refused)} of {len(cases)}")
