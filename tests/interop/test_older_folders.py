"""Data folders of earlier versions can be opened without conversion."""

from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from tests.harness import ROOT
from tests.harness import older_folder as older
from tests.harness.broker import BrokerProcess

pytestmark = pytest.mark.live

ARCHIVES = sorted((ROOT / "tests" / "fixtures").glob("broker-*.tar.xz"))
DEADLINE_S = 30.0


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name, scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("older")
    broker = BrokerProcess(folder, older.FOR_EVER)
    older.unpack(request.param, broker)
    with broker:
        yield broker


def read(
    broker: BrokerProcess, topic: str, partition: int, isolation: str
) -> list[tuple[str, str]]:
    """Return key and value of all records that a consumer with this isolation level sees."""
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "test",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[tuple[str, str]] = []
    while True:
        message = reader.poll(DEADLINE_S)
        assert message is not None, "neither records nor the partition's end"
        if message.error() is not None:
            reader.close()
            return found
        found.append(((message.key() or b"").decode(), (message.value() or b"").decode()))


def test_there_is_an_archive() -> None:
    assert ARCHIVES


def test_records_are_there(broker: BrokerProcess) -> None:
    for partition, values in older.plain_values().items():
        found = read(broker, older.PLAIN, partition, "read_uncommitted")
        assert [value for _, value in found] == values
    assert dict(read(broker, older.COMPACTED, 0, "read_uncommitted")) == older.compacted_last()


def test_transactions_are_there(broker: BrokerProcess) -> None:
    found = read(broker, older.IN_TRANSACTIONS, 0, "read_committed")
    assert [value for _, value in found] == older.committed_values()


def test_group_offsets_are_there(broker: BrokerProcess) -> None:
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": older.GROUP})
    (place,) = reader.committed([TopicPartition(older.PLAIN, 0)], DEADLINE_S)
    reader.close()
    assert (place.offset, place.metadata) == (older.COMMITTED_OFFSET, older.COMMITTED_METADATA)


def test_topics_and_settings_are_there(broker: BrokerProcess) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    names = set(client.list_topics(timeout=DEADLINE_S).topics)
    assert names >= {older.PLAIN, older.COMPACTED, older.IN_TRANSACTIONS}
    assert older.DELETED not in names
    (described,) = client.describe_configs(
        [ConfigResource(ResourceType.TOPIC, older.PLAIN)]
    ).values()
    assert described.result(DEADLINE_S)["retention.ms"].value == older.RETENTION_MS


def test_a_transactional_producer_goes_on(broker: BrokerProcess) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": older.TRANSACTIONAL_ID}
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(older.IN_TRANSACTIONS, "afterwards")
    producer.commit_transaction(DEADLINE_S)
    found = read(broker, older.IN_TRANSACTIONS, 0, "read_committed")
    assert [value for _, value in found] == [*older.committed_values(), "afterwards"]
