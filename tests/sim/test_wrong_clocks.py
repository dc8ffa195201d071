"""Three simulated brokers, one of which has a wrong wall clock: each of them names it."""

from __future__ import annotations

import pytest

from broker.cluster.clocks import CLOCK_LIMIT_MS
from broker.node.status import BrokerStatus
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import WholeBroker, WholeCluster


def told(node: WholeBroker) -> list[str]:
    """Return what a broker reports of wrong clocks."""
    assert node.broker is not None
    problems = BrokerStatus(node.broker, 0).status().problems
    return [one.text for one in problems if one.code == "clock_differs"]


def cluster_with(skews_ms: dict[int, int]) -> WholeCluster:
    cluster = WholeCluster("clocks")
    for node in cluster.nodes:
        node.skew_ms = skews_ms.get(node.node_id, 0)
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 60_000, "all in service")
    cluster.run_for(5_000)
    return cluster


@pytest.mark.parametrize("wrong", [1, 2, 3])
@pytest.mark.parametrize("skew_ms", [CLOCK_LIMIT_MS + 15_000, -CLOCK_LIMIT_MS - 15_000])
def test_every_broker_names_the_one_whose_clock_is_wrong(wrong: int, skew_ms: int) -> None:
    """Also if it is the active controller, with whose clock all others are compared."""
    cluster = cluster_with({wrong: skew_ms})
    direction = "ahead of" if skew_ms > 0 else "behind"
    for node in cluster.nodes:
        [text] = told(node)
        assert f"the clock of broker {wrong} on n{wrong} is 7" in text
        assert f"s {direction} the others' clocks (limit: 60 s)" in text


def test_clocks_within_the_limit_are_no_problem() -> None:
    cluster = cluster_with({1: CLOCK_LIMIT_MS - 20_000, 3: -15_000})
    assert [told(node) for node in cluster.nodes] == [[], [], []]


def test_a_broker_out_of_service_has_no_clock() -> None:
    cluster = cluster_with({2: CLOCK_LIMIT_MS + 15_000})
    node = cluster.nodes[1]
    node.kill()
    cluster.run_for(15_000)
    others = [one for one in cluster.nodes if one is not node]
    assert [told(one) for one in others] == [[], []]
    node.skew_ms = 0
    node.start()
    cluster.run_until(lambda: is_in_service(cluster), 60_000, "all in service")
    cluster.run_for(5_000)
    assert [told(one) for one in cluster.nodes] == [[], [], []]


def test_of_two_clocks_either_can_be_the_wrong_one() -> None:
    cluster = cluster_with({2: CLOCK_LIMIT_MS + 15_000})
    active = cluster.active()
    away = next(one for one in cluster.nodes if one is not active and one.node_id != 2)
    away.kill()
    cluster.run_for(15_000)
    for node in cluster.nodes:
        if node is not away:
            [text] = told(node)
            assert text.endswith("The other clock can be the wrong one")
