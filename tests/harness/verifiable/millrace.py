"""Our own client as a verifiable client (`words`).

python -m tests.harness.verifiable.millrace BOOTSTRAP TOPIC
"""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Any

from protocol.client.cluster import Cluster
from protocol.client.consumer import Consumer
from protocol.client.consumer_settings import ConsumerSettings, OffsetReset, RebalanceListener
from protocol.client.errors import ClientError, ConnectionLost
from protocol.client.fetch_core import IsolationLevel
from protocol.client.login import LoginSettings
from protocol.client.producer import Producer
from protocol.client.tls import TlsSettings
from protocol.errors import ApiError
from protocol.types import TopicPartition
from tests.harness.verifiable import words

START_MS = 30_000


async def produce(cluster: Cluster, topic: str) -> None:
    """Produce idempotently until the test ends the writing. Every record gets a result."""
    producer = Producer(cluster, linger_ms=5)
    await producer.start()
    async for number in words.paced_async(words.PACE_S):
        await _send(producer, topic, number, -1)
    await producer.close()


async def _send(producer: Producer, topic: str, number: int, transaction: int) -> None:
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


async def transact(cluster: Cluster, topic: str) -> None:
    """Produce in transactions, some of which are aborted. After a failed transaction create a
    new producer."""
    producer = None
    async for transaction in words.paced_async(words.TRANSACTION_PACE_S):
        try:
            if producer is None:
                producer = Producer(cluster, transactional_id=topic)
                await producer.start()
                await producer.init_transactions()
            await _one_transaction(producer, topic, transaction)
        except (ApiError, ClientError) as error:
            words.failed("transact", topic, error)
            if producer is not None:
                await producer.close(0)
                producer = None
    if producer is not None:
        await producer.close()


async def _one_transaction(producer: Producer, topic: str, transaction: int) -> None:
    producer.begin_transaction()
    for number in words.numbers_of(transaction):
        await _send(producer, topic, number, transaction)
    # An abort fails the records that were not sent yet, so flush them first.
    await producer.flush()
    is_kept = words.is_kept(transaction)
    end = producer.commit_transaction if is_kept else producer.abort_transaction
    while True:
        try:
            await end()
        except ConnectionLost as error:
            # The transaction may have ended or not. The same call may be repeated.
            words.failed("again", topic, error)
        else:
            words.ended(topic, transaction, is_committed=is_kept)
            return


class _Assigned(RebalanceListener):
    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        words.assigned((one.topic, one.partition) for one in partitions)


async def consume(cluster: Cluster, topic: str) -> None:
    """Consume both topics as the only member of a group, with a commit after every batch."""
    settings = ConsumerSettings(
        f"{topic}-readers",
        isolation_level=IsolationLevel.READ_COMMITTED,
        offset_reset=OffsetReset.EARLIEST,
        auto_commit=False,
    )
    async with Consumer(cluster, settings) as consumer:
        consumer.subscribe(list(words.topics_of(topic)), listener=_Assigned())
        while not words.READS_NO_MORE.is_set():
            try:
                found = await consumer.getmany(timeout_ms=int(words.POLL_S * 1000))
            except (ApiError, ClientError) as error:
                words.failed("consume", topic, error)
                continue
            for records in found.values():
                for one in records:
                    words.read(one.topic, one.partition, one.offset, one.value)
            if found:
                try:
                    await consumer.commit()
                except (ApiError, ClientError) as error:
                    words.failed("commit", topic, error)


async def main() -> None:
    """Produce, transact and consume at the same time."""
    bootstrap, topic = words.begin()
    of_its_own, in_transactions = words.topics_of(topic)
    ca = words.trusted_ca()
    tls = None if ca is None else TlsSettings(ca=ca)
    known = words.login()
    login = None if known is None else LoginSettings(*known)
    cluster = Cluster(bootstrap, client_id="verifiable", tls=tls, login=login)
    await cluster.start(START_MS)
    reading = asyncio.create_task(consume(cluster, topic))
    await asyncio.gather(produce(cluster, of_its_own), transact(cluster, in_transactions))
    words.say("writing_ended")
    await reading
    await cluster.close()
    words.say("shutdown_complete")


if __name__ == "__main__":
    asyncio.run(main())
