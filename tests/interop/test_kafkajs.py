"""kafkajs, unmodified: records, groups, transactions and administration without a warning."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.harness.broker import BrokerProcess
from tests.harness.node import node_modules, run_kafkajs
from tests.harness.tools import warnings_of

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    node_modules()
    folder = tmp_path_factory.mktemp("kafkajs")
    with BrokerProcess(folder, {"group.initial.rebalance.delay.ms": 0}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        names = ("records", "groups", "input", "output")
        made = admin.create_topics([NewTopic(name, 3, 1) for name in names])
        for future in made.values():
            future.result(30)
        yield broker
        assert warnings_of(broker.log_text()) == []


def test_records(broker: BrokerProcess) -> None:
    run_kafkajs(broker.bootstrap, "records", "records")


def test_groups(broker: BrokerProcess) -> None:
    # It calls every rebalance an error.
    run_kafkajs(broker.bootstrap, "groups", "groups", provoked="group is rebalancing")


def test_transactions(broker: BrokerProcess) -> None:
    # So it does with a transaction begun while the markers of the last are being written.
    wanted = ("transactions", "input", "output")
    run_kafkajs(broker.bootstrap, *wanted, provoked="another concurrent operation")


def test_administration(broker: BrokerProcess) -> None:
    # A topic is made twice, to see that the second is refused.
    wanted = ("administration", "administered")
    run_kafkajs(broker.bootstrap, *wanted, provoked="Topic creation errors")
