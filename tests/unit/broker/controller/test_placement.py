"""The brokers that get new replicas: the rules for racks, cordoned brokers and brokers out of
service."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from broker.controller.config_changes import ConfigOperation
from broker.controller.placement import ReplicaPlacer
from broker.metadata.records import (
    BROKER_RESOURCE,
    ConfigRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
)
from protocol.errors import ErrorCode
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from protocol.types import Uuid
from tests.unit.broker.cluster.kit import Cluster

CORDON = "cordoned.log.dirs"


def cluster_of(racks: dict[int, str | None]) -> Cluster:
    cluster = Cluster(brokers=())
    cluster.replay(
        RegisterBrokerRecord(
            broker_id=node_id,
            incarnation_id=Uuid(int=node_id),
            broker_epoch=node_id,
            fenced=False,
            rack=rack,
        )
        for node_id, rack in racks.items()
    )
    return cluster


def cordon(cluster: Cluster, *node_ids: int | str) -> None:
    cluster.replay(
        ConfigRecord(
            resource_type=BROKER_RESOURCE, resource_name=str(node_id), name=CORDON, value="*"
        )
        for node_id in node_ids
    )


def create(cluster: Cluster, name: str, partitions: int, factor: int) -> Any:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
    return cluster.submit(CreateTopicsRequest(topics=[topic])).topics[0]


def grow(cluster: Cluster, name: str, count: int, assignments: Any = None) -> Any:
    chosen = None
    if assignments is not None:
        chosen = [CreatePartitionsAssignment(broker_ids=one) for one in assignments]
    topic = CreatePartitionsTopic(name=name, count=count, assignments=chosen)
    return cluster.submit(CreatePartitionsRequest(topics=[topic])).results[0]


def replicas(cluster: Cluster, name: str) -> list[tuple[int, ...]]:
    return [one.replicas for one in cluster.image.topics[name].partitions]


def test_each_partition_is_on_different_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    cluster = cluster_of(racks)
    create(cluster, "logs", 12, 2)
    placed = replicas(cluster, "logs")
    assert all({racks[one] for one in members} == {"a", "b"} for members in placed)
    assert set(Counter(one for members in placed for one in members).values()) == {6}
    assert set(Counter(members[0] for members in placed).values()) == {3}


def test_p6_more_partitions_balance_with_those_that_are_there() -> None:
    cluster = cluster_of(dict.fromkeys((1, 2, 3)))
    create(cluster, "logs", 1, 1)
    first = replicas(cluster, "logs")
    grow(cluster, "logs", 3)
    placed = replicas(cluster, "logs")
    assert placed[:1] == first
    assert sorted(one for members in placed for one in members) == [1, 2, 3]


def test_topics_of_one_request_count_for_each_other() -> None:
    cluster = cluster_of(dict.fromkeys((1, 2, 3)))
    topics = [
        CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1)
        for number in range(6)
    ]
    cluster.submit(CreateTopicsRequest(topics=topics))
    leaders = Counter(replicas(cluster, f"t{number}")[0][0] for number in range(6))
    assert leaders == {1: 2, 2: 2, 3: 2}


def test_trap_35_a_cordoned_broker_gets_no_new_replica() -> None:
    cluster = cluster_of(dict.fromkeys((1, 2, 3, 4)))
    create(cluster, "old", 4, 3)
    before = replicas(cluster, "old")
    cordon(cluster, 2)
    create(cluster, "new", 8, 3)
    grow(cluster, "old", 8)
    assert replicas(cluster, "old")[:4] == before
    new = [*replicas(cluster, "new"), *replicas(cluster, "old")[4:]]
    assert all(2 not in members for members in new)


def test_trap_35_an_assignment_to_a_cordoned_broker_is_refused() -> None:
    cluster = cluster_of(dict.fromkeys((1, 2, 3)))
    create(cluster, "old", 1, 1)
    cordon(cluster, 2)
    chosen = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])]
    topic = CreatableTopic(name="new", num_partitions=-1, replication_factor=-1, assignments=chosen)
    for result in (
        cluster.submit(CreateTopicsRequest(topics=[topic])).topics[0],
        grow(cluster, "old", 2, [[2]]),
    ):
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "brokers [2] are cordoned" in result.error_message


def test_too_few_brokers_that_are_not_cordoned() -> None:
    cluster = cluster_of(dict.fromkeys((1, 2, 3)))
    cordon(cluster, 1, 3)
    result = create(cluster, "logs", 1, 2)
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert (
        result.error_message
        == "replication factor is 2, but the cluster has 3 brokers, 2 of them cordoned"
    )
    # The empty name cordons all brokers.
    cordon(cluster, "")
    assert "3 of them cordoned" in create(cluster, "logs", 1, 1).error_message


@pytest.mark.parametrize(("value", "is_good"), [("*", True), ("", True), ("/data/b1", False)])
def test_a_cordon_is_for_the_whole_broker(value: str, is_good: bool) -> None:
    cluster = cluster_of(dict.fromkeys((1, 2)))
    change = AlterableConfig(name=CORDON, config_operation=ConfigOperation.SET, value=value)
    resource = AlterConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name="1", configs=[change]
    )
    reply = cluster.submit(IncrementalAlterConfigsRequest(resources=[resource]))
    (result,) = reply.responses
    assert (result.error_code == ErrorCode.NONE) is is_good
    if not is_good:
        assert "* (all folders of the broker; it has one), or nothing" in result.error_message


def test_trap_20_a_broker_that_is_away_gets_replicas_last() -> None:
    cluster = cluster_of(dict.fromkeys((1, 2, 3, 4)))
    cluster.replay(FenceBrokerRecord(broker_id=one, broker_epoch=one) for one in (1, 3))
    create(cluster, "two", 6, 2)
    assert all(set(members) == {2, 4} for members in replicas(cluster, "two"))
    # Of the two fenced brokers, 3 has registered later than 1, so it comes first.
    create(cluster, "three", 6, 3)
    assert all(set(members) == {2, 3, 4} for members in replicas(cluster, "three"))
    assert {one.leader for one in cluster.image.topics["three"].partitions} <= {2, 4}


def test_replicas_that_move_count_where_they_will_be() -> None:
    cluster = cluster_of(dict.fromkeys((1, 2)))
    create(cluster, "logs", 1, 1)
    (partition,) = cluster.image.topics["logs"].partitions
    (here,) = partition.replicas
    there = 3 - here
    moving = replace(
        partition, replicas=(there, here), adding_replicas=(there,), removing_replicas=(here,)
    )
    placer = ReplicaPlacer(cluster.image, cluster.config)
    assert placer.place({1: None, 2: None}, 1, 1, [partition]) == [[there]]
    assert placer.place({1: None, 2: None}, 1, 1, [moving]) == [[here]]
