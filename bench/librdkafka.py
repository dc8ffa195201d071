"""Uses librdkafka as the load: produces and consumes through confluent-kafka, as its users do."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TIMEOUT_S = 60.0
CONSUME_AT_ONCE = 10_000


class Lost(Exception):
    """Records were not acknowledged, or could not be read back."""


@dataclass(frozen=True, slots=True)
class Replication:
    """The number of replicas of a topic, and the `acks` of its producers."""

    replicas: int
    acks: str
    settings: Mapping[str, str]
    """The topic's settings."""


ALONE = Replication(1, "1", {})
OF_THREE = Replication(3, "all", {"min.insync.replicas": "2"})


class Topics:
    """Creates and deletes topics of one cluster."""

    def __init__(self, bootstrap: str, replication: Replication = ALONE) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._bootstrap = bootstrap
        self._replication = replication

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Create a topic and wait until it exists."""
        new = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=self._replication.replicas,
            config={**self._replication.settings, **settings},
        )
        self._admin.create_topics([new])[name].result(TIMEOUT_S)

    def delete(self, name: str) -> None:
        """Delete a topic and its data."""
        self._admin.delete_topics([name])[name].result(TIMEOUT_S)

    def record_count(self, name: str, partitions: int) -> int:
        """Return the number of records in a topic from which nothing was deleted."""
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "bench", "log_level": 0}
        )
        try:
            ends = [
                consumer.get_watermark_offsets(TopicPartition(name, number), timeout=TIMEOUT_S)
                for number in range(partitions)
            ]
        finally:
            consumer.close()
        return sum(high for _, high in ends)

    def committed_count(self, name: str, partitions: int) -> int:
        """Return the number of records that a read_committed consumer receives.

        Offsets do not give this number, because transaction markers have offsets too.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(name, number, 0) for number in range(partitions)])
        found, open_count = 0, partitions
        try:
            while open_count:
                # `consume` returns after this many records or after the timeout, even at the end of
                # the topic.
                for message in consumer.consume(CONSUME_AT_ONCE, timeout=0.2):
                    error = message.error()
                    if error is None:
                        found += 1
                    elif error.code() == KafkaError._PARTITION_EOF:
                        open_count -= 1
                    else:
                        raise KafkaException(error)
        finally:
            consumer.close()
        return found


def produce(bootstrap: str, topic: str, values: Sequence[bytes], count: int, acks: str) -> float:
    """Produce `count` records and wait for all acknowledgements. Return the duration in seconds."""
    failed = 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal failed
        failed += error is not None

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 262_144,
            "sticky.partitioning.linger.ms": 10,
            # Only failed records call back. A call per record would measure Python instead of the
            # broker.
            "delivery.report.only.error": True,
            "on_delivery": on_delivery,
            "log_level": 0,
        }
    )
    began_s = time.perf_counter()
    send, different = producer.produce, len(values)
    for number in range(count):
        while True:
            try:
                send(topic, values[number % different])
                break
            except BufferError:
                producer.poll(0.005)
    left = producer.flush(TIMEOUT_S)
    seconds = time.perf_counter() - began_s
    if left or failed:
        raise Lost(f"{left} records were not acknowledged, and {failed} were refused")
    return seconds


def consume(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    """Consume `count` records from the start of a topic. Return the seconds, which include
    connecting."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            # With the default settings, a full queue pauses fetching for a second.
            "fetch.queue.backoff.ms": 2,
            "queued.max.messages.kbytes": 524_288,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    read, began_s, deadline_s = 0, time.perf_counter(), time.monotonic() + TIMEOUT_S
    try:
        while read < count:
            messages = consumer.consume(CONSUME_AT_ONCE, timeout=1.0)
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
            read += len(messages)
            if time.monotonic() > deadline_s:
                raise Lost(f"consumed {read} records, expected {count}")
        return time.perf_counter() - began_s
    finally:
        consumer.close()
