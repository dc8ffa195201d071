"""Unmodified kafkajs: records, groups, transactions and administration without a warning."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.harness.cluster import ClusterProcesses
from tests.harness.node import node_modules, run_kafkajs

pytestmark = [pytest.mark.live, pytest.mark.slow]

SETTINGS = {"group.initial.rebalance.delay.ms": 0}

MAKING = "The group coordinator is not available"
"""Kafka returns this error too, while the topic of the first group or transaction is created."""


@pytest.fixture(scope="module", autouse=True)
def topics(servers: ClusterProcesses) -> None:
    """Create the topics that the programs write."""
    node_modules()
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    names = ("records", "groups", "input", "output")
    made = admin.create_topics([NewTopic(name, 3, servers.size) for name in names])
    for future in made.values():
        future.result(30)


def test_records(servers: ClusterProcesses) -> None:
    provoked = MAKING if servers.size > 1 else ""
    assert "done" in run_kafkajs(servers.bootstrap, "records", "records", provoked=provoked)


def test_groups(servers: ClusterProcesses) -> None:
    # kafkajs logs every rebalance as an error.
    assert "done" in run_kafkajs(
        servers.bootstrap, "groups", "groups", provoked="group is rebalancing"
    )


def test_transactions(servers: ClusterProcesses) -> None:
    # kafkajs also logs an error if it begins a transaction while the markers of the last one are
    # still being written.
    wanted = ("transactions", "input", "output")
    making = f"|{MAKING}" if servers.size > 1 else ""
    assert "done" in run_kafkajs(
        servers.bootstrap, *wanted, provoked=f"another concurrent operation{making}"
    )


def test_administration(servers: ClusterProcesses) -> None:
    # The program creates a topic twice, because the second CreateTopics must be rejected.
    wanted = ("administration", "administered", str(servers.size))
    assert "done" in run_kafkajs(servers.bootstrap, *wanted, provoked="Topic creation errors")
