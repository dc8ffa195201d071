"""Orders whose controller dies. They are executed at most once, and no client waits for ever."""

from __future__ import annotations

from typing import Any

import pytest

from broker.world import Address
from protocol.errors import ApiError, ErrorCode
from protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.sim.clients import Client, Script, topic_made
from tests.sim.test_leaving import TOPIC, in_service
from tests.sim.whole_brokers import HOST_PORT, WholeBroker, WholeCluster

ELECTED_MS = 6_000
"""Within this time a frozen controller is replaced, and the new one works."""

MAKING = CreateTopicsRequest(
    topics=[CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=3, configs=[])]
)
DELETING = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)])


class Order:
    """An order that a client has given to one broker, and all its outcomes."""

    def __init__(self, node: WholeBroker, order: Any) -> None:
        self.told: list[ErrorCode] = []
        node.metadata.submit(order, self._answered, self._refused, "10.1.2.3")

    def _answered(self, answer: Any) -> None:
        results = getattr(answer, "topics", None) or answer.responses
        self.told.append(ErrorCode(results[0].error_code))

    def _refused(self, error: ApiError) -> None:
        self.told.append(error.code)

    def answered(self, cluster: WholeCluster, limit_ms: int) -> ErrorCode:
        cluster.run_until(lambda: self.told, limit_ms, "an answer")
        (code,) = self.told
        return code


def sides(cluster: WholeCluster) -> tuple[WholeBroker, WholeBroker]:
    """Return the controller and a broker that is not the controller."""
    controller = cluster.active()
    assert controller is not None
    return controller, next(node for node in cluster.nodes if node is not controller)


def is_there(node: WholeBroker) -> bool:
    return TOPIC in node.metadata.image.topics


def test_an_order_does_not_wait_for_a_controller_that_stands_still() -> None:
    cluster = in_service("frozen controller")
    controller, node = sides(cluster)
    controller.freeze()
    order = Order(node, MAKING)
    assert order.answered(cluster, ELECTED_MS) is ErrorCode.NONE
    assert is_there(node)
    controller.thaw()
    cluster.run_until(lambda: is_there(controller), ELECTED_MS, "it knows by the others")
    assert len(order.told) == 1


@pytest.mark.parametrize("wait_ms", range(0, 60, 4))
def test_a_topic_is_made_though_the_controller_dies_under_the_order(wait_ms: int) -> None:
    """The broker sends the request to the next controller again.

    If the topic already exists by then, TOPIC_ALREADY_EXISTS is correct, as with Kafka.
    """
    cluster = in_service(f"dying {wait_ms}")
    controller, node = sides(cluster)
    order = Order(node, MAKING)
    cluster.run_for(wait_ms)
    controller.kill()
    code = order.answered(cluster, ELECTED_MS)
    assert code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    cluster.run_until(lambda: is_there(node), 1_000, "the topic")


@pytest.mark.parametrize("wait_ms", range(0, 60, 4))
def test_a_deletion_is_not_given_twice(wait_ms: int) -> None:
    """A broker must not repeat a deletion, because another topic can have the name by then."""
    cluster = in_service(f"deleting {wait_ms}")
    controller, node = sides(cluster)
    where = {node.node_id: Address(node.host, HOST_PORT)}
    making = Client(cluster.network, "m", where, _made())
    cluster.run_until(lambda: making.is_done and is_there(node), 5_000, "the topic")
    order = Order(node, DELETING)
    cluster.run_for(wait_ms)
    controller.kill()
    code = order.answered(cluster, ELECTED_MS)
    if code is ErrorCode.NONE:
        # The deletion is committed, but this broker can learn that only from the next controller.
        cluster.run_until(lambda: not is_there(node), ELECTED_MS, "the topic is gone here")
    else:
        assert code is ErrorCode.REQUEST_TIMED_OUT


def _made() -> Script:
    yield from topic_made(TOPIC, 3, replication_factor=3)
