"""Brokers that join an existing cluster. They observe, register, and become voters by an order."""

from __future__ import annotations

from typing import Any

import pytest

from broker.cluster.birth import Birth, SendReport
from broker.metadata.records import BROKER_RESOURCE
from broker.world import Address
from protocol.errors import ErrorCode
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.membership import UnregisterBrokerRequest
from protocol.messages.voters import (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    QuorumListener,
    RemoveRaftVoterRequest,
)
from protocol.types import Uuid
from tests.sim.clients import topic_made
from tests.sim.test_cluster_status import answer_of, asked
from tests.sim.test_whole_brokers import is_in_service, is_whole
from tests.sim.whole_brokers import BETWEEN_PORT, WholeBroker, WholeCluster

THE_LOG = DescribeQuorumRequest(
    topics=[
        DescribeQuorumRequestTopic(
            topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartition()]
        )
    ]
)


def newcomer(cluster: WholeCluster, node_id: int, ids: tuple[int, ...]) -> WholeBroker:
    """Start another broker with an empty disk, which joins the cluster."""
    node = WholeBroker(cluster.network, node_id, ids, {})
    node.joins = True
    cluster.nodes.append(node)
    node.start()
    return node


def directory_of(node: WholeBroker) -> Uuid:
    assert node.broker is not None
    return node.broker.metadata.quorum.quorum.replica.me.directory_id


def add(cluster: WholeCluster, node: WholeBroker, by: int, *, is_named: bool = True) -> Any:
    listener = QuorumListener(name="BROKER", host=node.host, port=BETWEEN_PORT)
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=5_000,
        voter_id=node.node_id,
        voter_directory_id=directory_of(node),
        listeners=[listener] if is_named else [],
    )
    return answer_of(cluster, by, request)


def remove(cluster: WholeCluster, node_id: int, directory_id: Uuid, by: int) -> Any:
    request = RemoveRaftVoterRequest(
        cluster_id=None, voter_id=node_id, voter_directory_id=directory_id
    )
    return answer_of(cluster, by, request)


def voter_ids(node: WholeBroker) -> list[int]:
    return [key.node_id for key in node.metadata.quorum.voters]


@pytest.fixture
def cluster() -> WholeCluster:
    """Return a cluster of three. Broker 1 was alone and has a topic. Brokers 2 and 3 have joined,
    and observe."""
    cluster = WholeCluster("newcomers", 1)
    (one,) = cluster.nodes
    one.start()
    cluster.run_until(lambda: one.is_ready, 5_000, "alone in service")
    asked(cluster, 1, topic_made("t", 2))
    one.stop()
    cluster.run_until(lambda: one.broker is None, 30_000, "stopped")
    one.configure((1, 2, 3))
    one.start()
    newcomer(cluster, 2, (1, 2, 3))
    newcomer(cluster, 3, (1, 2, 3))
    cluster.run_until(lambda: is_in_service(cluster), 20_000, "all in service")
    return cluster


def test_newcomers_observe_and_register(cluster: WholeCluster) -> None:
    for node in cluster.nodes:
        assert voter_ids(node) == [1]
        assert sorted(node.metadata.image.brokers) == [1, 2, 3]
        assert "t" in node.metadata.image.topics
    assert [node.metadata.quorum.role_name for node in cluster.nodes] == [
        "leader",
        "observer",
        "observer",
    ]
    (one,) = answer_of(cluster, 3, THE_LOG).topics[0].partitions
    assert [state.replica_id for state in one.current_voters] == [1]
    assert [state.replica_id for state in one.observers] == [2, 3]


def test_an_observer_starts_again_as_an_observer(cluster: WholeCluster) -> None:
    _, two, three = cluster.nodes
    two.kill()
    three.cut_power(cluster.chance)
    cluster.run_for(3_000)
    two.joins = False
    two.start()
    three.start()
    cluster.run_until(lambda: is_in_service(cluster), 20_000, "all in service")
    assert voter_ids(two) == voter_ids(three) == [1]


