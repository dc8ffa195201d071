"""Our client's guarantees with Apache Kafka, in the same scenarios as with our broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.kafka import KafkaProcess
from tests.harness.seed import seeded
from tests.interop import client_scenarios as scenarios
from tests.interop import consumer_scenarios, mixed_group, transaction_scenarios
from tests.interop.client_scenarios import connected

pytestmark = [pytest.mark.live, pytest.mark.slow]

KILLS = 2


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    folder = tmp_path_factory.mktemp("kafka")
    with KafkaProcess(folder, properties=consumer_scenarios.SERVER) as process:
        yield process


@pytest.mark.parametrize("codec", scenarios.CODECS)
def test_round_trip(kafka: KafkaProcess, codec: str) -> None:
    connected(kafka.bootstrap, lambda cluster: scenarios.round_trip(cluster, codec))


@pytest.mark.parametrize("scenario", scenarios.ALL, ids=lambda scenario: scenario.__name__)
def test_scenario(kafka: KafkaProcess, scenario: scenarios.Scenario) -> None:
    connected(kafka.bootstrap, scenario)


@pytest.mark.parametrize("scenario", consumer_scenarios.ALL, ids=lambda s: s.__name__)
def test_consumer(kafka: KafkaProcess, scenario: scenarios.Scenario) -> None:
    connected(kafka.bootstrap, scenario)


@pytest.mark.parametrize("scenario", transaction_scenarios.ALL, ids=lambda s: s.__name__)
def test_transactional_producer(kafka: KafkaProcess, scenario: scenarios.Scenario) -> None:
    connected(kafka.bootstrap, scenario)


@pytest.mark.parametrize("scenario", mixed_group.ALL, ids=lambda s: s.__name__)
def test_mixed_group(kafka: KafkaProcess, scenario: scenarios.Scenario) -> None:
    connected(kafka.bootstrap, scenario)


def test_nothing_is_lost_doubled_or_reordered_when_kafka_is_killed(tmp_path: Path) -> None:
    rng = seeded("killed Kafka")
    with KafkaProcess(tmp_path) as kafka:
        connected(
            kafka.bootstrap, lambda cluster: scenarios.load_with_kills(cluster, kafka, rng, KILLS)
        )


def test_each_record_comes_out_once_when_kafka_is_killed(tmp_path: Path) -> None:
    rng = seeded("killed Kafka in transactions")
    with KafkaProcess(tmp_path, properties=consumer_scenarios.SERVER) as kafka:
        connected(
            kafka.bootstrap,
            lambda cluster: transaction_scenarios.exactly_once_with_kills(
                cluster, kafka, rng, KILLS
            ),
        )
