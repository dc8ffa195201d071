"""Brokers that stop cleanly. Other brokers lead before a broker ends, so clients notice only a
change of leaders."""

from __future__ import annotations

import pytest

from broker.node.leaving import LAST_ANSWERS_MS
from broker.world import Address
from protocol.client.fetch_core import IsolationLevel
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.types import NO_NODE
from protocol.wire.schema import Message
from tests.sim.clients import TRANSACTION, Client, Produced, Read, Script, topic_made
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import HOST_PORT, WholeBroker, WholeCluster

TOPIC = "t"
PARTITIONS = 3
HANDED_OVER_MS = 600 + LAST_ANSWERS_MS
"""Within this time a clean stop is complete if other brokers can take over. It includes two
heartbeats, an election of the quorum, and the last answers to clients."""

RETRY_PAUSE_MS = 250
"""The pause before most clients ask again, and the time for the next answer."""

PATIENCE_MS = 4_000
"""Within this time a broker ends that cannot hand over its leaderships."""


def in_service(name: str, **settings: object) -> WholeCluster:
    cluster = WholeCluster(name, 3, {"min.insync.replicas": 2, **settings})
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 5_000, "all in service")
    return cluster


def client_of(cluster: WholeCluster, host: str, script: object, partition: int = -1) -> Client:
    """Return a client of a partition's leader. Without a leader it uses any running broker."""
    brokers = {node.node_id: Address(node.host, HOST_PORT) for node in cluster.nodes}

    def find(request: Message) -> int:
        led = leaders(cluster)
        leader = led[partition] if partition >= 0 and led else NO_NODE
        return leader if leader != NO_NODE else cluster.running[0].node_id

    return Client(cluster.network, host, brokers, script, find)  # type: ignore[arg-type]


def leaders(cluster: WholeCluster) -> list[int]:
    images = [node.metadata.image for node in cluster.running if node.metadata is not None]
    newest = max(images, key=lambda image: image.end_offset)
    known = newest.topics.get(TOPIC)
    return [one.leader for one in known.partitions] if known is not None else []


def stopped(cluster: WholeCluster, node: WholeBroker, limit_ms: int) -> int:
    """Stop a broker cleanly. Return how many ms this took."""
    clock = cluster.network.timeline.clock
    began_ms = clock.monotonic_ms()
    node.stop()
    cluster.run_until(lambda: node.broker is None, limit_ms, f"{node.host} has ended")
    return clock.monotonic_ms() - began_ms


@pytest.mark.parametrize("is_controller_first", [True, False])
def test_a_rolling_restart_moves_all_leaderships_before_anybody_ends(
    *, is_controller_first: bool
) -> None:
    cluster = in_service(f"one by one, {is_controller_first}")
    made = client_of(cluster, "m", topic_made(TOPIC, PARTITIONS, replication_factor=3))
    cluster.run_until(lambda: made.is_done, 5_000, "the topic is made")
    produced = Produced("p", TOPIC, 400)
    writing = [
        client_of(cluster, f"w{one}", produced.script(one), one) for one in range(PARTITIONS)
    ]
    reads = [Read(TOPIC, one, IsolationLevel.READ_UNCOMMITTED) for one in range(PARTITIONS)]
    reading = [
        client_of(cluster, f"r{one.partition}", one.script(), one.partition) for one in reads
    ]
    order = sorted(
        cluster.nodes, key=lambda node: (node is cluster.active()) != is_controller_first
    )
    for node in order:
        cluster.run_for(500)
        assert stopped(cluster, node, HANDED_OVER_MS)
        assert node.node_id not in leaders(cluster)
        assert NO_NODE not in leaders(cluster), "each partition kept a leader"
        # Without a handover the quorum would need two seconds to notice that its leader is gone.
        cluster.run_until(lambda: cluster.active() is not None, 600, "another has the controller")
        node.start()
        cluster.run_until(lambda: is_in_service(cluster), 20_000, "it is back")
    cluster.run_until(lambda: all(one.is_done for one in writing), 60_000, "all has been written")
    for one in reads:
        one.is_to_end = True
    cluster.run_until(lambda: all(one.is_done for one in reading), 20_000, "all has been read")
    for one in reads:
        assert [value for _, value in one.records] == produced.values[one.partition]


