"""kafka-python as a verifiable client (`words`).

    python -m tests.harness.verifiable.kafka_python BOOTSTRAP TOPIC

It runs without transactions, because after a kill the transactions of version 3.0.12 stopped for
good, both with Kafka 4.3.1 and with our broker. With our broker it had got the response to
FindCoordinator, and sent nothing more.
"""

from functools import partial
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from tests.harness import kafka_python
from tests.harness.verifiable import words


def _security() -> dict[str, Any]:
    ca = words.trusted_ca()
    return {} if ca is None else {**words.python_security(), "ssl_cafile": ca}


def produce(bootstrap: str, topic: str) -> None:
    """Produce idempotently until the test ends the writing. Every record gets a result."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5, **_security()
    )
    for number in words.paced(words.PACE_S):
        future = producer.send(topic, b"%d" % number, partition=number % words.PARTITIONS)
        future.add_callback(partial(_acknowledged, topic, number))
        future.add_errback(partial(words.failed, "produce", topic))
    producer.close()


def _acknowledged(topic: str, number: int, metadata: Any) -> None:
    words.sent(topic, number, metadata.partition, metadata.offset)


class _Assigned(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    def on_partitions_revoked(self, revoked: Any) -> None:
        """Do nothing, because the client stores no state per partition."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        words.assigned((one.topic, one.partition) for one in assigned)


def consume(bootstrap: str, topic: str) -> None:
    """Consume the topic as the only member of a group, with a commit after every batch."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=f"{topic}-readers",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **_security(),
    )
    consumer.subscribe([topic], listener=_Assigned())
    while not words.READS_NO_MORE.is_set():
        try:
            found = consumer.poll(
                timeout_ms=int(kafka_python.POLL_S * 1000), max_records=words.POLL_COUNT
            )
        except KafkaError as error:
            words.failed("consume", topic, error)
            continue
        for records in found.values():
            for one in records:
                words.read(one.topic, one.partition, one.offset, one.value)
        if found:
            try:
                consumer.commit()
            except KafkaError as error:
                words.failed("commit", topic, error)
    consumer.close()


if __name__ == "__main__":
    words.in_threads((produce,), consume)
