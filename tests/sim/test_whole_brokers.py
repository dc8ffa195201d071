"""Whole brokers on one timeline create a cluster, elect leaders, and fail."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

import pytest

from broker.cluster.liveness_driver import BALANCE_MS
from broker.controller.elections import PREFERRED, SETTLED_MS
from broker.controller.suspicion import RECONNECT_MS
from broker.metadata.records import BROKER_RESOURCE
from broker.node.broker import Broker
from broker.world import Address
from protocol.errors import ApiError, ErrorCode
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.elections import ElectLeadersRequest, TopicPartitions
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.harness.seed import seeded
from tests.sim.clients import Client, batch_of, producer_of, topic_made, written
from tests.sim.disk import SimDisk
from tests.sim.whole_brokers import HOST_PORT, WholeBroker, WholeCluster
from tests.sim.world import Died


def is_in_service(cluster: WholeCluster) -> bool:
    """Return True if each broker serves clients, and the metadata of all brokers show this."""
    if not all(node.is_ready for node in cluster.nodes):
        return False
    return is_whole(cluster) and all(
        not broker.is_fenced
        for node in cluster.nodes
        for broker in node.metadata.image.brokers.values()
    )


def is_whole(cluster: WholeCluster) -> bool:
    """Return True if all brokers have joined one cluster and follow the same controller."""
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
    cluster.run_until(lambda: is_in_service(cluster), 2_000, "a cluster, and all in service")


@pytest.mark.parametrize("number", range(12))
def test_whichever_broker_dies_the_cluster_is_whole_when_all_are_back(number: int) -> None:
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
    cluster.run_until(lambda: is_in_service(cluster), 30_000, "all in service")


def test_a_controller_that_dies_is_replaced_before_its_time_out() -> None:
    cluster = WholeCluster("replaced")
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_whole(cluster), 3_000, "a cluster")
    for _ in range(5):
        leader = cluster.active()
        assert leader is not None
        leader.kill()
        # A refused probe shows the death at once. Otherwise the quorum would wait two seconds for a
        # response.
        cluster.run_until(lambda: cluster.active() is not None, 1_000, "another controller")
        leader.start()
        cluster.run_until(lambda: is_whole(cluster), 3_000, "a cluster")


def test_a_broker_that_is_killed_is_fenced_at_once_though_its_listener_ends_behind_its_links() -> (
    None
):
    """The listener of a killed broker closes after its links. A probe that still reaches it must
    not delay the fencing until the session expires."""
    cluster = WholeCluster("fenced")
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 5_000, "all in service")
    for _ in range(20):
        leader = cluster.active()
        assert leader is not None
        other = next(node for node in cluster.nodes if node is not leader)
        other.kill()
        fenced = partial(is_fenced_at, leader, other.node_id)
        cluster.run_until(fenced, RECONNECT_MS, "the dead broker is fenced")
        other.start()
        cluster.run_until(lambda: is_in_service(cluster), 5_000, "all in service")


def is_fenced_at(node: WholeBroker, node_id: int) -> bool:
    return bool(node.metadata.image.brokers[node_id].is_fenced)


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
    with pytest.raises(Died, match="it was emptied or replaced"):
        three.start()
        cluster.run_for(2_000)


class Settings:
    """A client that sets one cluster-wide setting to increasing numbers, each at a random
    broker."""

    KEY = "log.retention.ms"

    def __init__(self, cluster: WholeCluster) -> None:
        self._cluster = cluster
        self.given = 0
        self.answered = 0
        self.unknown: set[int] = set()
        """The numbers of orders whose response was lost. They can take effect at any time."""
        self.is_waiting = False
        self.asked_of: Broker | None = None

    def go_on(self) -> None:
        """Send the next number, unless the last order has no outcome yet."""
        joined = [node for node in self._cluster.running if node.metadata is not None]
        if self.is_waiting or not joined:
            return
        self.given += 1
        self.is_waiting = True
        value = self.given
        one = AlterConfigsResource(
            resource_type=BROKER_RESOURCE,
            resource_name="",
            configs=[AlterableConfig(name=self.KEY, value=str(value))],
        )

        def done(response: IncrementalAlterConfigsResponse) -> None:
            assert [one.error_code for one in response.responses] == [0]
            self.answered = value
            self.is_waiting = False

        def refused(error: ApiError) -> None:
            assert error.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)
            self.unknown.add(value)
            self.is_waiting = False

        node = self._cluster.chance.choice(joined)
        order = IncrementalAlterConfigsRequest(resources=[one])
        self.asked_of = node.broker
        node.metadata.submit(order, done, refused, "10.0.0.1")

    def asked_is_gone(self) -> None:
        """If the broker that got the last order has died, record that the outcome is unknown."""
        if self.asked_of not in [node.broker for node in self._cluster.running]:
            self.unknown.add(self.given)
            self.is_waiting = False


@pytest.mark.parametrize("number", range(6))
def test_an_order_given_at_any_broker_is_decided_once_and_kept(number: int) -> None:
    chance = seeded(f"orders {number}")
    cluster = WholeCluster(str(chance.random()))
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_whole(cluster), 3_000, "a cluster")
    asking = Settings(cluster)
    for _ in range(60):
        asking.go_on()
        cluster.run_for(chance.randint(1, 60))
        if chance.random() < 0.1:
            node = chance.choice(cluster.nodes)
            if node.broker is None:
                node.start()
            else:
                node.kill()
                asking.asked_is_gone()
    for node in cluster.nodes:
        if node.broker is None:
            node.start()
    cluster.run_until(lambda: is_whole(cluster) and not asking.is_waiting, 40_000, "an end")
    # In a run in which all these brokers have died, no order has a response so far. So send one
    # more.
    asking.go_on()
    cluster.run_until(lambda: not asking.is_waiting, 40_000, "the last order")
    assert asking.answered

    def is_kept() -> bool:
        values = {
            int(node.metadata.image.settings(BROKER_RESOURCE, "")[Settings.KEY])
            for node in cluster.nodes
        }
        return len(values) == 1 and values <= {asking.answered, *asking.unknown}

    cluster.run_until(is_kept, 3_000, "all brokers have what was answered last")


class Writing:
    """A producer that writes to the leaders of a topic's partitions."""

    def __init__(self, cluster: WholeCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._numbers = count()
        self.offsets: dict[int, list[int]] = {}

    def leaders(self) -> dict[int, int]:
        """Return the leaders by partition. All running brokers must know the same ones."""
        known = [
            dict(
                enumerate(one.leader for one in node.metadata.image.topics[self._topic].partitions)
            )
            for node in self._cluster.running
            if self._topic in node.metadata.image.topics
        ]
        assert known == [known[0]] * len(self._cluster.running), known
        return known[0]

    def client(self, node_id: int, script: Any) -> Client:
        host = f"writes-{self._topic}-{next(self._numbers)}"
        return Client(
            self._cluster.network, host, {node_id: Address(f"n{node_id}", HOST_PORT)}, script
        )

    def write(self, partition: int, leader: int) -> Client:
        """Write one record to one partition."""

        def script() -> Any:
            producer = yield from producer_of(None)
            offset = yield from written(
                self._topic, partition, batch_of(b"x", (*producer, 0)), None
            )
            self.offsets.setdefault(partition, []).append(offset)

        return self.client(leader, script())


def test_partitions_are_led_all_over_the_cluster_and_come_back_with_their_broker() -> None:
    cluster = WholeCluster("led")
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 3_000, "all in service")
    writing = Writing(cluster, "t")
    made = writing.client(2, topic_made("t", 9))
    cluster.run_until(lambda: made.is_done, 5_000, "the topic is made")
    cluster.run_for(500)
    leaders = writing.leaders()
    assert set(leaders.values()) == {1, 2, 3}

    def write_all() -> None:
        clients = [writing.write(*one) for one in writing.leaders().items() if one[1] > 0]
        cluster.run_until(lambda: all(one.is_done for one in clients), 5_000, "all is written")

    write_all()
    killed = cluster.active()
    assert killed is not None
    killed.kill()
    cluster.run_for(2_000)
    assert [one for one, leader in writing.leaders().items() if leader < 0] == [
        one for one, leader in leaders.items() if leader == killed.node_id
    ]
    write_all()
    killed.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "it is back")
    cluster.run_for(500)
    assert writing.leaders() == leaders
    write_all()
    for partition, leader in leaders.items():
        times = 2 if leader == killed.node_id else 3
        assert writing.offsets[partition] == list(range(times))


