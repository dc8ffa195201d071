"""Pitfalls of a new broker on the reading side that have no file of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.controller.outcome import RegisterBroker
from broker.storage.errors import DiskError
from broker.storage.log import Log
from protocol.errors import ErrorCode
from protocol.messages.cluster import DescribeClusterRequest, FindCoordinatorRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from protocol.types import Uuid
from protocol.wire.records import NewRecord, build_batch
from tests.unit.broker.rig import Rig
from tests.unit.storage.kit import NOW


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.create("logs")
    yield rig
    rig.stop()


def produce(rig: Rig, *times: int, size: int = 1) -> None:
    """One batch with a record per time."""
    batch = build_batch([NewRecord(None, b"v" * size, time) for time in times])
    data = TopicProduceData(
        name="logs", partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    answer = rig.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def fetch(rig: Rig, offset: int = 0, max_bytes: int = 1 << 20, topic: str = "logs") -> Any:
    asked = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=max_bytes, log_start_offset=-1
    )
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )
    return rig.ask(request, 11).responses[0].partitions[0]


def offset_at(rig: Rig, time: int, topic: str = "logs") -> Any:
    partition = ListOffsetsPartition(partition_index=0, timestamp=time)
    asked = ListOffsetsTopic(name=topic, partitions=[partition])
    answer = rig.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7)
    return answer.topics[0].partitions[0]


def register(rig: Rig, node_id: int, host: str, port: int) -> None:
    """A broker of the cluster, as it is known on the clients' listener."""
    order = RegisterBroker(node_id, Uuid(int=node_id), {"HOST": (host, port)})
    rig.broker.services.metadata.submit(order, lambda _: None, print)
    rig.flusher.sync()
    rig.turn()


def test_pitfall_11_offsets_by_time_are_exact_to_the_record_and_minus_one_beyond(rig: Rig) -> None:
    produce(rig, NOW, NOW + 10, NOW + 5, NOW + 20)
    produce(rig, NOW + 30, NOW + 31)
    wanted = {0: 0, NOW: 0, NOW + 1: 1, NOW + 11: 3, NOW + 21: 4, NOW + 31: 5}
    for time, offset in wanted.items():
        assert offset_at(rig, time).offset == offset
    beyond = offset_at(rig, NOW + 32)
    assert (beyond.error_code, beyond.offset, beyond.timestamp) == (ErrorCode.NONE, -1, -1)


def test_pitfall_22_the_first_batch_comes_whole_however_little_is_asked_for(rig: Rig) -> None:
    produce(rig, NOW, size=5_000)
    produce(rig, NOW, size=5_000)
    found = fetch(rig, max_bytes=100)
    assert found.error_code == ErrorCode.NONE
    assert 5_000 < len(found.records) < 10_000


def test_pitfall_37_a_partition_that_lies_elsewhere_is_not_an_unknown_one(rig: Rig) -> None:
    register(rig, 2, "127.0.0.1", 9)
    topic = CreatableTopic(
        name="far",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[2])],
    )
    assert rig.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == ErrorCode.NONE
    assert fetch(rig, topic="far").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert offset_at(rig, 0, "far").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(rig, topic="none").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="far")])
    assert rig.ask(asked, 9).topics[0].partitions[0].leader_id == 2


def test_pitfall_38_a_disk_that_fails_a_read_is_a_retriable_code(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(rig, NOW)

    def broken(*_: object, **__: object) -> None:
        raise DiskError("logs-0", "read")

    monkeypatch.setattr(Log, "read", broken)
    code = ErrorCode(fetch(rig).error_code)
    assert code is ErrorCode.KAFKA_STORAGE_ERROR
    assert code.retriable


def test_pitfall_41_what_is_advertised_is_what_was_configured(rig: Rig) -> None:
    """No name stands in for the address: librdkafka might try it by IPv6 first."""
    asked = FindCoordinatorRequest(key="group", key_type=0)
    wanted = ("127.0.0.1", 9092)
    register(rig, 1, *wanted)
    (broker,) = rig.ask(MetadataRequest(topics=[]), 9).brokers
    assert (broker.host, broker.port) == wanted
    (broker,) = rig.ask(DescribeClusterRequest(), 0).brokers
    assert (broker.host, broker.port) == wanted
    coordinator = rig.ask(asked, 3)
    assert (coordinator.host, coordinator.port) == wanted
