"""Our client with librdkafka: librdkafka's mock cluster of three brokers as the server, and
librdkafka itself as the other client.

The mock supports other versions than our broker (Produce 10, Fetch 16, OffsetFetch 6), and the
leaders of its topics are on different nodes.
"""

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import Producer as PeerProducer
from confluent_kafka import TopicPartition as PeerPartition

from protocol.client.admin import Admin
from protocol.client.cluster import Cluster
from protocol.client.fetcher import Fetcher
from protocol.client.group import OffsetAndMetadata, commit_offsets, fetch_offsets
from protocol.client.producer import Producer
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tests.interop.client_scenarios import connected

COUNT = 500
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Yield the addresses of the mock cluster. It exists as long as the client that created it."""
    owner = PeerProducer({"test.mock.num.brokers": 3, "log_level": 2})
    brokers = owner.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush(1)


async def partitions_of(cluster: Cluster, topic: str) -> list[TopicPartition]:
    await cluster.metadata([topic], refresh=True, allow_auto_topic_creation=True)
    await cluster.leader(TopicPartition(topic, 0))
    return [TopicPartition(topic, index) for index in cluster.current.topics[topic].partitions]


@pytest.mark.parametrize("codec", CODECS)
def test_ours_to_theirs(bootstrap: str, codec: str) -> None:
    topic = f"ours-{codec}"

    async def test(cluster: Cluster) -> None:
        tps = await partitions_of(cluster, topic)
        producer = Producer(cluster, compression=codec)
        await producer.start()
        for index in range(COUNT):
            headers = [("index", b"%d" % index), ("null", None)]
            await producer.send(topic, b"value %d" % index, key=b"key %d" % index, headers=headers)
        await producer.close()
        found = await asyncio.to_thread(_consume, bootstrap, tps)
        assert found == {
            b"value %d" % index: (
                b"key %d" % index,
                [("index", b"%d" % index), ("null", None)],
            )
            for index in range(COUNT)
        }

    connected(bootstrap, test)


def _consume(bootstrap: str, tps: list[TopicPartition]) -> dict[object, object]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "check.crcs": True, "log_level": 2}
    )
    consumer.assign([PeerPartition(tp.topic, tp.partition, OFFSET_BEGINNING) for tp in tps])
    found: dict[object, object] = {}
    while len(found) < COUNT:
        messages = consumer.consume(COUNT, timeout=10)
        assert messages, f"only {len(found)} of {COUNT} records came"
        for message in messages:
            assert message.error() is None
            found[message.value()] = (message.key(), message.headers())
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_theirs_to_ours(bootstrap: str, codec: str) -> None:
    topic = f"theirs-{codec}"

    async def test(cluster: Cluster) -> None:
        tps = await partitions_of(cluster, topic)
        await asyncio.to_thread(_produce, bootstrap, topic, codec)
        fetcher = Fetcher(cluster)
        fetcher.assign(dict.fromkeys(tps, EARLIEST_TIMESTAMP))
        found: set[object] = set()
        async with asyncio.timeout(20):
            while len(found) < COUNT:
                for batch in await fetcher.poll(500):
                    found.update((r.key, r.value, tuple(r.headers)) for r in batch.records)
        await fetcher.close()
        assert found == {
            (b"key %d" % index, b"value %d" % index, (("h", b"x"),)) for index in range(COUNT)
        }

    connected(bootstrap, test)


def _produce(bootstrap: str, topic: str, codec: str) -> None:
    producer = PeerProducer(
        {
            "bootstrap.servers": bootstrap,
            "compression.codec": codec,
            "linger.ms": 20,
            "partitioner": "murmur2_random",
            "log_level": 2,
        }
    )
    for index in range(COUNT):
        producer.produce(topic, b"value %d" % index, key=b"key %d" % index, headers=[("h", b"x")])
    assert producer.flush(10) == 0


def test_both_send_a_key_to_the_same_partition(bootstrap: str) -> None:
    async def test(cluster: Cluster) -> None:
        tps = await partitions_of(cluster, "keys")
        producer = Producer(cluster)
        await producer.start()
        futures = [await producer.send("keys", b"", key=b"key %d" % i) for i in range(COUNT)]
        await producer.flush()
        before = await Admin(cluster).list_offsets(dict.fromkeys(tps, LATEST_TIMESTAMP))
        await asyncio.to_thread(_produce, bootstrap, "keys", "none")
        after = await Admin(cluster).list_offsets(dict.fromkeys(tps, LATEST_TIMESTAMP))
        await producer.close()
        for tp in tps:
            ours = sum(future.result().partition == tp.partition for future in futures)
            assert (before[tp].offset, after[tp].offset) == (ours, 2 * ours)

    connected(bootstrap, test)


def test_committed_offsets(bootstrap: str) -> None:
    async def test(cluster: Cluster) -> None:
        zero, one, *_ = await partitions_of(cluster, "committed")
        await commit_offsets(cluster, "g", {zero: OffsetAndMetadata(5, "why")})
        found = await fetch_offsets(cluster, "g", [zero, one])
        committed = found[zero]
        assert committed is not None
        assert (committed.offset, committed.metadata) == (5, "why")
        assert found[one] is None

    connected(bootstrap, test)


def test_many_partitions_are_asked_by_leader(bootstrap: str) -> None:
    async def test(cluster: Cluster) -> None:
        tps: list[TopicPartition] = []
        # The mock gives all partitions of a topic one random leader. So create topics until their
        # partitions have two leaders.
        while len({cluster.current.leader(tp) for tp in tps}) < 2:
            assert len(tps) < 400, "a hundred topics with the same leader"
            tps += await partitions_of(cluster, f"many-{len(tps)}")
        found = await Admin(cluster).list_offsets(dict.fromkeys(tps, EARLIEST_TIMESTAMP))
        assert {at.offset for at in found.values()} == {0}

    connected(bootstrap, test)
