"""A broker that waits for other brokers names them in `/healthz` and `/status`."""

from __future__ import annotations

import pytest

from broker.node.status import BrokerStatus
from protocol.status import PartState, PartStatus
from tests.sim.test_whole_brokers import is_in_service, is_whole
from tests.sim.whole_brokers import BETWEEN_PORT, WholeBroker, WholeCluster


def status(node: WholeBroker) -> PartStatus:
    """Return the status of a broker. It is RUNNING if the broker has been in service once."""
    assert node.broker is not None
    told = BrokerStatus(node.broker, 0)
    if node.is_ready:
        told.state = PartState.RUNNING
    return told.status()


def born(name: str) -> WholeCluster:
    cluster = WholeCluster(name)
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 5_000, "all in service")
    return cluster


def test_who_is_not_born_names_the_missing_and_what_is_heard_of_them() -> None:
    cluster = WholeCluster("unborn")
    one, two, three = cluster.nodes
    one.start()
    two.start()
    cluster.run_for(5_000)
    told = status(one)
    assert not told.ready
    assert [problem.code for problem in told.problems] == ["waits_for_brokers"]
    # `/healthz` returns this text, and the supervisor shows it.
    assert told.reason_not_ready() == (
        "waits_for_brokers: a new cluster begins when all of its brokers are up; "
        f"this broker waits for 3 at n3:{BETWEEN_PORT} refuses connections (for 5 s)"
    )
    # The second broker also waits for the first one, which does respond.
    assert f"waits for 1 at n1:{BETWEEN_PORT}" in status(two).reason_not_ready()
    assert "refuses" not in status(two).reason_not_ready()
    three.start()
    cluster.run_until(lambda: is_in_service(cluster), 5_000, "all in service")
    assert [status(node).problems for node in cluster.nodes] == [(), (), ()]


def test_who_comes_back_alone_names_the_voters_that_a_quorum_lacks() -> None:
    cluster = born("alone")
    one, two, three = cluster.nodes
    for node in cluster.nodes:
        node.kill()
    two.start()
    cluster.run_for(7_000)
    told = status(two)
    assert not told.ready
    assert told.reason_not_ready() == (
        "no_quorum: no controller: this broker waits for 2 of the voters 1, 2, 3: "
        f"1 at n1:{BETWEEN_PORT} refuses connections (for 7 s), "
        f"3 at n3:{BETWEEN_PORT} refuses connections (for 7 s)"
    )
    three.start()
    cluster.run_until(lambda: two.is_ready and three.is_ready, 20_000, "two are enough")
    assert status(two).problems == status(three).problems == ()
    one.start()
    cluster.run_until(lambda: is_whole(cluster), 20_000, "all are back")


def test_the_last_one_says_so_while_it_serves() -> None:
    cluster = born("last")
    one, two, three = cluster.nodes
    two.kill()
    three.kill()
    cluster.run_for(8_000)
    told = status(one)
    assert (told.ready, told.state) == (True, PartState.DEGRADED)
    text = next(problem.text for problem in told.problems if problem.code == "no_quorum")
    assert text.startswith("no controller: this broker waits for 2 of the voters 1, 2, 3: 2 at n2:")
    two.start()
    cluster.run_until(lambda: two.is_ready, 20_000, "two are enough")
    cluster.run_for(1_000)
    assert "no_quorum" not in [problem.code for problem in status(one).problems]


@pytest.mark.parametrize("survivor", [0, 1, 2])
def test_a_lone_follower_of_a_dead_leader_says_that_there_is_no_quorum(survivor: int) -> None:
    cluster = born("follower")
    left = cluster.nodes[survivor]
    others = [node for node in cluster.nodes if node is not left]
    # The leader is killed last, so the survivor follows it when it dies.
    for node in sorted(others, key=lambda one: one is cluster.active()):
        node.kill()
    cluster.run_for(8_000)
    assert [one.code for one in status(left).problems if one.code == "no_quorum"]
    cluster.run_for(60_000)
    assert [one.code for one in status(left).problems if one.code == "no_quorum"]
    others[0].start()
    cluster.run_until(lambda: others[0].is_ready, 20_000, "two are enough")
    cluster.run_for(3_000)
    assert "no_quorum" not in [one.code for one in status(left).problems]


def test_an_election_is_no_trouble_to_those_who_serve() -> None:
    cluster = born("election")
    controller = cluster.active()
    assert controller is not None
    controller.kill()
    # The election is over within a moment, so look at the status every 5 ms.
    for _ in range(200):
        cluster.run_for(5)
        for node in cluster.running:
            assert "no_quorum" not in [one.code for one in status(node).problems]
    assert cluster.active() is not None


def test_who_joins_names_the_brokers_that_it_asks() -> None:
    cluster = WholeCluster("joins")
    three = cluster.nodes[2]
    three.joins = True
    three.start()
    cluster.run_for(5_000)
    said = status(three).reason_not_ready()
    assert "waits_for_cluster: this broker joins a cluster" in said
    assert f"1 at n1:{BETWEEN_PORT} refuses connections" in said
    assert f"2 at n2:{BETWEEN_PORT} refuses connections" in said
