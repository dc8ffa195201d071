"""Administration with unmodified Python clients. It gives the right results, without a warning."""

from __future__ import annotations

import asyncio
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

from tests.harness.cluster import ClusterProcesses
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("no_complaints")]


def fill(servers: ClusterProcesses, topic: str, count: int = 5) -> None:
    producer = Producer({"bootstrap.servers": servers.bootstrap})
    for number in range(count):
        producer.produce(topic, value=b"v%d" % number, partition=0)
    assert producer.flush(30) == 0


def done(futures: dict[Any, Any]) -> Any:
    return [future.result(30) for future in futures.values()]


def alter_configs_of(admin: AdminClient, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    for operation, value in (
        (AlterConfigOpType.APPEND, "compact"),
        (AlterConfigOpType.SUBTRACT, "delete"),
    ):
        change = ConfigEntry("cleanup.policy", value, incremental_operation=operation)
        done(
            admin.incremental_alter_configs(
                [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])]
            )
        )

    def value_of(key: str) -> str:
        (found,) = done(admin.describe_configs([resource]))
        return str(found[key].value)

    # Any broker can respond, and it learns of the change a moment later than the controller.
    wait_until(lambda: value_of("cleanup.policy") == "compact", 10, "the newest policy")
    assert value_of("retention.ms") == "9000"
    # AlterConfigs, the older request, resets every setting that it does not name.
    done(
        admin.alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "7000"})]
        )
    )
    wait_until(lambda: value_of("segment.ms") == "7000", 10, "the newest segment.ms")
    assert value_of("cleanup.policy") == "delete"


def test_confluent(servers: ClusterProcesses) -> None:
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    done(
        admin.create_topics(
            [NewTopic("confluent", 1, servers.size, config={"retention.ms": "9000"})]
        )
    )
    done(admin.create_partitions([NewPartitions("confluent", 2)]))
    fill(servers, "confluent")
    alter_configs_of(admin, "confluent")
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
    assert sorted(node.id for node in cluster.nodes) == servers.node_ids
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


def test_kafka_python(servers: ClusterProcesses) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers.bootstrap)
    try:
        admin.create_topics({"python": {"num_partitions": 2, "replication_factor": servers.size}})
        fill(servers, "python")
        described = admin.describe_configs([KafkaResource("topic", "python")])
        assert described
        admin.alter_configs([KafkaResource("topic", "python", {"retention.ms": "8000"})])
        first = kafka.TopicPartition("python", 0)
        assert admin.delete_records({first: 2})[first]["low_watermark"] == 2
        folders = admin.describe_log_dirs()
        assert all(str(one.log_dir) in str(folders) for one in servers.brokers.values())
        assert admin.list_partition_reassignments() == {}
        assert "python" in str(admin.describe_topic_partitions(["python"]))
        admin.alter_group_offsets("p", {first: OffsetAndMetadata(4, "note", -1)})
        assert "4" in str(admin.list_group_offsets({"p": None}))
        assert "p" in str(admin.list_groups())
        admin.delete_groups(["p"])
        assert admin.describe_cluster()["controller_id"] == servers.controller_id()
        assert admin.find_hanging_transactions() == []
        assert "python" in str(admin.describe_producers([first]))
        admin.delete_topics(["python"])
    finally:
        admin.close()


async def retention(admin: Any, resource: Any) -> str:
    (described,) = await admin.describe_configs([resource])
    values: dict[str, str] = {entry[0]: entry[1] for entry in described.resources[0][4]}
    return values["retention.ms"]


def test_aiokafka(servers: ClusterProcesses) -> None:
    async def run() -> None:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=servers.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([aiokafka.admin.NewTopic("aio", 1, servers.size)])
            fill(servers, "aio")
            resource = aiokafka.admin.config_resource.ConfigResource(
                aiokafka.admin.config_resource.ConfigResourceType.TOPIC,
                "aio",
                configs={"retention.ms": "7000"},
            )
            (altered,) = await admin.alter_configs([resource])
            assert altered.resources[0][0] == 0, altered
            async with asyncio.timeout(10):
                # Any broker can respond here and below, and it learns of the change a moment later
                # than the controller. Kafka's brokers do the same.
                while await retention(admin, resource) != "7000":
                    await asyncio.sleep(0.02)
            first = AioPartition("aio", 0)
            before = aiokafka.admin.RecordsToDelete(2)
            assert await admin.delete_records({first: before}) == {first: 2}
            await admin.create_partitions({"aio": aiokafka.admin.NewPartitions(3)})
            async with asyncio.timeout(10):
                while len((await admin.describe_topics(["aio"]))[0]["partitions"]) < 3:
                    await asyncio.sleep(0.02)
            assert (await admin.describe_cluster())["controller_id"] == servers.controller_id()
            await admin.delete_topics(["aio"])
        finally:
            await admin.close()

    asyncio.run(run())
