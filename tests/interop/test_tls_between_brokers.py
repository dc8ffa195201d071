"""Three real brokers with TLS on both sides of their links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.harness.certificates import TestAuthority, new_test_authority
from tests.harness.cluster import ClusterProcesses
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

TOPIC = "lines"
DEADLINE_S = 60.0


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return new_test_authority(tmp_path / "tls")


@pytest.fixture
def cluster(tmp_path: Path, authority: TestAuthority) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path / "cluster", authority=authority) as cluster:
        yield cluster


def create_topic(cluster: ClusterProcesses, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic(TOPIC, partitions, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(30)


def write(producer: Producer, first: int, count: int, partitions: int = 3) -> None:
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%d" % number, partition=number % partitions)


def read_all(cluster: ClusterProcesses, count: int, partitions: int = 3) -> list[int]:
    """Return the numbers of all records, in order."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "counts"})
    consumer.assign([Partition(TOPIC, one, 0) for one in range(partitions)])
    found: list[int] = []

    def read() -> bool:
        for one in consumer.consume(10_000, 0.5):
            assert one.error() is None
            found.append(int(one.value() or b""))
        return len(found) >= count

    wait_until(read, DEADLINE_S, f"{count} records", progress=lambda: len(found))
    assert not consumer.consume(1, 0.5)
    consumer.close()
    return sorted(found)


def leader_of(cluster: ClusterProcesses) -> int:
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(TOPIC, 10).topics
    return int(topics[TOPIC].partitions[0].leader)


def test_records_survive_a_killed_leader(cluster: ClusterProcesses) -> None:
    create_topic(cluster)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True}
    )
    write(producer, 0, 3_000)
    assert producer.flush(DEADLINE_S) == 0
    killed = leader_of(cluster)
    write(producer, 3_000, 3_000)
    cluster.kill9(killed)
    write(producer, 6_000, 3_000)
    assert producer.flush(DEADLINE_S) == 0
    cluster.start()
    wait_until(
        lambda: all(one["under_replicated"] == 0 for one in cluster.details()),
        DEADLINE_S,
        "all replicas are in sync",
    )
    # Now only the broker that was killed and one other are left, so the copied records count.
    cluster.stop(next(one for one in cluster.node_ids if one != killed))
    assert read_all(cluster, 9_000) == list(range(9_000))
    assert "link_refused" not in str([one.status().problems for one in cluster.running])
