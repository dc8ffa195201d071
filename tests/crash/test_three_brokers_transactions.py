"""Exactly-once transactions over three real brokers, while coordinators and leaders die."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.coordinators.placing import shard_of
from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.harness.cluster import ClusterProcesses
from tests.harness.tally import tell
from tests.harness.transform import Transformer, assert_exactly_once
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

PARTITIONS = 3
RECORDS = 6_000
SHARDS = 3
NAME = "worker"
SETTINGS = {
    "min.insync.replicas": 2,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": SHARDS,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": SHARDS,
    "transaction.state.log.replication.factor": 3,
}
PROGRESS_DEADLINE_S = 60.0

ROLES = {
    "transaction coordinator": (TRANSACTIONS_TOPIC, shard_of(NAME, SHARDS)),
    "group coordinator": (OFFSETS_TOPIC, shard_of(NAME, SHARDS)),
    "leader": ("out", 0),
}
"""The partitions whose leaders are killed, one after the other."""


@pytest.mark.slow
def test_librdkafka_transforms_exactly_once_while_coordinators_and_leaders_die(
    tmp_path: Path,
) -> None:
    with ClusterProcesses(tmp_path, SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics(
            [NewTopic(name, PARTITIONS, 3) for name in ("in", "out")]
        ).values():
            future.result(30)
        _fill(cluster, RECORDS)
        kills = [*ROLES, *ROLES]
        with Transformer(cluster.bootstrap, "in", "out", name=NAME) as transformer:

            def has_committed(count: int) -> bool:
                if transformer.failure is not None:
                    raise SystemExit(f"the transformer ended: {transformer.failure!r}")
                return transformer.committed_count >= count

            for number, role in enumerate(kills, 1):
                goal = number * RECORDS // (len(kills) + 2)
                wait_until(partial(has_committed, goal), PROGRESS_DEADLINE_S, f"{goal} committed")
                victim = cluster.brokers[_leader(admin, *ROLES[role])]
                victim.kill9()
                victim.start()
                cluster.wait_until_ready()
            wait_until(partial(has_committed, RECORDS), PROGRESS_DEADLINE_S, "all committed")
        assert assert_exactly_once(cluster.bootstrap, "in", "out", PARTITIONS) == RECORDS
    tell(
        f"three brokers: {len(kills)} coordinators and leaders killed, {RECORDS} records "
        f"exactly once, {dict(transformer.counts)}"
    )


def _fill(cluster: ClusterProcesses, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce("in", b"%d" % number, partition=number % PARTITIONS)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0


def _leader(admin: AdminClient, topic: str, partition: int) -> int:
    """Wait until a partition has a leader and return the leader's id."""

    def found() -> int:
        leader: int = (
            admin.list_topics(topic, timeout=10).topics[topic].partitions[partition].leader
        )
        return max(leader, 0)

    return wait_until(found, 20, f"a leader of {topic}-{partition}")
