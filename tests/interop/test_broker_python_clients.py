"""Unmodified aiokafka and kafka-python with our broker."""

import asyncio

import aiokafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
)
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from tests.harness.cluster import ClusterProcesses
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("no_complaints")]

COUNT = 500


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_aiokafka_round_trip(servers: ClusterProcesses, codec: str | None) -> None:
    topic = f"aio-{codec}"
    values = [b"value %d" % number for number in range(COUNT)]

    async def run() -> list[bytes]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers.bootstrap,
            compression_type=codec,
            enable_idempotence=True,
            linger_ms=2,
        )
        async with producer:
            sent = [await producer.send(topic, value) for value in values]
            await asyncio.gather(*sent)
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers.bootstrap, isolation_level="read_committed"
        )
        async with consumer:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            assert await consumer.end_offsets([partition]) == {partition: COUNT}
            found: list[bytes] = []
            async with asyncio.timeout(30):
                while len(found) < COUNT:
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        found.extend(record.value for record in records)
            return found

    assert asyncio.run(run()) == values


def test_aiokafka_commits_without_members(servers: ClusterProcesses) -> None:
    async def run() -> tuple[int, int | None]:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([AioNewTopic("aio-commits", 1, servers.size)])
        finally:
            await admin.close()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers.bootstrap, group_id="aio-group", enable_auto_commit=False
        )
        async with consumer:
            partition = aiokafka.TopicPartition("aio-commits", 0)
            consumer.assign([partition])
            before = await consumer.committed(partition)
            await consumer.commit({partition: (7, "note")})
            assert before is None
            return await consumer.committed(partition), before

    assert asyncio.run(run())[0] == 7


# snappy is left out, because kafka-python needs one more library for it.
@pytest.mark.parametrize("codec", [None, "gzip", "lz4", "zstd"])
def test_kafka_python_round_trip(servers: ClusterProcesses, codec: str | None) -> None:
    topic = f"kp-{codec}"
    values = [b"value %d" % number for number in range(COUNT)]
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers.bootstrap, compression_type=codec, linger_ms=2
    )
    sent = [producer.send(topic, value, headers=[("h", b"x")]) for value in values]
    assert sent[-1].get(30).offset == COUNT - 1
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers.bootstrap, enable_auto_commit=False)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    assert consumer.end_offsets([partition]) == {partition: COUNT}
    found: list[bytes] = []
    for _ in range(60):
        if len(found) >= COUNT:
            break
        for records in consumer.poll(500).values():
            found.extend(record.value for record in records)
    consumer.close()
    assert found == values


def test_kafka_python_admin(servers: ClusterProcesses) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers.bootstrap)
    admin.create_topics(
        [NewTopic("kp-admin", 2, servers.size, topic_configs={"retention.ms": "5000"})]
    )
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic("kp-admin", 2, servers.size)])
    admin.create_partitions({"kp-admin": NewPartitions(total_count=3)})
    # Any broker can respond, and it learns of the change a moment later than the controller.
    wait_until(
        lambda: len(admin.describe_topics(["kp-admin"])[0]["partitions"]) == 3, 10, "it has grown"
    )
    described = str(admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "kp-admin")]))
    assert "retention.ms" in described
    assert "5000" in described
    admin.delete_topics(["kp-admin"])
    wait_until(lambda: "kp-admin" not in admin.list_topics(), 10, "it is gone")
    admin.close()


def test_kafka_python_offsets(servers: ClusterProcesses) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers.bootstrap)
    admin.create_topics([NewTopic("kp-commits", 1, servers.size)])
    partition = kafka.TopicPartition("kp-commits", 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers.bootstrap, group_id="kp-group", enable_auto_commit=False
    )
    consumer.assign([partition])
    assert consumer.committed(partition) is None
    consumer.commit({partition: OffsetAndMetadata(9, "note", 0)})
    assert consumer.committed(partition) == 9
    consumer.close()
    assert "kp-group" in str(admin.list_groups())
    assert "Empty" in str(admin.describe_groups(["kp-group"]))
    admin.close()
