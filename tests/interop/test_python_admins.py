"""The administrative side of the Python clients, unmodified: results, and not one warning."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiokafka.admin
import kafka
import pytest
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka.admin import ConfigResource as KafkaResource
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata

from tests.harness.broker import BrokerProcess
from tests.harness.tools import warnings_of

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("no_complaints")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("admins")) as broker:
        yield broker
        assert warnings_of(broker.log_text()) == []


def fill(broker: BrokerProcess, topic: str, count: int = 5) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, value=b"v%d" % number, partition=0)
    assert producer.flush(30) == 0


def test_confluent(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def done(futures: dict[Any, Any]) -> Any:
        return [future.result(30) for future in futures.values()]

    done(admin.create_topics([NewTopic("confluent", 1, 1, config={"retention.ms": "9000"})]))
    done(admin.create_partitions([NewPartitions("confluent", 2)]))
    fill(broker, "confluent")
    resource = ConfigResource(ResourceType.TOPIC, "confluent")
    for operation, value in (
        (AlterConfigOpType.APPEND, "compact"),
        (AlterConfigOpType.SUBTRACT, "delete"),
    ):
        change = ConfigEntry("cleanup.policy", value, incremental_operation=operation)
        done(
            admin.incremental_alter_configs(
                [ConfigResource(ResourceType.TOPIC, "confluent", incremental_configs=[change])]
            )
        )
    (found,) = done(admin.describe_configs([resource]))
    assert found["cleanup.policy"].value == "compact"
    assert found["retention.ms"].value == "9000"
    # The older call resets what it does not name.
    done(
        admin.alter_configs(
            [ConfigResource(ResourceType.TOPIC, "confluent", set_config={"segment.ms": "7000"})]
        )
    )
    (found,) = done(admin.describe_configs([resource]))
    assert found["segment.ms"].value == "7000"
    assert found["cleanup.policy"].is_default
    first = TopicPartition("confluent", 0)
    spec: Any = OffsetSpec
    (ends,) = done(admin.list_offsets({first: spec.latest()}))
    assert ends.offset == 5
    (deleted,) = done(admin.delete_records([TopicPartition("confluent", 0, 3)]))
    assert deleted.low_watermark == 3
    (starts,) = done(admin.list_offsets({first: spec.earliest()}))
    assert starts.offset == 3
    committed = ConsumerGroupTopicPartitions("g", [TopicPartition("confluent", 0, 4)])
    done(admin.alter_consumer_group_offsets([committed]))
    (offsets,) = done(
        admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g", [first])])
    )
    assert offsets.topic_partitions[0].offset == 4
    assert "g" in {one.group_id for one in admin.list_consumer_groups().result(30).valid}
    (described,) = done(admin.describe_consumer_groups(["g"]))
    assert described.state.name == "EMPTY"
    done(admin.delete_consumer_groups(["g"]))
    cluster = admin.describe_cluster().result(30)
    assert [node.id for node in cluster.nodes] == [1]
    with pytest.raises(KafkaException, match="INVALID_REQUEST"):
        done(
            admin.incremental_alter_configs(
                [
                    ConfigResource(
                        ResourceType.BROKER,
                        "1",
                        incremental_configs=[
                            ConfigEntry(
                                "log.retention.hours",
                                "1",
                                incremental_operation=AlterConfigOpType.SET,
                            )
                        ],
                    )
                ]
            )
        )
    done(admin.delete_topics(["confluent"]))


def test_kafka_python(broker: BrokerProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.create_topics({"python": {"num_partitions": 2, "replication_factor": 1}})
        fill(broker, "python")
        described = admin.describe_configs([KafkaResource("topic", "python")])
        assert described
        admin.alter_configs([KafkaResource("topic", "python", {"retention.ms": "8000"})])
        first = kafka.TopicPartition("python", 0)
        assert admin.delete_records({first: 2})[first]["low_watermark"] == 2
        folders = admin.describe_log_dirs()
        assert str(broker.log_dir) in str(folders)
        assert admin.list_partition_reassignments() == {}
        assert "python" in str(admin.describe_topic_partitions(["python"]))
        admin.alter_group_offsets("p", {first: OffsetAndMetadata(4, "note", -1)})
        assert "4" in str(admin.list_group_offsets({"p": None}))
        assert "p" in str(admin.list_groups())
        admin.delete_groups(["p"])
        assert admin.describe_cluster()["controller_id"] == 1
        assert admin.find_hanging_transactions() == []
        assert "python" in str(admin.describe_producers([first]))
        admin.delete_topics(["python"])
    finally:
        admin.close()


def test_aiokafka(broker: BrokerProcess) -> None:
    async def run() -> None:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([aiokafka.admin.NewTopic("aio", 1, 1)])
            fill(broker, "aio")
            resource = aiokafka.admin.config_resource.ConfigResource(
                aiokafka.admin.config_resource.ConfigResourceType.TOPIC,
                "aio",
                configs={"retention.ms": "7000"},
            )
            (altered,) = await admin.alter_configs([resource])
            assert altered.resources[0][0] == 0, altered
            (described,) = await admin.describe_configs([resource])
            values = {entry[0]: entry[1] for entry in described.resources[0][4]}
            assert values["retention.ms"] == "7000"
            first = AioPartition("aio", 0)
            before = aiokafka.admin.RecordsToDelete(2)
            assert await admin.delete_records({first: before}) == {first: 2}
            await admin.create_partitions({"aio": aiokafka.admin.NewPartitions(3)})
            assert len((await admin.describe_topics(["aio"]))[0]["partitions"]) == 3
            assert (await admin.describe_cluster())["controller_id"] == 1
            await admin.delete_topics(["aio"])
        finally:
            await admin.close()

    asyncio.run(run())
