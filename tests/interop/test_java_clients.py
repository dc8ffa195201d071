"""Java's unmodified kafka-clients in two releases: the one in Spark, and the newest one."""

from __future__ import annotations

from itertools import count

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.harness.cluster import ClusterProcesses
from tests.harness.java import NEWEST, SPARKS, JavaClients, client_version

pytestmark = [pytest.mark.live, pytest.mark.slow]

SETTINGS = {"group.initial.rebalance.delay.ms": 0}

_numbers = count(1)


@pytest.fixture(scope="module", params=[SPARKS, NEWEST], ids=["spark", "newest"])
def clients(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> JavaClients:
    clients = JavaClients(tmp_path_factory.mktemp("java"), request.param)
    print(client_version(request.param))
    return clients


def new_topic(servers: ClusterProcesses, partitions: int = 2) -> str:
    name = f"topic-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    admin.create_topics([NewTopic(name, partitions, servers.size)])[name].result(30)
    return name


def test_records_of_every_codec(clients: JavaClients, servers: ClusterProcesses) -> None:
    assert "read 1500" in clients.run("Records", servers.bootstrap, new_topic(servers))


def test_groups_under_every_assignor(clients: JavaClients, servers: ClusterProcesses) -> None:
    topic = new_topic(servers, partitions=6)
    assert "all read" in clients.run("Groups", servers.bootstrap, topic)


def test_transactions(clients: JavaClients, servers: ClusterProcesses) -> None:
    said = clients.run(
        "Transactions",
        *(servers.bootstrap, new_topic(servers), new_topic(servers)),
        provoked="newer producer with the same transactionalId",
    )
    assert "fenced" in said
    assert "transformed 500" in said


def test_administration(clients: JavaClients, servers: ClusterProcesses) -> None:
    said = clients.run(
        "Administration",
        *(servers.bootstrap, f"administered-{next(_numbers)}", str(servers.size)),
        provoked="DeleteRecords request .* (OFFSET_OUT_OF_RANGE|POLICY_VIOLATION)",
    )
    assert "calls " in said
