"""Whole brokers on one timeline: they are born together, elect, and outlive each other."""

from __future__ import annotations

import pytest

from tests.harness.seed import seeded
from tests.sim.disk import SimDisk
from tests.sim.whole_brokers import WholeCluster
from tests.sim.world import Died


def is_whole(cluster: WholeCluster) -> bool:
    """Whether all have joined one cluster, which has a controller whom all follow."""
    voters = cluster.voters()
    if len(voters) < len(cluster.nodes) or not all(voters) or len(set(voters)) > 1:
        return False
    if cluster.active() is None:
        return False
    ends = {node.metadata.image.end_offset for node in cluster.nodes}
    return len(ends) == 1


def test_three_empty_brokers_become_a_cluster_when_the_last_is_up() -> None:
    cluster = WholeCluster("born")
    one, two, three = cluster.nodes
    two.start()
    cluster.run_for(3_000)
    one.start()
    cluster.run_for(3_000)
    assert cluster.voters() == [(), ()]
    three.start()
    cluster.run_until(lambda: is_whole(cluster), 2_000, "a cluster")


@pytest.mark.parametrize("number", range(12))
def test_whoever_dies_in_between_the_cluster_is_whole_when_all_are_back(number: int) -> None:
    chance = seeded(f"whole brokers {number}")
    cluster = WholeCluster(str(chance.random()))
    for node in cluster.nodes:
        node.start()
    for _ in range(chance.randint(1, 8)):
        cluster.run_for(chance.randint(1, 600))
        node = chance.choice(cluster.nodes)
        if node.broker is None:
            node.start()
        elif chance.random() < 0.5:
            node.kill()
        else:
            node.cut_power(chance)
    for node in cluster.nodes:
        if node.broker is None:
            node.start()
    cluster.run_until(lambda: is_whole(cluster), 10_000, "a cluster")


def test_a_controller_that_dies_is_replaced_before_its_time_out() -> None:
    cluster = WholeCluster("replaced")
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_whole(cluster), 3_000, "a cluster")
    for _ in range(5):
        leader = cluster.active()
        assert leader is not None
        leader.kill()
        # A refused probe, not the two seconds without an answer that the quorum itself would wait.
        cluster.run_until(lambda: cluster.active() is not None, 400, "another controller")
        leader.start()
        cluster.run_until(lambda: is_whole(cluster), 3_000, "a cluster")


def test_emptied_disks_make_no_second_cluster() -> None:
    cluster = WholeCluster("emptied")
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_whole(cluster), 3_000, "a cluster")
    one, two, three = cluster.nodes
    for node in cluster.nodes:
        node.kill()
    one.disk, two.disk = SimDisk(), SimDisk()
    one.start()
    two.start()
    cluster.run_for(20_000)
    assert cluster.voters() == [(), ()]
    with pytest.raises(Died, match="it was emptied or exchanged"):
        three.start()
        cluster.run_for(2_000)
