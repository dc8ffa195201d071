"""Three real brokers form one cluster, and each of them can die."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.harness.cluster import ClusterProcesses
from tests.harness.tally import tell
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

KILLS = 5


def test_a_controller_that_is_killed_is_replaced(tmp_path: Path) -> None:
    took_ms = []
    with ClusterProcesses(tmp_path) as cluster:
        for _ in range(KILLS):
            killed = cluster.wait_for_controller()
            assert [one["voters"] for one in cluster.details()] == [[1, 2, 3]] * 3
            begin = time.monotonic()
            killed.kill9()
            cluster.wait_for_controller()
            took_ms.append(round((time.monotonic() - begin) * 1_000))
            killed.spawn()
        cluster.wait_for_controller()

        def ends() -> set[int]:
            return {one["metadata_offset"] for one in cluster.details()}

        wait_until(lambda: len(ends()) == 1, 10, "all know the same")
    tell(f"three brokers: {KILLS} controllers killed, another one known after {took_ms} ms")


def test_a_cluster_starts_only_when_all_are_up_and_names_the_missing(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path)
    one, two, three = cluster.brokers.values()
    try:
        for late in (two, one):
            late.spawn()
        wait_until(lambda: one.status().details["cluster_waits_for"] == [3], 10, "it waits for 3")
        wait_until(lambda: two.status().details["cluster_waits_for"] == [1], 10, "it waits for 1")
        assert one.stop() == 0, "a broker that waits can be stopped"
        one.spawn()
        three.spawn()
        cluster.wait_for_controller()
    finally:
        for broker in cluster.running:
            broker.kill9()


def test_clients_work_with_all_of_them_and_one_that_dies_takes_only_its_own(tmp_path: Path) -> None:
    partitions, records = 9, 900
    with ClusterProcesses(tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("spread", partitions, 1)])["spread"].result(30)
        leaders = _leaders(admin, partitions)
        assert set(leaders.values()) == {1, 2, 3}
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        for number in range(records):
            producer.produce("spread", b"%d" % number, partition=number % partitions)
        assert producer.flush(30) == 0
        assert _read(cluster, records) == {b"%d" % number for number in range(records)}
        killed = cluster.wait_for_controller()
        killed.kill9()
        cluster.wait_for_controller()
        left = [partition for partition, leader in leaders.items() if leader != killed.node_id]
        for partition in left:
            producer.produce("spread", b"after %d" % partition, partition=partition)
        assert producer.flush(30) == 0
        killed.start()
        for partition in leaders.keys() - set(left):
            producer.produce("spread", b"after %d" % partition, partition=partition)
        assert producer.flush(30) == 0
        everything = _read(cluster, records + partitions)
        assert everything >= {b"after %d" % partition for partition in range(partitions)}


def _leaders(admin: AdminClient, partitions: int) -> dict[int, int]:
    """Wait until each partition has a known leader. Return the leaders by partition."""

    def found() -> dict[int, int]:
        topic = admin.list_topics("spread", timeout=10).topics["spread"]
        leaders = {number: one.leader for number, one in topic.partitions.items()}
        return leaders if len(leaders) == partitions and min(leaders.values()) > 0 else {}

    return wait_until(found, 20, "leaders of all")


def _read(cluster: ClusterProcesses, count: int, topic: str = "spread") -> set[bytes]:
    """Read the topic with a new group until this number of records has arrived."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"g{count}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []

    def is_read() -> bool:
        found = [one for one in consumer.consume(500, 0.2) if one.error() is None]
        values.extend(one.value() or b"" for one in found)
        return len(values) >= count

    wait_until(is_read, 60, f"{count} records are read")
    consumer.close()
    assert len(values) == len(set(values)) == count
    return set(values)


def test_nothing_acknowledged_is_lost_while_leaders_end(tmp_path: Path) -> None:
    """The topic has three replicas and `min.insync.replicas` 2. An idempotent producer must get
    every record acknowledged although the controller, which leads partitions too, ends six
    times."""
    partitions, ends = 6, (signal.SIGKILL, signal.SIGTERM) * 3
    with ClusterProcesses(tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic("kept", partitions, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["kept"].result(30)
        acknowledged: list[bytes] = []
        waits_ms: list[float] = []
        last = [time.monotonic()]

        def delivered(error: object, message: Message) -> None:
            assert error is None, error
            now = time.monotonic()
            waits_ms.append((now - last[0]) * 1_000)
            last[0] = now
            acknowledged.append(message.value() or b"")

        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "retry.backoff.ms": 50,
            }
        )
        count = 0

        def produce_for(duration_s: float) -> None:
            nonlocal count
            # Nothing is produced while a broker starts, so do not count that time as a wait for an
            # acknowledgement.
            last[0] = time.monotonic()
            end = last[0] + duration_s
            while time.monotonic() < end:
                producer.produce(
                    "kept", b"%d" % count, partition=count % partitions, on_delivery=delivered
                )
                count += 1
                producer.poll(0.002)

        for number in ends:
            produce_for(1.5)
            ended = cluster.wait_for_controller()
            ended.send(number)
            produce_for(2)
            assert ended.wait() == (0 if number is signal.SIGTERM else -signal.SIGKILL)
            ended.start()
            cluster.wait_until_ready()
        assert producer.flush(60) == 0
        assert len(acknowledged) == count
        values = _read(cluster, count, "kept")
        assert values == {b"%d" % one for one in range(count)}
    tell(
        f"three brokers, RF 3: {len(ends)} controllers ended by SIGKILL and SIGTERM, {count} "
        "records acknowledged and read, lost 0, doubled 0; longest time without an acknowledgement "
        f"{max(waits_ms):.0f} ms"
    )
