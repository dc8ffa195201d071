"""Scenarios that test our transactional producer's guarantees with any cluster, by our consumer."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from protocol.client.admin import Admin
from protocol.client.admin_types import TopicSpec
from protocol.client.cluster import Cluster
from protocol.client.consumer import Consumer
from protocol.client.consumer_settings import ConsumerRecord, ConsumerSettings
from protocol.client.errors import (
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    ProducerFenced,
    TransactionFailed,
)
from protocol.client.group import OffsetAndMetadata, fetch_offsets
from protocol.client.group_steps import GroupMembership
from protocol.client.producer import Producer
from protocol.client.producer_hooks import OutgoingRecord, ProducerHooks, ProducerInterceptor
from protocol.client.producer_outcomes import RecordMetadata
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch
from tests.interop.client_scenarios import Killable, Scenario
from tests.interop.consumer_scenarios import GROUP, a_topic, partitions_of, until

COMMITTED = 1


async def a_producer(cluster: Cluster, transactional_id: str, **settings: Any) -> Producer:
    producer = Producer(cluster, transactional_id=transactional_id, **settings)
    await producer.start()
    await producer.init_transactions()
    return producer


async def values(cluster: Cluster, tp: TopicPartition, isolation_level: int) -> list[bytes]:
    """Return all values that a consumer of this isolation level can read."""
    settings = ConsumerSettings(
        offset_reset="earliest", isolation_level=isolation_level, fetch_max_wait_ms=100
    )
    found: list[bytes] = []
    async with Consumer(cluster, settings) as consumer:
        consumer.assign([tp])
        end = (await consumer.end_offsets(tp))[tp]
        while await consumer.position(tp) < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += [record.value for record in records]
    return found


async def sees(cluster: Cluster, tp: TopicPartition, level: int, expected: list[bytes]) -> None:
    """Wait until a consumer of this level reads exactly these values. The coordinator writes the
    markers after its response to EndTxn."""
    found: list[bytes] = []
    try:
        async with asyncio.timeout(10):
            while (found := await values(cluster, tp, level)) != expected:
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{tp} has {found}, expected {expected}") from None


async def committed_is_seen_and_aborted_is_not(cluster: Cluster) -> None:
    await Admin(cluster).ensure_topics([TopicSpec("decided", partitions=2)])
    zero, one = TopicPartition("decided", 0), TopicPartition("decided", 1)
    producer = await a_producer(cluster, "decided")
    for number in range(6):
        producer.begin_transaction()
        for tp in (zero, one):
            await producer.send("decided", b"%d" % number, partition=tp.partition)
        if number % 2:
            await producer.flush()
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
    producer.begin_transaction()
    await producer.commit_transaction()
    producer.begin_transaction()
    await producer.abort_transaction()
    await producer.close()
    for tp in (zero, one):
        await sees(cluster, tp, COMMITTED, [b"0", b"2", b"4"])
        await sees(cluster, tp, 0, [b"%d" % number for number in range(6)])


async def an_open_transaction_hides_what_follows(cluster: Cluster) -> None:
    await Admin(cluster).ensure_topics([TopicSpec("open", partitions=1)])
    tp = TopicPartition("open", 0)
    plain = Producer(cluster)
    await plain.start()
    producer = await a_producer(cluster, "open")
    producer.begin_transaction()
    await producer.send_and_wait("open", b"in", partition=0)
    await plain.send_and_wait("open", b"after", partition=0)
    await sees(cluster, tp, COMMITTED, [])
    await producer.commit_transaction()
    await sees(cluster, tp, COMMITTED, [b"in", b"after"])
    await producer.close()
    await plain.close()


async def what_was_not_sent_is_dropped_by_an_abort(cluster: Cluster) -> None:
    await Admin(cluster).ensure_topics([TopicSpec("dropped", partitions=1)])
    producer = await a_producer(cluster, "dropped", linger_ms=60_000)
    producer.begin_transaction()
    future = await producer.send("dropped", b"never", partition=0)
    await producer.abort_transaction()
    with pytest.raises(TransactionFailed):
        await future
    producer.begin_transaction()
    batch = build_batch([NewRecord(None, b"one", 1), NewRecord(None, b"two", 2)])
    await producer.send_batch("dropped", 0, batch, 2)
    await producer.commit_transaction()
    await producer.close()
    tp = TopicPartition("dropped", 0)
    await sees(cluster, tp, COMMITTED, [b"one", b"two"])


async def a_failed_batch_can_only_be_aborted(cluster: Cluster) -> None:
    spec = TopicSpec("failing", partitions=1, settings={"max.message.bytes": "1000"})
    await Admin(cluster).ensure_topics([spec])
    producer = await a_producer(cluster, "failing")
    for _ in range(2):
        producer.begin_transaction()
        good = await producer.send("failing", b"good", partition=0)
        bad = await producer.send("failing", b"x" * 2000, partition=0)
        with pytest.raises(TransactionFailed, match="MESSAGE_TOO_LARGE"):
            await producer.commit_transaction()
        with pytest.raises(ApiError):
            await bad
        await asyncio.gather(good, return_exceptions=True)
        with pytest.raises(TransactionFailed):
            await producer.send("failing", b"more", partition=0)
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.send("failing", b"next", partition=0)
        await producer.commit_transaction()
    await producer.close()
    await sees(cluster, TopicPartition("failing", 0), COMMITTED, [b"next"] * 2)


async def a_newer_producer_fences_the_older(cluster: Cluster) -> None:
    await Admin(cluster).ensure_topics([TopicSpec("fenced", partitions=1)])
    older = await a_producer(cluster, "fenced")
    older.begin_transaction()
    await older.send_and_wait("fenced", b"older", partition=0)
    newer = await a_producer(cluster, "fenced")
    newer.begin_transaction()
    await newer.send("fenced", b"newer", partition=0)
    await newer.commit_transaction()
    with pytest.raises(ProducerFenced):
        await older.commit_transaction()
    with pytest.raises(ProducerFenced):
        older.begin_transaction()
    await older.close()
    await newer.close()
    await sees(cluster, TopicPartition("fenced", 0), COMMITTED, [b"newer"])


async def a_write_of_a_fenced_producer_is_refused(cluster: Cluster) -> None:
    await Admin(cluster).ensure_topics([TopicSpec("zombie", partitions=1)])
    older = await a_producer(cluster, "zombie")
    older.begin_transaction()
    await older.send_and_wait("zombie", b"first", partition=0)
    newer = await a_producer(cluster, "zombie")
    future = await older.send("zombie", b"second", partition=0)
    with pytest.raises(ApiError) as caught:
        await future
    assert caught.value.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
    with pytest.raises((TransactionFailed, ProducerFenced)):
        await older.commit_transaction()
    with pytest.raises(ProducerFenced):
        await older.abort_transaction()
    await older.close()
    await newer.close()
    await sees(cluster, TopicPartition("zombie", 0), COMMITTED, [])


async def a_forgotten_transaction_is_aborted(cluster: Cluster) -> None:
    await Admin(cluster).ensure_topics([TopicSpec("forgotten", partitions=1)])
    producer = await a_producer(cluster, "forgotten", transaction_timeout_ms=1_000)
    producer.begin_transaction()
    await producer.send_and_wait("forgotten", b"x", partition=0)
    async with Consumer(cluster, ConsumerSettings(isolation_level=COMMITTED)) as consumer:
        tp = TopicPartition("forgotten", 0)
        async with asyncio.timeout(30):
            while (await consumer.end_offsets(tp))[tp] < 2:
                await asyncio.sleep(0.1)
    with pytest.raises(ProducerFenced):
        await producer.commit_transaction()
    await producer.close()


async def offsets_are_part_of_it(cluster: Cluster) -> None:
    await a_topic(cluster, "consumed", 1, 10)
    await Admin(cluster).ensure_topics([TopicSpec("produced", partitions=1)])
    tp = TopicPartition("consumed", 0)
    producer = await a_producer(cluster, "loop")
    settings = ConsumerSettings("loop", auto_commit=False, isolation_level=COMMITTED, **GROUP)

    async def committed() -> int | None:
        found = (await fetch_offsets(cluster, "loop", [tp], require_stable=True))[tp]
        return None if found is None else found.offset

    async with Consumer(cluster, settings) as consumer:
        consumer.subscribe(["consumed"])
        for is_commit in (True, False):
            producer.begin_transaction()
            record = await consumer.getone()
            await producer.send_and_wait("produced", record.value, partition=0)
            offsets = {tp: OffsetAndMetadata(record.offset + 1)}
            await producer.send_offsets_to_transaction(offsets, "loop", consumer.membership)
            if is_commit:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
            assert await committed() == 1
        assert consumer.membership is not None
        zombie = GroupMembership(consumer.membership.generation_id, "another member")
        producer.begin_transaction()
        with pytest.raises(TransactionFailed, match="UNKNOWN_MEMBER_ID"):
            await producer.send_offsets_to_transaction(offsets, "loop", zombie)
        await producer.abort_transaction()
    await producer.close()
    await sees(cluster, TopicPartition("produced", 0), COMMITTED, [b"0"])


def a_slow_member_is_refused(is_idle: bool) -> Scenario:
    """Return a scenario in which a slow member's offsets must be rejected.

    The member has read records. Before it sends their offsets, another member gets all or some of
    its partitions. By then the slow member is in an old generation, or it has left the group
    because it did not poll in time.
    """
    name = "slow-idle" if is_idle else "slow-member"

    async def scenario(cluster: Cluster) -> None:
        await a_topic(cluster, name, 2, 5)
        await Admin(cluster).ensure_topics([TopicSpec(f"{name}-out", partitions=2)])
        settings = GROUP | {"auto_commit": False, "isolation_level": COMMITTED}
        patience = {"max_poll_interval_ms": 1_500} if is_idle else {}
        slow = Consumer(cluster, ConsumerSettings(name, **(settings | patience)))
        quick = Consumer(cluster, ConsumerSettings(name, **settings))
        producers = [await a_producer(cluster, f"{name}-{number}") for number in range(2)]
        async with slow, quick:
            slow.subscribe([name])
            of_slow = await _transformed(slow, 10, producers[0], f"{name}-out")
            if is_idle:
                await until(lambda: not slow.assignment, "it has left")
            quick.subscribe([name])
            of_quick = await _transformed(quick, 10 if is_idle else 5, producers[1], f"{name}-out")
            await producers[1].send_offsets_to_transaction(of_quick, name, quick.membership)
            await producers[1].commit_transaction()
            with pytest.raises(TransactionFailed, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
                await producers[0].send_offsets_to_transaction(of_slow, name, slow.membership)
            await producers[0].abort_transaction()
        for producer in producers:
            await producer.close()
        for tp in partitions_of(name, 2):
            written = [b"%d" % number for number in range(5)] if tp in of_quick else []
            out = TopicPartition(f"{name}-out", tp.partition)
            await sees(cluster, out, COMMITTED, written)

    scenario.__name__ = "an_idle_member_is_refused" if is_idle else "a_slow_member_is_refused"
    return scenario


async def _transformed(
    consumer: Consumer, count: int, producer: Producer, topic: str
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Read this number of records, and produce their values in a transaction that stays open.
    Return the offsets to commit."""
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    producer.begin_transaction()
    async with asyncio.timeout(30):
        while count > 0:
            for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                offsets[tp] = OffsetAndMetadata(records[-1].offset + 1)
                count -= len(records)
                for record in records:
                    await producer.send(topic, record.value, partition=tp.partition)
    return offsets


