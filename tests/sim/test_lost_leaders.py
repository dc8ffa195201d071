"""A leader dies, and its clients at once ask the other brokers for the new leader."""

from collections.abc import Iterator
from typing import Any

import pytest

from broker.handlers.lost_leaders import HOLD_MS
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.sim.clients import topic_made
from tests.sim.test_whole_brokers import Writing, is_in_service
from tests.sim.whole_brokers import WholeBroker, WholeCluster

ROUNDS = 6


def in_service(name: str) -> tuple[WholeCluster, Writing]:
    cluster = WholeCluster(name, settings={"offsets.topic.replication.factor": 3})
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 5_000, "all in service")
    writing = Writing(cluster, "t")
    made = writing.client(2, topic_made("t", 9, replication_factor=3))
    cluster.run_until(lambda: made.is_done, 5_000, "the topic is made")
    cluster.run_for(500)
    return cluster, writing


class Asker:
    """A client that is connected to one broker, and repeats its request with pauses."""

    def __init__(
        self, cluster: WholeCluster, writing: Writing, node: WholeBroker, topic: str = "t"
    ) -> None:
        self.answer: Any = None
        self.must_ask = False
        self.waited_ms = 0
        self._now_ms = cluster.network.timeline.clock.monotonic_ms
        self._topic = topic
        self.client = writing.client(node.node_id, self._script())

    def leaders(self) -> list[int]:
        return [part.leader_id for part in self.answer.topics[0].partitions]

    def _script(self) -> Iterator[Any]:
        ask = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)])
        yield ask
        while not self.must_ask:
            yield 1
        began_ms = self._now_ms()
        self.answer = yield ask
        self.waited_ms = self._now_ms() - began_ms


def ask_all(cluster: WholeCluster, askers: list[Asker]) -> None:
    for one in askers:
        one.must_ask = True
    cluster.run_until(lambda: all(one.client.is_done for one in askers), 2_000, "answers")


@pytest.mark.parametrize("kills_controller", [False, True])
@pytest.mark.parametrize("after_ms", [5, 20, 80])
def test_the_dead_leader_is_not_named(after_ms: int, kills_controller: bool) -> None:
    cluster, writing = in_service(f"lost leaders {after_ms} {kills_controller}")
    for _ in range(ROUNDS):
        active = cluster.active()
        assert active is not None
        others = [node for node in cluster.nodes if node is not active]
        killed = active if kills_controller else others[0]
        survivors = [node for node in cluster.nodes if node is not killed]
        askers = [Asker(cluster, writing, node) for node in survivors]
        cluster.run_for(100)
        killed.kill()
        cluster.run_for(after_ms)
        ask_all(cluster, askers)
        for one in askers:
            leaders = one.leaders()
            assert killed.node_id not in leaders, f"after {one.waited_ms} ms"
            assert -1 not in leaders
            assert one.waited_ms <= HOLD_MS
        killed.start()
        cluster.run_until(lambda: is_in_service(cluster), 15_000, "it is back")
        # Wait until the preferred leaders lead again.
        cluster.run_for(6_000)


def test_a_link_that_breaks_while_the_leader_lives_delays_an_answer_at_most_for_the_limit() -> None:
    cluster, writing = in_service("a broken link")
    active = cluster.active()
    assert active is not None
    leader, other = [node for node in cluster.nodes if node is not active]
    asker = Asker(cluster, writing, other)
    cluster.run_for(100)
    cluster.network.lose_links(leader.host, other.host)
    cluster.run_for(5)
    ask_all(cluster, [asker])
    assert leader.node_id in asker.leaders()
    assert asker.waited_ms <= HOLD_MS


def test_the_dead_coordinator_is_not_named() -> None:
    cluster, writing = in_service("a coordinator")
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b", "c", "d", "e", "f"])
    found: list[list[int]] = []

    def ask() -> Any:
        while len(found) < 2:
            answer = yield find
            known = [one.node_id for one in answer.coordinators]
            if -1 not in known:
                found.append(known)
                yield 100
            yield 10

    active = cluster.active()
    assert active is not None
    killed, other = [node for node in cluster.nodes if node is not active]
    asker = writing.client(other.node_id, ask())
    cluster.run_until(lambda: len(found) == 1, 5_000, "all have a coordinator")
    assert killed.node_id in found[0]
    killed.kill()
    cluster.run_until(lambda: asker.is_done, 2_000, "all have a coordinator again")
    assert killed.node_id not in found[1]


def test_a_second_lost_leader_does_not_extend_the_wait_for_the_first() -> None:
    cluster, writing = in_service("two lost links")
    asked, *others = cluster.nodes
    asker = Asker(cluster, writing, asked)
    cluster.run_for(100)
    for node in others:
        cluster.network.cut(asked.host, node.host)
        cluster.network.cut(node.host, asked.host)
    cluster.network.lose_links(asked.host, others[0].host)
    cluster.run_for(5)
    asker.must_ask = True
    cluster.run_for(HOLD_MS - 100)
    assert asker.answer is None
    cluster.network.lose_links(asked.host, others[1].host)
    cluster.run_for(200)
    assert asker.client.is_done
    assert asker.waited_ms <= HOLD_MS


def test_other_topics_are_described_at_once() -> None:
    cluster, writing = in_service("other topics")
    active = cluster.active()
    assert active is not None
    killed, other = [node for node in cluster.nodes if node is not active]
    unknown = Asker(cluster, writing, other, "none of this name")
    # Only the broker can delay the answer.
    cluster.network.mix.late = 0.0
    cluster.run_for(100)
    killed.kill()
    cluster.run_for(5)
    ask_all(cluster, [unknown])
    assert unknown.waited_ms <= 100
