"""Answers about partitions whose leader a client cannot reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.metadata.records import MetadataRecord, PartitionChangeRecord
from protocol.errors import ErrorCode
from protocol.messages.elections import ElectLeadersRequest, TopicPartitions
from protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from protocol.types import NO_NODE
from tests.unit.broker.cluster.kit import registration
from tests.unit.broker.rig import Rig

OK = (ErrorCode.NONE, 1)
PREFERRED, UNCLEAN = 0, 1
LISTENERS_SINCE = 6


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.create("logs", 2)
    yield rig


def replay(rig: Rig, record: MetadataRecord) -> None:
    """Replay a record that the controller of a single node never writes."""
    rig.commit(record)


def take_leader(rig: Rig, index: int) -> None:
    topic_id = rig.broker.parts.metadata.image.topics["logs"].topic_id
    replay(rig, PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=NO_NODE))


def place_on_another(rig: Rig, listener: str) -> None:
    """Create a topic on a second broker that has only this listener."""
    order = registration(2, listener, "far", 9)
    rig.broker.parts.metadata.submit(order, lambda _: None, print)
    rig.flusher.sync()
    rig.turn()
    topic = CreatableTopic(
        name="far",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[2])],
    )
    assert rig.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == ErrorCode.NONE


def leaders(answer: Any) -> list[tuple[int, int]]:
    """Return the error code and the leader of every partition of the only topic."""
    (topic,) = answer.topics
    assert topic.error_code == ErrorCode.NONE
    return [(one.error_code, one.leader_id) for one in topic.partitions]


def metadata(rig: Rig, version: int, topic: str, listener: str = "HOST") -> Any:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    return rig.send(asked, version, listener=listener).answer


def pages(rig: Rig, topic: str) -> Any:
    return rig.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)]), 0)


@pytest.mark.parametrize("version", range(13))
def test_a_partition_without_a_leader_says_so_and_the_others_do_not(rig: Rig, version: int) -> None:
    take_leader(rig, 1)
    found = leaders(metadata(rig, version, "logs"))
    assert found == [OK, (ErrorCode.LEADER_NOT_AVAILABLE, NO_NODE)]
    everything = rig.ask(MetadataRequest(topics=None if version else []), version)
    assert leaders(everything) == found


def test_a_partition_without_a_leader_says_so_page_by_page(rig: Rig) -> None:
    take_leader(rig, 1)
    assert leaders(pages(rig, "logs")) == [OK, (ErrorCode.LEADER_NOT_AVAILABLE, NO_NODE)]


@pytest.mark.parametrize("version", range(13))
def test_a_leader_without_the_clients_listener_is_no_address_for_it(rig: Rig, version: int) -> None:
    """Clients below version 6 do not know LISTENER_NOT_FOUND, so they get LEADER_NOT_AVAILABLE."""
    place_on_another(rig, "MILL")
    code = ErrorCode.LISTENER_NOT_FOUND
    if version < LISTENERS_SINCE:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    answer = metadata(rig, version, "far")
    assert leaders(answer) == [(code, NO_NODE)]
    assert [one.node_id for one in answer.brokers] == [1]
    reached = metadata(rig, version, "far", "MILL")
    assert leaders(reached) == [(ErrorCode.NONE, 2)]
    assert [one.node_id for one in reached.brokers] == [1, 2]


def test_a_leader_without_the_clients_listener_is_no_address_page_by_page(rig: Rig) -> None:
    place_on_another(rig, "MILL")
    found = pages(rig, "far")
    assert leaders(found) == [(ErrorCode.LISTENER_NOT_FOUND, NO_NODE)]
    assert found.topics[0].partitions[0].offline_replicas == [2]
    assert pages(rig, "logs").topics[0].partitions[0].offline_replicas == []


@pytest.mark.parametrize(
    ("version", "election_type", "code"),
    [
        (0, PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (1, PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (2, PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (1, UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (2, UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_no_leader_can_be_elected_if_the_only_replica_is_away(
    rig: Rig, version: int, election_type: int, code: ErrorCode
) -> None:
    topic_id = rig.broker.parts.metadata.image.topics["logs"].topic_id
    away = PartitionChangeRecord(
        partition_id=1, topic_id=topic_id, replicas=[9], isr=[9], leader=NO_NODE
    )
    replay(rig, away)
    named = [TopicPartitions(topic="logs", partitions=[0, 1])]

    def elect(asked: list[TopicPartitions] | None) -> dict[int, int]:
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=asked)
        (topic,) = rig.ask(request, version).replica_election_results
        return {one.partition_id: one.error_code for one in topic.partition_result}

    assert elect(named) == {0: ErrorCode.ELECTION_NOT_NEEDED, 1: code}
    # A request for all partitions returns only those that needed an election.
    assert elect(None) == {1: code}