def test_a_broker_that_has_handed_over_answers_clients_a_little_longer() -> None:
    """Clients look for the new leaders and coordinators at once, or after a pause. aiokafka gives a
    transaction up if the broker that it asks closes the connection."""
    cluster = in_service("a little longer")
    leaving = cluster.nodes[0]
    answered_ms: list[int] = []
    clock = cluster.network.timeline.clock

    def asking() -> Script:
        while True:
            asked = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["t"])
            if (yield asked) is None:
                return
            answered_ms.append(clock.monotonic_ms())
            yield 5

    brokers = {leaving.node_id: Address(leaving.host, HOST_PORT)}
    Client(cluster.network, "c", brokers, asking())
    leaving.stop()
    other = cluster.nodes[1]
    cluster.run_until(
        lambda: leaving.node_id not in in_service_at(other), PATIENCE_MS, "others have taken over"
    )
    over_ms = clock.monotonic_ms()
    cluster.run_until(lambda: leaving.broker is None, PATIENCE_MS, "it has ended")
    assert answered_ms[-1] - over_ms >= RETRY_PAUSE_MS


def in_service_at(node: WholeBroker) -> set[int]:
    """Return the brokers that a broker names to clients."""
    assert node.metadata is not None
    return {one.node_id for one in node.metadata.image.brokers.values() if not one.is_fenced}


def test_the_last_brokers_end_without_a_successor() -> None:
    cluster = in_service("all of them")
    one, two, three = cluster.nodes
    stopped(cluster, one, HANDED_OVER_MS)
    stopped(cluster, two, PATIENCE_MS)
    stopped(cluster, three, PATIENCE_MS)


def test_a_broker_whose_others_are_dead_ends_when_it_has_waited() -> None:
    cluster = in_service("dead others")
    one, two, three = cluster.nodes
    one.kill()
    two.kill()
    stopped(cluster, three, PATIENCE_MS)


@pytest.mark.parametrize("are_together", [True, False])
def test_what_was_only_written_counts_after_a_clean_stop_of_all(*, are_together: bool) -> None:
    """With Kafka's default for `flush.messages`, records are not synced before the stop. The clean
    shutdown mark must prove that each replica still has all its records."""
    cluster = in_service(f"interval {are_together}", **{"log.flush.interval.messages": 2**63 - 1})
    made = client_of(cluster, "m", topic_made(TOPIC, PARTITIONS, replication_factor=3))
    cluster.run_until(lambda: made.is_done, 5_000, "the topic is made")
    produced = Produced("p", TOPIC, 20)
    writing = [
        client_of(cluster, f"w{one}", produced.script(one), one) for one in range(PARTITIONS)
    ]
    cluster.run_until(lambda: all(one.is_done for one in writing), 20_000, "all has been written")
    for node in cluster.nodes:
        node.stop()
        if not are_together:
            cluster.run_until(lambda node=node: node.broker is None, PATIENCE_MS, "it has ended")
    cluster.run_until(lambda: not cluster.running, 2 * PATIENCE_MS, "all have ended")
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 20_000, "all are back")
    cluster.run_until(lambda: NO_NODE not in leaders(cluster), 20_000, "all are led")
    reads = [Read(TOPIC, one, IsolationLevel.READ_UNCOMMITTED) for one in range(PARTITIONS)]
    for one in reads:
        one.is_to_end = True
    reading = [
        client_of(cluster, f"r{one.partition}", one.script(), one.partition) for one in reads
    ]
    cluster.run_until(lambda: all(one.is_done for one in reading), 20_000, "all has been read")
    for one in reads:
        assert [value for _, value in one.records] == produced.values[one.partition]
