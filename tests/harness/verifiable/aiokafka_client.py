"""aiokafka as a verifiable client (`words`).

python -m tests.harness.verifiable.aiokafka_client BOOTSTRAP TOPIC
"""

import asyncio
import ssl
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError

from tests.harness.verifiable import words


def _security() -> dict[str, Any]:
    ca = words.trusted_ca()
    if ca is None:
        return {}
    return {**words.python_security(), "ssl_context": ssl.create_default_context(cafile=ca)}


async def produce(bootstrap: str, topic: str) -> None:
    """Produce idempotently until the test ends the writing. Every record gets a result."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5, **_security()
    )
    await producer.start()
    async for number in words.paced_async(words.PACE_S):
        await _send(producer, topic, number, -1)
    await producer.stop()


async def _send(producer: AIOKafkaProducer, topic: str, number: int, transaction: int) -> None:
    """Queue a record in the order of the calls. Print its acknowledgement when it arrives."""
    future = await producer.send(topic, b"%d" % number, partition=number % words.PARTITIONS)
    future.add_done_callback(partial(_answered, topic, number, transaction))


def _answered(topic: str, number: int, transaction: int, future: "asyncio.Future[Any]") -> None:
    error = future.exception()
    if error is not None:
        words.failed("produce", topic, error)
    else:
        metadata = future.result()
        words.sent(topic, number, metadata.partition, metadata.offset, transaction)


async def transact(bootstrap: str, topic: str) -> None:
    """Produce in transactions, some of which are aborted. After a failed transaction create a
    new producer."""
    producer = None
    async for transaction in words.paced_async(words.TRANSACTION_PACE_S):
        try:
            if producer is None:
                producer = AIOKafkaProducer(
                    bootstrap_servers=bootstrap, transactional_id=topic, **_security()
                )
                await producer.start()
            await producer.begin_transaction()
            for number in words.numbers_of(transaction):
                await _send(producer, topic, number, transaction)
            if words.is_kept(transaction):
                await producer.commit_transaction()
            else:
                # An abort fails the records that were not sent yet, so flush them first.
                await producer.flush()
                await producer.abort_transaction()
            words.ended(topic, transaction, is_committed=words.is_kept(transaction))
        except KafkaError as error:
            words.failed("transact", topic, error)
            if producer is not None:
                await producer.stop()
                producer = None
    if producer is not None:
        await producer.stop()


class _Assigned(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    def on_partitions_revoked(self, revoked: Any) -> None:
        """Do nothing, because the client stores no state per partition."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        words.assigned((one.topic, one.partition) for one in assigned)


async def consume(bootstrap: str, topic: str) -> None:
    """Consume both topics as the only member of a group, with a commit after every batch."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        **_security(),
        group_id=f"{topic}-readers",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe(list(words.topics_of(topic)), listener=_Assigned())
    await consumer.start()
    while not words.READS_NO_MORE.is_set():
        try:
            found = await consumer.getmany(
                timeout_ms=int(words.POLL_S * 1000), max_records=words.POLL_COUNT
            )
        except KafkaError as error:
            words.failed("consume", topic, error)
            continue
        for records in found.values():
            for one in records:
                words.read(one.topic, one.partition, one.offset, one.value)
        if found:
            try:
                await consumer.commit()
            except KafkaError as error:
                words.failed("commit", topic, error)
    await consumer.stop()


async def main() -> None:
    """Produce, transact and consume at the same time."""
    bootstrap, topic = words.begin()
    of_its_own, in_transactions = words.topics_of(topic)
    reading = asyncio.create_task(consume(bootstrap, topic))
    await asyncio.gather(produce(bootstrap, of_its_own), transact(bootstrap, in_transactions))
    words.say("writing_ended")
    await reading
    words.say("shutdown_complete")


if __name__ == "__main__":
    asyncio.run(main())
