"""librdkafka through confluent-kafka, as a verifiable client (`words`).

python -m tests.harness.verifiable.librdkafka BOOTSTRAP TOPIC
"""

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.harness.verifiable import words

CALL_S = 15.0
"""The time for one attempt at a call of a transaction. If librdkafka reports a retriable error, the
call is made again."""


def produce(bootstrap: str, topic: str) -> None:
    """Produce idempotently until the test ends the writing. Every record gets a result."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            **words.librdkafka_security(),
        }
    )
    for number in words.paced(words.PACE_S):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % words.PARTITIONS,
            on_delivery=_delivered(topic, number, -1),
        )
        producer.poll(0)
    producer.flush()


def _delivered(topic: str, number: int, transaction: int) -> Callable[[Any, Any], None]:
    def done(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            words.failed("produce", topic, error)
        else:
            words.sent(topic, number, message.partition(), message.offset(), transaction)

    return done


def transact(bootstrap: str, topic: str) -> None:
    """Produce in transactions, some of which are aborted. If a transaction fails, create a new
    producer."""
    producer = None
    for transaction in words.paced(words.TRANSACTION_PACE_S):
        try:
            if producer is None:
                producer = Producer(
                    {
                        "bootstrap.servers": bootstrap,
                        "transactional.id": topic,
                        **words.librdkafka_security(),
                    }
                )
                _again(producer.init_transactions, topic)
            _one_transaction(producer, topic, transaction)
        except KafkaException as error:
            words.failed("transact", topic, error.args[0])
            producer = None
    if producer is not None:
        # commit_transaction does not wait until all delivery reports have reached the application.
        producer.flush()


def _one_transaction(producer: Producer, topic: str, transaction: int) -> None:
    producer.begin_transaction()
    for number in words.numbers_of(transaction):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % words.PARTITIONS,
            on_delivery=_delivered(topic, number, transaction),
        )
    if words.is_kept(transaction):
        _again(producer.commit_transaction, topic)
    else:
        # An abort fails the records that were not sent yet, so flush them first.
        producer.flush()
        _again(producer.abort_transaction, topic)
    words.ended(topic, transaction, is_committed=words.is_kept(transaction))


def _again(call: Callable[[float], object], topic: str) -> None:
    while True:
        try:
            call(CALL_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            words.failed("again", topic, error.args[0])
        else:
            return


def consume(bootstrap: str, topic: str) -> None:
    """Consume both topics as the only member of a group, with a commit after every batch."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-readers",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **words.librdkafka_security(),
        }
    )

    def on_assign(_: Consumer, partitions: list[Any]) -> None:
        words.assigned((one.topic, one.partition) for one in partitions)

    consumer.subscribe(list(words.topics_of(topic)), on_assign=on_assign)
    while not words.READS_NO_MORE.is_set():
        messages: list[Any] = consumer.consume(words.POLL_COUNT, words.POLL_S)
        for one in messages:
            if one.error() is None:
                words.read(one.topic(), one.partition(), one.offset(), one.value())
            else:
                words.failed("consume", topic, one.error())
        if any(one.error() is None for one in messages):
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                words.failed("commit", topic, error.args[0])
    consumer.close()


if __name__ == "__main__":
    words.in_threads((produce, transact), consume)