async def out_of_order_calls_are_refused(cluster: Cluster) -> None:
    producer = Producer(cluster, transactional_id="order")
    await producer.start()
    with pytest.raises(ClientError, match="not initialized"):
        producer.begin_transaction()
    await producer.init_transactions()
    with pytest.raises(ClientError, match="between transactions"):
        await producer.commit_transaction()
    await Admin(cluster).ensure_topics([TopicSpec("order", partitions=1)])
    with pytest.raises(ClientError, match="between transactions"):
        await producer.send("order", b"x", partition=0)
    producer.begin_transaction()
    with pytest.raises(ClientError, match="in a transaction"):
        producer.begin_transaction()
    await producer.close()


class _Tagging(ProducerInterceptor):
    def __init__(self) -> None:
        self.acknowledged: list[int] = []

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        return OutgoingRecord(
            record.topic, record.value, record.key, record.partition, record.timestamp_ms,
            (*record.headers, ("seen", b"1")),
        )  # fmt: skip

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        assert metadata is not None
        self.acknowledged.append(metadata.offset)


async def hooks_are_called(cluster: Cluster) -> None:
    await Admin(cluster).ensure_topics([TopicSpec("hooked", partitions=3)])
    tagging, told = _Tagging(), list[RecordMetadata | None]()
    hooks = ProducerHooks(
        partitioner=lambda topic, key, all_partitions, available: 2 if key == b"two" else None,
        key_serializer=str.encode,
        value_serializer=lambda number: b"%d" % number,
        interceptors=(tagging,),
    )
    producer = Producer(cluster, hooks=hooks)
    await producer.start()
    settings = ConsumerSettings(
        offset_reset="earliest", value_deserializer=lambda raw: int(raw or b"0")
    )
    for number in range(3):
        await producer.send(
            "hooked", number, key="two", on_delivery=lambda metadata, error: told.append(metadata)
        )
    metadata = await producer.send_and_wait("hooked", 3, key="two")
    assert (metadata.partition, metadata.offset) == (2, 3)
    with pytest.raises(TypeError):
        await Producer.send(producer, "hooked", object(), key="two")
    await producer.close()
    await until(lambda: len(told) == 3 and len(tagging.acknowledged) == 4, "callbacks")
    async with Consumer(cluster, settings) as consumer:
        consumer.assign([TopicPartition("hooked", 2)])
        records = [await consumer.getone() for _ in range(4)]
    assert [record.value for record in records] == [0, 1, 2, 3]
    assert {tuple(record.headers) for record in records} == {(("seen", b"1"),)}


