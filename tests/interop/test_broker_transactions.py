"""Transactional producers and read_committed consumers of three unmodified client libraries."""

import asyncio
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.errors import ProducerFenced
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka.structs import OffsetAndMetadata

from tests.harness.cluster import ClusterProcesses
from tests.harness.transform import read_committed
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("no_complaints")]

PARTITIONS = 2
DEADLINE_S = 30.0
ROUNDS = 6

SETTINGS = {
    "num.partitions": PARTITIONS,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}


def value(round_number: int, partition: int) -> bytes:
    return b"%d-%d" % (round_number, partition)


def is_committed(round_number: int) -> bool:
    return round_number % 3 != 1


COMMITTED = {
    partition: [value(number, partition) for number in range(ROUNDS) if is_committed(number)]
    for partition in range(PARTITIONS)
}


def until_committed(servers: ClusterProcesses, topic: str) -> None:
    """Wait until a read_committed consumer sees the last transaction. Its markers are written after
    the producer got the response to EndTxn."""
    wait_until(
        lambda: read_committed(servers.bootstrap, topic, PARTITIONS) == COMMITTED,
        DEADLINE_S,
        "what was committed stands there, and nothing else",
    )


def confluent_producer(servers: ClusterProcesses, name: str, **settings: Any) -> Producer:
    options = {"bootstrap.servers": servers.bootstrap, "transactional.id": name}
    producer = Producer(options | {key.replace("_", "."): one for key, one in settings.items()})
    producer.init_transactions(DEADLINE_S)
    return producer


def test_confluent_commits_and_aborts(servers: ClusterProcesses) -> None:
    producer = confluent_producer(servers, "confluent")
    for number in range(ROUNDS):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("confluent", value(number, partition), partition=partition)
        producer.flush(DEADLINE_S)
        if is_committed(number):
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)
    until_committed(servers, "confluent")


@pytest.mark.provokes(r"\|GETPID\|.* concurrent operation ", "fenced by a newer instance")
def test_confluent_is_fenced_by_its_successor(servers: ClusterProcesses) -> None:
    zombie = confluent_producer(servers, "fenced")
    zombie.begin_transaction()
    zombie.produce("fenced", b"zombie", partition=0)
    zombie.flush(DEADLINE_S)
    successor = confluent_producer(servers, "fenced")
    successor.begin_transaction()
    successor.produce("fenced", b"successor", partition=0)
    successor.commit_transaction(DEADLINE_S)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(DEADLINE_S)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert read_committed(servers.bootstrap, "fenced", 1) == {0: [b"successor"]}


@pytest.mark.provokes("fenced by a newer instance")
def test_confluent_learns_that_its_transaction_took_too_long(servers: ClusterProcesses) -> None:
    slow = confluent_producer(servers, "slow", transaction_timeout_ms=1_000)
    slow.begin_transaction()
    slow.produce("slow", b"slow", partition=0)
    slow.flush(DEADLINE_S)
    took_too_long = "a transaction has exceeded its timeout"
    wait_until(lambda: took_too_long in servers.log_text(), DEADLINE_S, "the overdue abort")
    with pytest.raises(KafkaException):
        slow.commit_transaction(DEADLINE_S)
    assert read_committed(servers.bootstrap, "slow", 1) == {0: []}


@pytest.mark.provokes(r"max\.transaction\.timeout\.ms")
def test_pitfall_28_a_timeout_above_the_brokers_limit_is_told(servers: ClusterProcesses) -> None:
    with pytest.raises(KafkaException) as caught:
        confluent_producer(servers, "patient", transaction_timeout_ms=900_001)
    assert caught.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_aiokafka_commits_and_aborts(servers: ClusterProcesses) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers.bootstrap, transactional_id="aiokafka"
        )
        async with producer:
            for number in range(ROUNDS):
                await producer.begin_transaction()
                for partition in range(PARTITIONS):
                    await producer.send_and_wait(
                        "aiokafka", value(number, partition), partition=partition
                    )
                if is_committed(number):
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    until_committed(servers, "aiokafka")


def test_aiokafka_is_fenced_by_its_successor(servers: ClusterProcesses) -> None:
    def new_producer() -> aiokafka.AIOKafkaProducer:
        return aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers.bootstrap, transactional_id="aio-fenced"
        )

    async def run() -> None:
        zombie = new_producer()
        await zombie.start()
        await zombie.begin_transaction()
        await zombie.send_and_wait("aio-fenced", b"zombie", partition=0)
        async with new_producer() as successor, successor.transaction():
            await successor.send_and_wait("aio-fenced", b"successor", partition=0)
        with pytest.raises(ProducerFenced):
            await zombie.commit_transaction()
        await zombie.stop()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    assert read_committed(servers.bootstrap, "aio-fenced", 1) == {0: [b"successor"]}


def test_aiokafka_reads_committed_data_and_commits_offsets_in_transactions(
    servers: ClusterProcesses,
) -> None:
    source = aiokafka.TopicPartition("aio-in", 0)

    async def run() -> list[bytes | None]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers.bootstrap, transactional_id="aio-offsets"
        )
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers.bootstrap,
            group_id="aio-group",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        last = 0
        async with producer, consumer:
            for number in range(ROUNDS):
                await producer.begin_transaction()
                await producer.send_and_wait("aio-in", b"%d" % number, partition=0)
                await producer.send_offsets_to_transaction({source: number}, "aio-group")
                if is_committed(number):
                    await producer.commit_transaction()
                    last = number
                else:
                    await producer.abort_transaction()
                consumer.assign([source])
                # aiokafka requests committed offsets without `require_stable`. So the response can
                # have the offset before the transaction, until its marker is written.
                while await consumer.committed(source) != last:
                    await asyncio.sleep(0.01)
            await consumer.seek_to_beginning(source)
            values: list[bytes | None] = []
            while len(values) < len(COMMITTED[0]):
                found = await consumer.getmany(source, timeout_ms=1_000)
                values += [record.value for records in found.values() for record in records]
        return values

    values = asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    assert values == [b"%d" % number for number in range(ROUNDS) if is_committed(number)]


def test_kafka_python_commits_and_aborts(servers: ClusterProcesses) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers.bootstrap, transactional_id="kafka-python"
    )
    producer.init_transactions()
    for number in range(ROUNDS):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.send("kafka-python", value(number, partition), partition=partition)
        producer.send_offsets_to_transaction(
            {kafka.TopicPartition("kafka-python", 0): OffsetAndMetadata(number, "", -1)}, "kp-group"
        )
        if is_committed(number):
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    producer.close()
    until_committed(servers, "kafka-python")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers.bootstrap,
        group_id="kp-group",
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    source = kafka.TopicPartition("kafka-python", 0)
    consumer.assign([source])
    assert consumer.committed(source) == max(one for one in range(ROUNDS) if is_committed(one))
    consumer.seek_to_beginning(source)
    found: list[bytes] = []

    def has_read_all() -> bool:
        for records in consumer.poll(timeout_ms=200).values():
            found.extend(record.value for record in records)
        return len(found) >= len(COMMITTED[0])

    wait_until(has_read_all, DEADLINE_S, "everything committed")
    assert found == COMMITTED[0]
    consumer.close()