def test_replicas_of_a_dead_broker_are_told_to_be_offline_and_it_is_not_listed() -> None:
    cluster = WholeCluster("offline")
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 3_000, "all in service")
    answers: list[Any] = []

    def told() -> Any:
        answers.append((yield MetadataRequest(topics=[MetadataRequestTopic(name="t")])))

    writing = Writing(cluster, "t")
    made = writing.client(2, topic_made("t", 1, replication_factor=3))
    cluster.run_until(lambda: made.is_done, 5_000, "the topic is made")
    cluster.nodes[2].kill()
    cluster.run_for(2_000)
    asked = writing.client(1, told())
    cluster.run_until(lambda: asked.is_done, 1_000, "an answer")
    (answer,) = answers
    assert {one.node_id for one in answer.brokers} == {1, 2}
    (partition,) = answer.topics[0].partitions
    assert sorted(partition.replica_nodes) == [1, 2, 3]
    assert (sorted(partition.isr_nodes), partition.offline_replicas) == ([1, 2], [3])


def test_clients_are_not_let_in_before_there_is_a_broker_to_name() -> None:
    """After all brokers died, each one is fenced until it is back in service. It must not accept
    clients before that. From an empty list of brokers a client such as librdkafka forgets all
    brokers, and then cannot reach any."""
    cluster = WholeCluster("let in")
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 5_000, "all in service")
    named: list[int] = []
    hosts = count()

    def asking() -> Any:
        answer = yield MetadataRequest(topics=[])
        if answer is not None:
            named.append(len(answer.brokers))

    def is_back() -> bool:
        # Let a new client call each broker at every moment, so that none misses the first one.
        for node in cluster.nodes:
            host, address = f"c{next(hosts)}", Address(node.host, HOST_PORT)
            Client(cluster.network, host, {node.node_id: address}, asking())
        return is_in_service(cluster)

    for _ in range(5):
        for node in cluster.nodes:
            node.kill()
        for node in cluster.nodes:
            node.start()
        cluster.run_until(is_back, 20_000, "all in service")
    assert named
    assert min(named) > 0


