"""Our client's guarantees with our real broker, even if the broker is killed."""

from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.cluster import ClusterProcesses
from tests.harness.seed import seeded
from tests.interop import client_scenarios as scenarios
from tests.interop import consumer_scenarios, mixed_group, transaction_scenarios
from tests.interop.client_scenarios import connected

pytestmark = pytest.mark.live

KILLS = 3
TRANSACTION_KILLS = 2

SETTINGS = consumer_scenarios.SERVER


@pytest.mark.parametrize("codec", scenarios.CODECS)
def test_round_trip(servers: ClusterProcesses, codec: str) -> None:
    connected(servers.mill_bootstrap, lambda cluster: scenarios.round_trip(cluster, codec))


@pytest.mark.parametrize("scenario", scenarios.ALL, ids=lambda scenario: scenario.__name__)
def test_scenario(servers: ClusterProcesses, scenario: scenarios.Scenario) -> None:
    connected(servers.mill_bootstrap, scenario)


@pytest.mark.parametrize("scenario", consumer_scenarios.ALL, ids=lambda s: s.__name__)
def test_consumer(servers: ClusterProcesses, scenario: scenarios.Scenario) -> None:
    connected(servers.mill_bootstrap, scenario)


@pytest.mark.parametrize("scenario", transaction_scenarios.ALL, ids=lambda s: s.__name__)
def test_transactional_producer(servers: ClusterProcesses, scenario: scenarios.Scenario) -> None:
    connected(servers.mill_bootstrap, scenario)


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, marks=() if scenario in mixed_group.QUICK else pytest.mark.slow)
        for scenario in mixed_group.ALL
    ],
    ids=lambda s: s.__name__,
)
def test_mixed_group(servers: ClusterProcesses, scenario: scenarios.Scenario) -> None:
    connected(servers.mill_bootstrap, scenario)


def test_nothing_is_lost_doubled_or_reordered_when_the_broker_is_killed(tmp_path: Path) -> None:
    rng = seeded("killed broker")
    with BrokerProcess(tmp_path) as broker:
        connected(
            broker.mill_bootstrap,
            lambda cluster: scenarios.load_with_kills(cluster, broker, rng, KILLS),
        )


def test_each_record_comes_out_once_when_the_broker_is_killed(tmp_path: Path) -> None:
    rng = seeded("killed broker in transactions")
    with BrokerProcess(tmp_path, consumer_scenarios.SERVER) as broker:
        connected(
            broker.mill_bootstrap,
            lambda cluster: transaction_scenarios.exactly_once_with_kills(
                cluster, broker, rng, TRANSACTION_KILLS
            ),
        )
