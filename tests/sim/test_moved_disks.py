"""Brokers at other addresses, with their own disks or with old copies of them (guard 62)."""

from __future__ import annotations

from copy import deepcopy

import pytest

from broker.cluster import moved_disk
from broker.cluster.moves import MovedBrokers
from broker.metadata.partition_image import PartitionImage
from broker.node.status import BrokerStatus
from protocol.types import NO_NODE
from tests.sim.clients import Script, batch_of, producer_of, topic_made, written
from tests.sim.disk import SimDisk
from tests.sim.test_cluster_status import asked
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import WholeBroker, WholeCluster

MARK = f"/data/__cluster_metadata-0/{moved_disk.MARK}"


@pytest.fixture
def cluster() -> WholeCluster:
    """Return three brokers with a topic of three replicas, and one of a replica on each."""
    cluster = WholeCluster("moved")
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 60_000, "all in service")
    asked(cluster, 1, topic_made("t", 1, replication_factor=3, min_insync_replicas="2"))
    asked(cluster, 1, topic_made("single", 3))
    cluster.run_for(1_000)
    return cluster


def copied(node: WholeBroker) -> SimDisk:
    """Return a copy of the disk of a broker, which can be running."""
    disk = deepcopy(node.disk)
    disk.locked.clear()
    return disk


def move(node: WholeBroker, host: str) -> None:
    """Configure a broker that is down at another address. The files of the others do not matter,
    because they learn the address from its registration."""
    node.host = host
    node.configured[str(node.node_id)]["host"] = host


def stop(cluster: WholeCluster, *nodes: WholeBroker) -> None:
    for node in nodes:
        node.stop()
    cluster.run_until(lambda: not set(nodes) & set(cluster.running), 30_000, "stopped")


def write(cluster: WholeCluster, topic: str, partition: int, value: bytes) -> int:
    """Write a record to the leader of the partition. Return its offset."""
    offsets: list[int] = []

    def script() -> Script:
        producer = yield from producer_of(None)
        batch = batch_of(value, (*producer, 0))
        offsets.append((yield from written(topic, partition, batch, None)))

    asked(cluster, partition_in(cluster, topic, partition).leader, script())
    return offsets[0]


def partition_in(cluster: WholeCluster, topic: str, partition: int = 0) -> PartitionImage:
    active = cluster.active()
    assert active is not None
    found: PartitionImage = active.metadata.image.topics[topic].partitions[partition]
    return found


def single_of(cluster: WholeCluster, node: WholeBroker) -> int:
    """Return the partition of the topic `single` that has its only replica on this broker."""
    active = cluster.active()
    assert active is not None
    partitions = active.metadata.image.topics["single"].partitions
    return next(at for at, one in enumerate(partitions) if one.replicas == (node.node_id,))


def must_catch_up(node: WholeBroker) -> bool:
    return node.metadata is not None and node.metadata.quorum.must_catch_up


def problems(node: WholeBroker) -> dict[str, str]:
    assert node.broker is not None
    return {one.code: one.text for one in BrokerStatus(node.broker, 0).status().problems}


@pytest.mark.parametrize("is_controller", [True, False])
def test_a_broker_with_a_newer_file_than_the_others_says_so(
    cluster: WholeCluster, *, is_controller: bool
) -> None:
    """The other brokers still run at their old addresses. This broker does not connect to these: if
    the whole cluster was restored elsewhere, another cluster runs at the old addresses."""
    one = next(node for node in cluster.nodes if (node is cluster.active()) is is_controller)
    others = [node for node in cluster.nodes if node is not one]
    stop(cluster, one)
    for node in others:
        one.configured[str(node.node_id)]["host"] = f"m{node.node_id}"
    one.start()
    cluster.run_for(10_000)
    assert not one.is_ready
    text = problems(one)["no_quorum"]
    for node in others:
        assert f"{node.node_id} (from n{node.node_id}:29092 to m{node.node_id}:29092)" in text
    assert "If they still run at their old addresses, restart them" in text
    stop(cluster, one)
    for node in others:
        one.configured[str(node.node_id)]["host"] = node.host
    one.start()
    cluster.run_until(lambda: is_in_service(cluster), 30_000, "all in service")
    assert "no_quorum" not in problems(one)


def test_an_old_copy_at_another_address_votes_when_it_has_caught_up(cluster: WholeCluster) -> None:
    one, two, three = cluster.nodes
    copy = copied(two)
    write(cluster, "t", 0, b"since the copy")
    stop(cluster, *cluster.nodes)
    two.disk = copy
    move(two, "m2")
    one.start()
    two.start()
    cluster.run_for(20_000)
    assert cluster.active() is None, "1 was elected by the copy"
    assert must_catch_up(two) and two.metadata.quorum.role_name == "observer"
    assert two.disk.exists(MARK)
    text = problems(two)["moved_alone"]
    assert "was used at n2:29092, and the broker is now at m2:29092" in text
    assert "moved_together" not in problems(two), "1 and 3 can elect"
    three.start()
    cluster.run_until(lambda: is_in_service(cluster), 30_000, "all in service")
    cluster.run_until(lambda: not must_catch_up(two), 10_000, "2 has caught up")
    cluster.run_for(1_000)
    assert not two.disk.exists(MARK)
    assert problems(two) == {}
    three.kill()
    cluster.run_until(lambda: cluster.active() in (one, two), 20_000, "1 and 2 elect")