async def exactly_once_with_kills(
    cluster: Cluster, broker: Killable, rng: random.Random, kills: int
) -> None:
    """Copy records from topic to topic while the broker is killed. Each record is copied once."""
    count = 1500
    await a_topic(cluster, "raw", 2, count // 2)
    await Admin(cluster).ensure_topics([TopicSpec("cooked", partitions=2)])
    is_over = asyncio.Event()
    transformer = _Transformer(cluster, rng)

    async def kill() -> None:
        for number in range(kills):
            goal = count * (number + rng.random()) / (kills + 1)
            while transformer.done < goal:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(broker.kill9)
            await asyncio.to_thread(broker.start)
        is_over.set()

    async with asyncio.timeout(300):
        await asyncio.gather(kill(), transformer.run(count))
    assert is_over.is_set()
    print(f"{kills} kills, {transformer.aborts} aborts, {transformer.commits} commits")
    for partition in range(2):
        expected = [b"%d" % number for number in range(count // 2)]
        await sees(cluster, TopicPartition("cooked", partition), COMMITTED, expected)


class _Transformer:
    """Consumes, transforms and produces. It commits the offsets in the transaction of the
    results."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.done = 0
        self.aborts = 0
        self.commits = 0
        self._rng = rng
        self._producer = Producer(cluster, transactional_id="transformer")
        settings = GROUP | {"session_timeout_ms": 10_000}
        self._consumer = Consumer(
            cluster,
            ConsumerSettings(
                "transformer", auto_commit=False, isolation_level=COMMITTED, **settings
            ),
        )

    async def run(self, count: int) -> None:
        await self._producer.start()
        await _until_it_works(self._producer.init_transactions)
        async with self._consumer:
            self._consumer.subscribe(["raw"])
            while self.done < count:
                records = await self._consumer.getmany(timeout_ms=200, max_records=40)
                if records:
                    await self._transform(records)
        await self._producer.close()

    async def _transform(self, records: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        producer = self._producer
        producer.begin_transaction()
        try:
            for tp, of_partition in records.items():
                for record in of_partition:
                    await producer.send("cooked", record.value, partition=tp.partition)
            offsets = {tp: OffsetAndMetadata(rs[-1].offset + 1) for tp, rs in records.items()}
            await producer.send_offsets_to_transaction(
                offsets, "transformer", self._consumer.membership
            )
            if self._rng.random() < 0.1:
                raise TransactionFailed("by chance")
        except (ApiError, ClientError):
            await self._abort()
            return
        try:
            await _until_it_works(producer.commit_transaction)
        except TransactionFailed:
            await self._abort()
            return
        self.commits += 1
        self.done += sum(map(len, records.values()))

    async def _abort(self) -> None:
        self.aborts += 1
        await _until_it_works(self._producer.abort_transaction)
        for tp in self._consumer.assignment:
            committed = await self._consumer.committed(tp)
            if tp in self._consumer.assignment:
                self._consumer.seek(tp, 0 if committed is None else committed.offset)


async def _until_it_works(attempt: Callable[[], Awaitable[None]]) -> None:
    """Repeat a call whose outcome is unknown, which the producer's methods for transactions
    permit."""
    while True:
        try:
            await attempt()
        except (ConnectionLost, BrokerUnreachable):
            await asyncio.sleep(0.05)
        else:
            return


ALL = (
    committed_is_seen_and_aborted_is_not,
    an_open_transaction_hides_what_follows,
    what_was_not_sent_is_dropped_by_an_abort,
    a_failed_batch_can_only_be_aborted,
    a_newer_producer_fences_the_older,
    a_write_of_a_fenced_producer_is_refused,
    a_forgotten_transaction_is_aborted,
    offsets_are_part_of_it,
    a_slow_member_is_refused(is_idle=False),
    a_slow_member_is_refused(is_idle=True),
    out_of_order_calls_are_refused,
    hooks_are_called,
)
