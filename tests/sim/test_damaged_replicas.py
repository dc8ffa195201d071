"""A replica is damaged below its recovery point. Its broker copies the log from an in-sync
replica, if there is one."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from broker.node.status import BrokerStatus
from protocol.types import TopicPartition
from tests.sim.clients import topic_made
from tests.sim.test_whole_brokers import Writing, is_in_service
from tests.sim.whole_brokers import WholeBroker, WholeCluster
from tests.sim.world import Died
from tests.unit.storage.kit import FOLDER

SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": 300,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
}
VOUCHED_MS = 1_000
"""After this time a checkpoint covers all written records."""
RECORDS = 5
LOG = f"{FOLDER}/t-0/{0:020d}.log"
ASIDE = f"{FOLDER}/t-0.00000001-damaged"


def cluster_with(replicas: int, **configs: str) -> tuple[WholeCluster, Writing]:
    """Return three brokers with the one-partition topic `t`, which has some records, and its
    producer."""
    cluster = WholeCluster(f"damaged {replicas} {configs}", settings=SETTINGS)
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 5_000, "all in service")
    writing = Writing(cluster, "t")
    made = writing.client(1, topic_made("t", 1, replication_factor=replicas, **configs))
    cluster.run_until(lambda: made.is_done, 5_000, "the topic is made")
    cluster.run_for(500)
    write(cluster, writing)
    cluster.run_for(VOUCHED_MS)
    return cluster, writing


def write(cluster: WholeCluster, writing: Writing) -> None:
    for _ in range(RECORDS):
        written = writing.write(0, writing.leaders()[0])
        cluster.run_until(lambda written=written: written.is_done, 5_000, "it is written")


def partition(cluster: WholeCluster) -> Any:
    return cluster.running[0].metadata.image.topics["t"].partitions[0]


def damage(node: WholeBroker) -> bytes:
    """Flip one bit of the first record. Return the new content of the file."""
    content = node.disk.contents(LOG)
    content[70] ^= 1
    return bytes(content)


def problems(node: WholeBroker) -> list[str]:
    assert node.broker is not None
    return [one.text for one in BrokerStatus(node.broker, 0).status().problems]


def is_settled(cluster: WholeCluster) -> bool:
    return len(partition(cluster).in_sync_replicas) == len(partition(cluster).replicas)


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_damaged_replica_is_put_aside_and_fetched_again(is_leader: bool) -> None:
    cluster, _ = cluster_with(3)
    hurt = next(
        one for one in cluster.nodes if (one.node_id == partition(cluster).leader) == is_leader
    )
    hurt.kill()
    broken = damage(hurt)
    hurt.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "all in service")
    cluster.run_until(lambda: is_settled(cluster), 10_000, "it is in sync again")
    first, *others = (bytes(one.disk.contents(LOG)).rstrip(b"\0") for one in cluster.nodes)
    assert first
    assert others == [first, first]
    assert bytes(hurt.disk.contents(f"{ASIDE}/{0:020d}.log")) == broken
    assert problems(hurt) == []
    # After a restart the folder set aside must not count as a partition, so there is no problem.
    hurt.kill()
    hurt.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "all in service")
    assert problems(hurt) == []
    assert hurt.disk.exists(ASIDE)


def test_a_replica_whose_folder_is_gone_is_fetched_again() -> None:
    cluster, _ = cluster_with(3)
    hurt = cluster.nodes[0]
    hurt.kill()
    hurt.disk.remove_folder(f"{FOLDER}/t-0")
    hurt.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "all in service")
    cluster.run_until(lambda: is_settled(cluster), 10_000, "it is in sync again")
    first, *others = (bytes(one.disk.contents(LOG)).rstrip(b"\0") for one in cluster.nodes)
    assert others == [first, first]


def test_what_cannot_be_put_aside_is_tried_again() -> None:
    cluster, _ = cluster_with(3)
    hurt = next(one for one in cluster.nodes if one.node_id == partition(cluster).leader)
    hurt.kill()
    broken = damage(hurt)
    hurt.disk.refuses = lambda path, operation: operation == "rename" and path.endswith("t-0")
    hurt.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "all in service")
    cluster.run_for(5_000)
    assert not is_settled(cluster)
    (problem,) = problems(hurt)
    assert LOG in problem
    assert "not renamed: rename" in problem
    hurt.disk.refuses = None
    cluster.run_until(lambda: is_settled(cluster), 10_000, "it is in sync again")
    assert bytes(hurt.disk.contents(f"{ASIDE}/{0:020d}.log")) == broken
    assert problems(hurt) == []


def test_the_only_copy_is_kept_and_has_no_leader() -> None:
    cluster, _ = cluster_with(1)
    hurt = next(one for one in cluster.nodes if one.node_id == partition(cluster).leader)
    hurt.kill()
    broken = damage(hurt)
    hurt.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "all in service")
    cluster.run_for(5_000)
    assert bytes(hurt.disk.contents(LOG)) == broken
    assert not hurt.disk.exists(ASIDE)
    one = partition(cluster)
    assert (one.leader, one.in_sync_replicas, one.eligible_leader_replicas) == (-1, (), ())
    assert one.last_known_elr == (hurt.node_id,)
    (problem,) = problems(hurt)
    assert LOG in problem
    assert "no other broker leads a copy" in problem


def test_it_is_kept_until_a_complete_replica_leads() -> None:
    """No other replica has all records, because one is down and the third broker has none. So the
    damaged log must be kept until the complete replica leads."""
    cluster, writing = cluster_with(2, min_insync_replicas="2")
    first, second = (cluster.nodes[one - 1] for one in partition(cluster).replicas)
    for one in (second, first):
        one.kill()
        cluster.run_for(2_000)
    broken = damage(first)
    first.start()
    cluster.run_for(10_000)
    assert bytes(first.disk.contents(LOG)) == broken
    assert partition(cluster).leader == -1
    assert partition(cluster).eligible_leader_replicas == (second.node_id,)
    second.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "all in service")
    cluster.run_until(lambda: is_settled(cluster), 10_000, "it is in sync again")
    assert bytes(first.disk.contents(f"{ASIDE}/{0:020d}.log")) == broken
    write(cluster, writing)
    assert writing.offsets[0] == list(range(2 * RECORDS))


def restarted_alone(cluster: WholeCluster, node: WholeBroker) -> tuple[int, Any]:
    """Restart the only broker with a replica. Return the partition's leader and last known ELR."""
    node.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "all in service")
    cluster.run_for(1_000)
    return partition(cluster).leader, partition(cluster).last_known_elr


