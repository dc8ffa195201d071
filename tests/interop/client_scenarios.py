"""Scenarios that test our client's guarantees, both with our broker and with Apache Kafka."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

import pytest

from protocol.client.admin import Admin
from protocol.client.admin_types import ConfigResource, TopicSpec
from protocol.client.cluster import Cluster
from protocol.client.errors import OffsetOutOfRange
from protocol.client.fetcher import Fetcher
from protocol.client.group import (
    OffsetAndMetadata,
    commit_offsets,
    fetch_offsets,
    fetch_offsets_of_groups,
)
from protocol.client.producer import Producer, RecordMetadata
from protocol.errors import ApiError, ErrorCode
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, TopicPartition
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch

Scenario: TypeAlias = Callable[[Cluster], Awaitable[None]]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Killable(Protocol):
    """A server process that keeps its ports and data when it is killed and started again."""

    def kill9(self) -> None: ...

    def start(self) -> object: ...


def connected(bootstrap: str, test: Callable[[Cluster], Awaitable[None]], **options: Any) -> None:
    """Run a test with a connected cluster. `options` are those of `Cluster`."""

    async def run() -> None:
        cluster = Cluster(bootstrap, client_id="test", **options)
        await cluster.start(30_000)
        try:
            await test(cluster)
        finally:
            await cluster.close()

    asyncio.run(run())


async def read_all(
    cluster: Cluster, tps: list[TopicPartition], count: int, deadline_s: float = 30.0
) -> dict[TopicPartition, list[bytes | None]]:
    """Read partitions from their start until `count` records have arrived."""
    fetcher = Fetcher(cluster)
    fetcher.assign(dict.fromkeys(tps, EARLIEST_TIMESTAMP))
    values: dict[TopicPartition, list[bytes | None]] = {tp: [] for tp in tps}
    try:
        async with asyncio.timeout(deadline_s):
            while sum(map(len, values.values())) < count:
                for batch in await fetcher.poll(200):
                    values[batch.tp].extend(record.value for record in batch.records)
    finally:
        await fetcher.close()
    return values


async def round_trip(cluster: Cluster, codec: str) -> None:
    topic = f"round-{codec}"
    await Admin(cluster).ensure_topics([TopicSpec(topic, partitions=3)])
    producer = Producer(cluster, compression=codec)
    await producer.start()
    futures = [
        await producer.send(topic, b"v%d" % i, key=b"k%d" % (i % 7), headers=[("n", b"%d" % i)])
        for i in range(2000)
    ]
    await producer.close()
    done = [future.result() for future in futures]
    tps = [TopicPartition(topic, index) for index in range(3)]
    values = await read_all(cluster, tps, 2000)
    for index, metadata in enumerate(done):
        tp = TopicPartition(topic, metadata.partition)
        assert values[tp][metadata.offset] == b"v%d" % index


async def encoded_batches_and_refusals(cluster: Cluster) -> None:
    spec = TopicSpec("small", partitions=1, settings={"max.message.bytes": "1000"})
    await Admin(cluster).create_topics([spec])
    producer = Producer(cluster)
    await producer.start()
    fits = build_batch([NewRecord(None, b"a", 1), NewRecord(None, b"b", 2)])
    large = build_batch([NewRecord(None, b"x" * 2000, 1)])
    first = await producer.send_batch("small", 0, bytearray(fits), 2)
    refused = await producer.send_batch("small", 0, large, 1)
    second = await producer.send_batch("small", 0, bytearray(fits), 2)
    assert (await first).base_offset == 0
    with pytest.raises(ApiError) as caught:
        await refused
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await second).base_offset == 2
    # The producer itself splits a batch that is too large, until only the too large record fails.
    futures = [await producer.send("small", b"y" * size) for size in (400, 400, 2000, 400)]
    await producer.close()
    assert [type(future.exception()) for future in futures] == [
        type(None),
        type(None),
        ApiError,
        type(None),
    ]
    values = await read_all(cluster, [TopicPartition("small", 0)], 7)
    sizes = [len(value or b"") for value in values[TopicPartition("small", 0)]]
    assert sizes == [1, 1, 1, 1, 400, 400, 400]


async def administration(cluster: Cluster) -> None:
    admin = Admin(cluster)
    spec = TopicSpec("administered", partitions=2, settings={"retention.ms": "1000000"})
    assert await admin.ensure_topics([spec]) == ("administered",)
    assert await admin.ensure_topics([spec]) == ()
    with pytest.raises(ApiError) as caught:
        await admin.create_topics([spec])
    assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    await admin.create_partitions({"administered": 4})
    grown = await cluster.metadata(["administered"], refresh=True)
    assert list(grown.topics["administered"].partitions) == [0, 1, 2, 3]
    resource = ConfigResource.topic("administered")
    await admin.alter_configs({resource: {"retention.ms": "2000000"}})
    await until_retained(admin, resource, "2000000", is_default=False)
    await admin.alter_configs({resource: {"retention.ms": None}})
    await until_retained(admin, resource, None, is_default=True)
    described = await admin.describe_cluster()
    assert described.brokers.keys() == cluster.current.brokers.keys()
    await admin.delete_topics(["administered"])
    gone = await cluster.metadata(["administered"], refresh=True)
    code = gone.topics["administered"].error
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    missing = TopicPartition("administered", 0)
    found = await admin.list_offsets({missing: LATEST_TIMESTAMP})
    assert found[missing].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def until_retained(
    admin: Admin, resource: ConfigResource, value: str | None, *, is_default: bool
) -> None:
    """Wait until a broker returns this value. Apache Kafka responds to a change when its controller
    knows it, but the broker that describes the configuration learns of it later."""
    async with asyncio.timeout(20):
        while True:
            configs = await admin.describe_configs([resource], ["retention.ms"])
            found = configs[resource]["retention.ms"]
            if found.is_default is is_default and value in (None, found.value):
                return
            await asyncio.sleep(0.02)


async def offsets_by_time_and_out_of_range(cluster: Cluster) -> None:
    admin = Admin(cluster)
    await admin.ensure_topics([TopicSpec("timed", partitions=1)])
    tp = TopicPartition("timed", 0)
    producer = Producer(cluster)
    await producer.start()
    for index in range(10):
        await producer.send("timed", b"%d" % index, timestamp_ms=1000 + index)
    await producer.close()
    expected = {
        EARLIEST_TIMESTAMP: 0,
        LATEST_TIMESTAMP: 10,
        MAX_TIMESTAMP: 9,
        1004: 4,
        9999: -1,
    }
    for timestamp, offset in expected.items():
        assert (await admin.list_offsets({tp: timestamp}))[tp].offset == offset
    failing = Fetcher(cluster)
    failing.assign({tp: 99})
    with pytest.raises(OffsetOutOfRange, match="offset 99 of timed-0"):
        await failing.poll(5000)
    failing.seek(tp, 8)
    (batch,) = await failing.poll(5000)
    assert [record.value for record in batch.records] == [b"8", b"9"]
    assert (batch.next_offset, batch.high_watermark, failing.position(tp)) == (10, 10, 10)
    await failing.close()
    forgiving = Fetcher(cluster, out_of_range="earliest")
    forgiving.assign({tp: 99})
    (batch,) = await forgiving.poll(5000)
    assert batch.records[0].offset == 0
    await forgiving.close()


async def committed_offsets(cluster: Cluster) -> None:
    admin = Admin(cluster)
    await admin.ensure_topics([TopicSpec("committed", partitions=2)])
    zero, one = TopicPartition("committed", 0), TopicPartition("committed", 1)
    assert await fetch_offsets(cluster, "absent") == {}
    committed = {zero: OffsetAndMetadata(5, "why", 0)}
    await commit_offsets(cluster, "group", committed)
    assert await fetch_offsets(cluster, "group") == committed
    assert await fetch_offsets(cluster, "group", [zero, one]) == {**committed, one: None}
    many = await fetch_offsets_of_groups(cluster, ["group", "absent"])
    assert many == {"group": committed, "absent": {}}
    listed = await admin.list_groups()
    assert [group.group_id for group in listed.groups] == ["group"]
    assert not listed.failures
    described = await admin.describe_groups(["group", "absent"])
    assert described["group"].state == "Empty"
    assert described["absent"].state == "Dead"


async def a_full_buffer_makes_senders_wait(cluster: Cluster) -> None:
    await Admin(cluster).ensure_topics([TopicSpec("narrow", partitions=1)])
    producer = Producer(cluster, buffer_bytes=4_000, linger_ms=60_000)
    await producer.start()
    futures = []
    for index in range(200):
        futures.append(await producer.send("narrow", b"%04d" % index + b"x" * 500))
        assert producer.buffered_bytes <= 4_000
    await producer.close()
    offsets = [future.result().offset for future in futures]
    assert offsets == list(range(200))


async def load_with_kills(
    cluster: Cluster, broker: Killable, rng: random.Random, kills: int
) -> None:
    """Send records while the server is killed and restarted. Then read and compare all of them."""
    await Admin(cluster).ensure_topics([TopicSpec("load", partitions=3)])
    producer = Producer(cluster, linger_ms=2)
    await producer.start()
    futures: list[asyncio.Future[RecordMetadata]] = []
    sent: list[tuple[int, bytes]] = []
    is_over = asyncio.Event()

    async def load() -> None:
        while not is_over.is_set():
            for _ in range(20):
                partition, value = rng.randrange(3), b"%d" % len(sent)
                sent.append((partition, value))
                futures.append(await producer.send("load", value, partition=partition))
            await asyncio.sleep(0.002)

    async def kill() -> None:
        for _ in range(kills):
            confirmed = sum(future.done() for future in futures)
            goal = confirmed + rng.randrange(100, 3000)
            while sum(future.done() for future in futures) < goal:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(broker.kill9)
            await asyncio.to_thread(broker.start)
        is_over.set()

    async with asyncio.timeout(120):
        await asyncio.gather(load(), kill())
        await producer.close()
    assert not [future for future in futures if future.exception() is not None]
    tps = [TopicPartition("load", index) for index in range(3)]
    values = await read_all(cluster, tps, len(sent))
    for tp in tps:
        assert values[tp] == [value for partition, value in sent if partition == tp.partition]
    for future, (partition, value) in zip(futures, sent, strict=True):
        offset = future.result().offset
        assert offset < 0 or values[TopicPartition("load", partition)][offset] == value
    ends = await Admin(cluster).list_offsets(dict.fromkeys(tps, LATEST_TIMESTAMP))
    assert sum(at.offset for at in ends.values()) == len(sent)


ALL: tuple[Scenario, ...] = (
    encoded_batches_and_refusals,
    administration,
    offsets_by_time_and_out_of_range,
    committed_offsets,
    a_full_buffer_makes_senders_wait,
)
