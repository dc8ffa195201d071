"""Every client library works while three brokers restart one after the other, and while they are
upgraded from 1.0.0-rc1 to this version and back.

The rounds are those of `restart --rolling` and `upgrade`: the active controller is the last, and
the next broker stops only when all replicas are in sync. No acknowledged record may be lost,
duplicated or out of order. The application may get only the errors in `ALLOWED`. The long form runs
the same rounds with Apache Kafka, whose clients get these errors too.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from appliance.config.replication import replication_settings
from tests.harness import families
from tests.harness.cluster import ClusterProcesses
from tests.harness.kafka import KafkaProcess
from tests.harness.released import released_code, run_present, run_released
from tests.harness.verifiable.process import Family, Verifiable
from tests.harness.verifiable.scene import (
    PROGRESS_DEADLINE_S,
    Servers,
    clients_at_work,
    finish,
    wait_for_progress,
)
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

ROUNDS_LONG = 20
ROUNDS_OF_KAFKA = 5
UPGRADES = 5

SETTINGS = {**replication_settings(3), "group.initial.rebalance.delay.ms": 0}

METADATA_TIMEOUT_S = 10.0

ALLOWED: Mapping[str, Container[str]] = {
    "confluent-kafka": {"commit NOT_COORDINATOR", "commit COORDINATOR_LOAD_IN_PROGRESS"},
    "kcat": {"consume Local: Broker transport failure"},
    "kafkajs": {
        "commit KafkaJSNumberOfRetriesExceeded",
        "commit KafkaJSNonRetriableError",
        "transact NOT_COORDINATOR_FOR_GROUP",
        "transact GROUP_LOAD_IN_PROGRESS",
    },
}
"""The errors that a family's application may get in a rolling restart. librdkafka reports the error
of a commit after two attempts within half a second, and kcat prints each connection that ends.
kafkajs repeats a commit five times, but does not ask again for the brokers and the coordinator.
With Apache Kafka, kafkajs got the first and the third of its four errors in two rounds."""


def allowed(family: Family) -> Container[str]:
    return ALLOWED.get(family.name, ())


def wait_until_in_sync(servers: Servers) -> None:
    """Wait until every partition of every topic has a leader and all its replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": servers.bootstrap, "log_level": 0})

    def behind() -> list[str]:
        topics = admin.list_topics(timeout=METADATA_TIMEOUT_S).topics
        return [
            f"{name}-{number}"
            for name, topic in topics.items()
            for number, one in topic.partitions.items()
            if one.leader < 0 or len(one.isrs) < len(one.replicas)
        ]

    wait_until(lambda: not behind(), PROGRESS_DEADLINE_S, "all are in sync", progress=behind)


def rolled(
    servers: Servers,
    clients: Sequence[Verifiable],
    what: str,
    changed: Callable[[int], None] = lambda _: None,
) -> None:
    """Restart the brokers in turn, the active controller last. Call `changed` with each broker
    while it is stopped."""
    last = wait_until(servers.controller_id, PROGRESS_DEADLINE_S, "a controller")
    for node_id in sorted((1, 2, 3), key=lambda one: (one == last, one)):
        wait_until_in_sync(servers)
        servers.stop(node_id)
        changed(node_id)
        servers.start()
        wait_for_progress(clients, f"all go on after {what} of broker {node_id}")


def run(servers: Servers, folder: Path, wanted: Sequence[Family], rounds: int) -> None:
    with clients_at_work(servers, folder, wanted) as clients:
        wait_for_progress(clients, "all are at work")
        for number in range(rounds):
            rolled(servers, clients, f"restart {number}")
        faults = finish(servers, clients, f"{rounds} rolling restarts", allowed)
        assert not faults, faults


def test_families_see_nothing_of_a_rolling_restart(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster", SETTINGS) as cluster:
        run(cluster, tmp_path, families.IN_SHORT, 1)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_all_families_see_nothing_of_rolling_restarts(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster", SETTINGS) as cluster:
        run(cluster, tmp_path, families.ALL, ROUNDS_LONG)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_all_families_see_nothing_of_upgrades_and_downgrades(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path / "cluster", SETTINGS)
    code = released_code(tmp_path)

    def released(node_id: int) -> None:
        run_released(cluster.brokers[node_id], code)

    def present(node_id: int) -> None:
        run_present(cluster.brokers[node_id])

    for node_id in cluster.node_ids:
        released(node_id)
    with cluster, clients_at_work(cluster, tmp_path, families.ALL) as clients:
        wait_for_progress(clients, "all are at work")
        for number in range(UPGRADES):
            rolled(cluster, clients, f"upgrade {number}", present)
            rolled(cluster, clients, f"downgrade {number}", released)
        faults = finish(cluster, clients, f"{UPGRADES} upgrades and downgrades", allowed)
        assert not faults, faults


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_the_same_rounds_with_apache_kafka(tmp_path: Path) -> None:
    with KafkaProcess(
        tmp_path / "kafka", nodes=3, properties={"min.insync.replicas": "2"}
    ) as kafka:
        run(kafka, tmp_path, families.ALL, ROUNDS_OF_KAFKA)