def with_one_unsynced_copy() -> tuple[WholeCluster, Writing, WholeBroker]:
    cluster, writing = cluster_with(1, flush_messages="1000")
    leader = partition(cluster).leader
    return cluster, writing, next(one for one in cluster.nodes if one.node_id == leader)


def test_who_is_killed_is_believed_what_the_kernel_has_and_who_loses_power_is_not() -> None:
    cluster, writing, node = with_one_unsynced_copy()
    for _ in range(2):
        node.kill()
        assert restarted_alone(cluster, node) == (node.node_id, ())
    write(cluster, writing)
    assert writing.offsets[0] == list(range(2 * RECORDS))
    node.cut_power(cluster.chance)
    assert restarted_alone(cluster, node) == (-1, (node.node_id,))


def test_who_ends_because_a_sync_has_failed_is_not_believed() -> None:
    """After a failed fsync the kernel can have dropped pages that it could not write. So the
    broker's unsynced records must not be trusted, although the machine has not restarted."""
    cluster, writing, node = with_one_unsynced_copy()
    write(cluster, writing)
    node.disk.refuses = lambda path, operation: "t-0" in path and operation == "fdatasync"
    node.disk.refusal = errno.EIO
    assert node.broker is not None
    with pytest.raises(Died, match="sync failed"):
        node.broker.replicas.flush_all()
        cluster.run_for(2_000)
    node.disk.refuses = None
    node.kill()
    assert restarted_alone(cluster, node) == (-1, (node.node_id,))


def test_a_folder_of_no_topic_is_set_aside_and_blocks_no_partition() -> None:
    cluster, writing = cluster_with(3)
    node = cluster.nodes[0]
    node.kill()
    node.disk.rename(f"{FOLDER}/t-0", f"{FOLDER}/other-0")
    stray = bytes(node.disk.contents(f"{FOLDER}/other-0/{0:020d}.log"))
    for _ in range(2):
        node.start()
        cluster.run_until(lambda: is_in_service(cluster), 15_000, "all in service")
        cluster.run_for(VOUCHED_MS)
        kept = bytes(node.disk.contents(f"{FOLDER}/other-0.00000001-stray/{0:020d}.log"))
        assert kept.rstrip(b"\0") == stray.rstrip(b"\0")
        assert problems(node) == []
        node.kill()
    node.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "all in service")
    made = writing.client(1, topic_made("other", 1, replication_factor=3))
    cluster.run_until(lambda: made.is_done, 5_000, "the topic is made")
    cluster.run_for(VOUCHED_MS)
    assert problems(node) == []
    assert node.broker is not None
    assert TopicPartition("other", 0) in node.broker.replicas.logs.logs