def test_one_voter_becomes_three_and_the_first_can_die(cluster: WholeCluster) -> None:
    one, two, three = cluster.nodes
    for node, by in ((two, 3), (three, 2)):
        answer = add(cluster, node, by)
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    again = add(cluster, three, 1)
    assert again.error_code == ErrorCode.DUPLICATE_VOTER
    cluster.run_until(lambda: is_whole(cluster), 2_000, "all know the voters")
    assert voter_ids(three) == [1, 2, 3]
    one.kill()
    cluster.run_until(
        lambda: cluster.active() in (two, three), 10_000, "one of the newcomers is the controller"
    )
    asked(cluster, 2, topic_made("u", 1))
    one.start()
    cluster.run_until(lambda: is_in_service(cluster), 20_000, "all in service")
    assert "u" in one.metadata.image.topics


def test_a_change_of_the_voters_is_in_a_snapshot(cluster: WholeCluster) -> None:
    _, two, _ = cluster.nodes
    assert add(cluster, two, 1).error_code == ErrorCode.NONE
    cluster.run_for(1_000)
    for node in cluster.nodes:
        newest = node.metadata.log.snapshots.newest()
        assert [key.node_id for key in newest.voters] == [1, 2]
        named = [(one.endpoints[0].host, one.endpoints[0].port) for one in newest.voters.voters]
        assert named == [("n1", BETWEEN_PORT), ("n2", BETWEEN_PORT)]