def test_an_old_copy_is_in_sync_only_when_it_has_copied(cluster: WholeCluster) -> None:
    _, two, _ = cluster.nodes
    copy = copied(two)
    write(cluster, "t", 0, b"since the copy")
    stop(cluster, two)
    two.disk = copy
    move(two, "m2")
    assert partition_in(cluster, "t").in_sync_replicas == (1, 3)
    two.start()
    cluster.run_until(
        lambda: 2 in partition_in(cluster, "t").in_sync_replicas, 60_000, "2 is in sync again"
    )
    assert two.broker is not None
    log = two.broker.parts.replicas.find_held("t", 0).log
    assert log.log_end_offset == 1, "it was in sync without the record"


def test_a_broker_that_stopped_clean_takes_its_replicas_along(cluster: WholeCluster) -> None:
    _, two, _ = cluster.nodes
    single = single_of(cluster, two)
    write(cluster, "single", single, b"kept")
    stop(cluster, two)
    move(two, "m2")
    two.start()
    cluster.run_until(lambda: is_in_service(cluster), 60_000, "all in service")
    cluster.run_until(lambda: partition_in(cluster, "single", single).leader == 2, 9_000, "led")
    assert write(cluster, "single", single, b"next") == 1


def stale_leader(cluster: WholeCluster) -> int:
    """Start broker 2 at another address with a copy that lacks an acknowledged record of a
    partition that no other broker has. Return the partition's leader."""
    _, two, _ = cluster.nodes
    single = single_of(cluster, two)
    copy = copied(two)
    assert write(cluster, "single", single, b"since the copy") == 0
    stop(cluster, two)
    two.disk = copy
    move(two, "m2")
    two.start()
    cluster.run_until(lambda: is_in_service(cluster), 60_000, "all in service")
    cluster.run_for(5_000)
    return partition_in(cluster, "single", single).leader


def test_an_old_copy_does_not_lead(cluster: WholeCluster) -> None:
    assert stale_leader(cluster) == NO_NODE


def test_guard_62_without_it_an_old_copy_leads(
    cluster: WholeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moved_disk, "look", lambda *found: MovedBrokers())
    assert stale_leader(cluster) == 2


def test_a_cluster_that_is_moved_as_a_whole_elects_as_before(cluster: WholeCluster) -> None:
    single = single_of(cluster, cluster.nodes[1])
    write(cluster, "single", single, b"kept")
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.host = f"m{node.node_id}"
        for other in ("1", "2", "3"):
            node.configured[other]["host"] = f"m{other}"
    for node in cluster.nodes[:2]:
        node.start()
    cluster.run_until(lambda: cluster.active() is not None, 10_000, "two of three elect")
    assert not any(must_catch_up(node) for node in cluster.nodes)
    cluster.nodes[2].start()
    cluster.run_until(lambda: is_in_service(cluster), 30_000, "all in service")
    assert [problems(node) for node in cluster.nodes] == [{}, {}, {}]
    assert partition_in(cluster, "single", single).leader == 2


def test_a_cluster_that_is_moved_as_a_whole_can_die_in_between(cluster: WholeCluster) -> None:
    one, *others = cluster.nodes
    one.kill()
    move(one, "m1")
    one.start()
    cluster.run_until(lambda: is_in_service(cluster), 30_000, "all in service")
    for node in cluster.nodes:
        node.kill()
    for node in others:
        node.host = f"m{node.node_id}"
    for node in cluster.nodes:
        for other in ("2", "3"):
            node.configured[other]["host"] = f"m{other}"
        node.configured["1"]["host"] = "m1"
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 30_000, "all in service")


def test_two_that_are_moved_together_say_how_to_go_on(cluster: WholeCluster) -> None:
    _, two, three = cluster.nodes
    stop(cluster, *cluster.nodes)
    for node in cluster.nodes:
        for other in ("2", "3"):
            node.configured[other]["host"] = f"m{other}"
    two.host, three.host = "m2", "m3"
    for node in cluster.nodes:
        node.start()
    cluster.run_for(30_000)
    assert cluster.active() is None
    for node in cluster.nodes:
        assert problems(node)["moved_together"] == (
            "no controller can be elected, because brokers 2 (from n2:29092 to m2:29092), 3 (from "
            "n3:29092 to m3:29092) were moved together: each can be an old copy, and waits for a "
            "controller before it votes. Start one of them at its old address first"
        )
    assert [("moved_alone" in problems(node)) for node in cluster.nodes] == [False, True, True]
    for node in cluster.nodes:
        node.kill()
    two.host = "n2"
    for node in cluster.nodes:
        node.configured["2"]["host"] = "n2"
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 30_000, "all in service")
    cluster.run_until(lambda: not must_catch_up(three), 10_000, "3 has caught up")
    assert not must_catch_up(two)
    assert not two.disk.exists(MARK)