def test_a_topic_is_made_while_a_broker_restarts_and_that_one_joins_and_leads_later() -> None:
    """The topic is placed on all registered brokers, including a broker that is down. It must
    lead its share of the partitions later."""
    cluster = WholeCluster("restarting")
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 3_000, "all in service")
    away = cluster.nodes[2]
    away.kill()
    cluster.run_for(2_000)
    writing = Writing(cluster, "t")
    made = writing.client(1, topic_made("t", 3, replication_factor=3))
    cluster.run_until(lambda: made.is_done, 5_000, "the topic is made")
    cluster.run_for(500)
    partitions = cluster.nodes[0].metadata.image.topics["t"].partitions
    assert {one.replicas[0] for one in partitions} == {1, 2, 3}
    assert [sorted(one.in_sync_replicas) for one in partitions] == [[1, 2]] * 3
    clients = [writing.write(*one) for one in writing.leaders().items()]
    cluster.run_until(lambda: all(one.is_done for one in clients), 5_000, "all is written")
    away.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "it is back")

    def is_in_sync() -> bool:
        topic = cluster.nodes[0].metadata.image.topics["t"]
        return all(len(one.in_sync_replicas) == 3 for one in topic.partitions)

    cluster.run_until(is_in_sync, 5_000, "it is in sync")
    assert 3 not in writing.leaders().values()
    cluster.run_for(SETTLED_MS - 1_000)
    assert 3 not in writing.leaders().values(), "it has not settled yet"
    cluster.run_for(2 * BALANCE_MS)
    assert set(writing.leaders().values()) == {1, 2, 3}


def test_elections_are_ordered_at_any_broker() -> None:
    cluster = WholeCluster("elected")
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 3_000, "all in service")
    writing = Writing(cluster, "t")
    made = writing.client(1, topic_made("t", 3, replication_factor=3))
    cluster.run_until(lambda: made.is_done, 5_000, "the topic is made")
    cluster.run_for(500)
    back = cluster.nodes[2]
    back.kill()
    cluster.run_for(2_000)
    back.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "it is back")
    cluster.run_for(2_000)
    assert 3 not in writing.leaders().values()
    codes: list[dict[int, int]] = []

    def ordered() -> Any:
        answer = yield ElectLeadersRequest(
            election_type=PREFERRED,
            topic_partitions=[TopicPartitions(topic="t", partitions=[0, 1, 2, 3])],
        )
        (topic,) = answer.replica_election_results
        codes.append({one.partition_id: one.error_code for one in topic.partition_result})

    others = [node for node in cluster.nodes if node is not cluster.active()]
    asked = writing.client(others[0].node_id, ordered())
    cluster.run_until(lambda: asked.is_done, 2_000, "an answer")
    assert sorted(codes[0].values()) == sorted(
        [
            ErrorCode.NONE,
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
    )
    cluster.run_for(200)
    assert set(writing.leaders().values()) == {1, 2, 3}