def test_a_registered_broker_becomes_a_voter_without_naming_its_address(
    cluster: WholeCluster,
) -> None:
    one, two, three = cluster.nodes
    assert add(cluster, two, 3, is_named=False).error_code == ErrorCode.NONE
    cluster.run_for(1_000)
    (_, voter) = one.metadata.log.snapshots.newest().voters.voters
    assert [(at.name, at.host, at.port) for at in voter.endpoints] == [
        ("BROKER", "n2", BETWEEN_PORT)
    ]
    # The registration of broker 3 is not one of this directory, so there is no address.
    request = AddRaftVoterRequest(
        cluster_id=None, timeout_ms=5_000, voter_id=3, voter_directory_id=directory_of(two)
    )
    answer = answer_of(cluster, 1, request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "the listeners of node 3 are none" in answer.error_message
    assert voter_ids(three) == [1, 2]


def test_the_controller_removes_itself_and_goes_on_as_an_observer(cluster: WholeCluster) -> None:
    one, two, three = cluster.nodes
    for node in (two, three):
        assert add(cluster, node, 1).error_code == ErrorCode.NONE
    answer = remove(cluster, 1, directory_of(one), 2)
    assert answer.error_code == ErrorCode.NONE
    cluster.run_until(
        lambda: cluster.active() in (two, three), 10_000, "one of the others is the controller"
    )
    cluster.run_until(lambda: is_in_service(cluster), 20_000, "all in service")
    assert voter_ids(one) == voter_ids(two) == [2, 3]
    assert one.metadata.quorum.role_name == "observer"
    for life in range(2):
        one.kill()
        cluster.run_for(3_000)
        one.start()
        cluster.run_until(lambda: is_in_service(cluster), 20_000, f"back in life {life}")
        assert one.metadata.quorum.role_name == "observer", "KAFKA-19850: it does not add itself"


def test_trap_19_a_removed_broker_that_comes_back_with_its_disk_gets_nothing(
    cluster: WholeCluster,
) -> None:
    _, two, three = cluster.nodes
    for node in (two, three):
        assert add(cluster, node, 1).error_code == ErrorCode.NONE
    cordon = AlterConfigsResource(
        resource_type=BROKER_RESOURCE,
        resource_name="3",
        configs=[AlterableConfig(name="cordoned.log.dirs", config_operation=0, value="*")],
    )
    (answer,) = answer_of(cluster, 1, IncrementalAlterConfigsRequest(resources=[cordon])).responses
    assert answer.error_code == ErrorCode.NONE
    assert remove(cluster, 3, directory_of(three), 1).error_code == ErrorCode.NONE
    three.stop()
    cluster.run_until(lambda: three.broker is None, 30_000, "stopped")
    left = answer_of(cluster, 1, UnregisterBrokerRequest(broker_id=3))
    assert (left.error_code, left.error_message) == (ErrorCode.NONE, None)
    assert sorted(two.metadata.image.brokers) == [1, 2]
    three.start()
    cluster.run_until(lambda: is_in_service(cluster), 30_000, "all in service")
    assert three.metadata.quorum.role_name == "observer"
    assert voter_ids(three) == [1, 2]
    asked(cluster, 1, topic_made("u", 4, replication_factor=2))
    cluster.run_until(lambda: "u" in two.metadata.image.topics, 5_000, "broker 2 knows the topic")
    partitions = two.metadata.image.topics["u"].partitions
    assert {broker for one in partitions for broker in one.replicas} == {1, 2}


def test_a_lost_disk_is_exchanged(cluster: WholeCluster) -> None:
    _, two, three = cluster.nodes
    for node in (two, three):
        assert add(cluster, node, 1).error_code == ErrorCode.NONE
    lost = directory_of(two)
    two.kill()
    cluster.nodes.remove(two)
    cluster.run_for(8_000)
    assert remove(cluster, 2, lost, 3).error_code == ErrorCode.NONE
    again = newcomer(cluster, 2, (1, 2, 3))
    cluster.run_until(lambda: is_in_service(cluster), 30_000, "all in service")
    assert voter_ids(again) == [1, 3]
    assert add(cluster, again, 3).error_code == ErrorCode.NONE
    cluster.run_until(lambda: is_whole(cluster), 2_000, "all know the voters")
    assert voter_ids(again) == [1, 2, 3]


def test_a_voter_that_no_file_names_is_found_by_the_voters_in_the_log(
    cluster: WholeCluster,
) -> None:
    four = newcomer(cluster, 4, (1, 2, 3, 4))
    cluster.run_until(lambda: is_in_service(cluster), 20_000, "all in service")
    for node in cluster.nodes[1:]:
        assert add(cluster, node, 1).error_code == ErrorCode.NONE
    cluster.run_for(1_000)
    for node in cluster.nodes:
        node.kill()
    one, two, three, _ = cluster.nodes
    for node in (one, two, four):
        node.start()
    cluster.run_until(lambda: one.metadata is not None, 2_000, "1 has read its disk")
    assert one.broker is not None and one.broker.joining is not None
    # Broker 1 can start with an image that lacks broker 4's registration. Simulate this.
    one.broker.joining.peers.unregistered(4)
    assert one.broker.joining.peers.address_of(4) == Address("n4", BETWEEN_PORT)
    cluster.run_until(lambda: cluster.active() is not None, 10_000, "three of four elect")
    three.start()
    cluster.run_until(lambda: is_in_service(cluster), 20_000, "all in service")
    assert voter_ids(four) == [1, 2, 3, 4]


def emptied_beside_a_newcomer() -> WholeCluster:
    """Return three brokers with empty disks, all configured for three voters. The third one joins
    an existing cluster, so it must not take part in the creation of a new one."""
    cluster = WholeCluster("no birth", 2)
    for node in cluster.nodes:
        node.configure((1, 2, 3))
        node.start()
    newcomer(cluster, 3, (1, 2, 3))
    cluster.run_for(20_000)
    return cluster


def test_guard_61_a_newcomer_never_counts_for_a_birth(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = emptied_beside_a_newcomer()
    assert cluster.voters() == [(), (), ()]
    one = cluster.nodes[0]
    assert one.broker is not None and one.broker.joining is not None
    assert one.broker.joining.birth.waits_for == [3]

    def answer(self: Birth, call_id: int, node_id: int) -> SendReport:
        return SendReport(call_id, self._report)

    monkeypatch.setattr(Birth, "_answer", answer)
    assert len(emptied_beside_a_newcomer().voters()[0]) == 3, "a second cluster is born"
