"""Java's kafka-clients, unmodified: the release Spark brings along, and the newest there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, only not said so
    AdminClient,
    NewTopic,
)

from tests.harness.broker import BrokerProcess
from tests.harness.java import NEWEST, SPARKS, JavaClients
from tests.harness.tools import warnings_of

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker", {"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker
        # Clients whose session is fenced, or whose topic goes, say so themselves.
        assert warnings_of(broker.log_text()) == []


@pytest.fixture(scope="module", params=[SPARKS, NEWEST], ids=["spark", "newest"])
def clients(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> JavaClients:
    clients = JavaClients(tmp_path_factory.mktemp("java"), request.param)
    print(clients.jar_names)
    return clients


def create(broker: BrokerProcess, *topics: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    made = admin.create_topics([NewTopic(name, partitions, 1) for name in topics])
    for future in made.values():
        future.result(30)


def test_records_of_every_codec(clients: JavaClients, broker: BrokerProcess) -> None:
    create(broker, "records")
    assert "read 1500" in clients.run("Records", broker.bootstrap, "records")


def test_groups_under_every_assignor(clients: JavaClients, broker: BrokerProcess) -> None:
    create(broker, "grouped", partitions=6)
    assert "all read" in clients.run("Groups", broker.bootstrap, "grouped")


def test_transactions(clients: JavaClients, broker: BrokerProcess) -> None:
    create(broker, "input", "output")
    said = clients.run(
        "Transactions",
        *(broker.bootstrap, "input", "output"),
        provoked="newer producer with the same transactionalId",
    )
    assert "fenced" in said
    assert "transformed 500" in said


def test_administration(clients: JavaClients, broker: BrokerProcess) -> None:
    said = clients.run(
        "Administration",
        *(broker.bootstrap, "administered"),
        provoked="DeleteRecords request .* (OFFSET_OUT_OF_RANGE|POLICY_VIOLATION)",
    )
    assert "calls " in said
