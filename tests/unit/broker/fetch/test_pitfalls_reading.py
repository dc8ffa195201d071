"""The pitfalls of reading that no other test file covers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from broker.node.broker import Broker
from broker.storage.errors import CorruptionError, DiskError
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
from protocol.wire.records import NewRecord, build_batch
from tests.harness.wire import batch_of, produce_request
from tests.sim.disk import SimDisk
from tests.sim.world import SimWorld
from tests.unit.broker.cluster.kit import registration
from tests.unit.broker.rig import Rig
from tests.unit.storage.kit import NOW, broker_config


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.create("logs")
    yield rig


def produce(rig: Rig, *times: int, size: int = 1) -> None:
    """Produce one batch with a record for each timestamp."""
    batch = build_batch([NewRecord(None, b"v" * size, time) for time in times])
    data = TopicProduceData(
        name="logs", partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    answer = rig.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def fetch(
    rig: Rig, offset: int = 0, max_bytes: int = 1 << 20, topic: str = "logs", version: int = 11
) -> Any:
    asked = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=max_bytes, log_start_offset=-1
    )
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )
    return rig.ask(request, version).responses[0].partitions[0]


def list_request(
    time: int, topic: str = "logs", *, leader_epoch: int = -1, replica_id: int = -1
) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(
        partition_index=0, timestamp=time, current_leader_epoch=leader_epoch
    )
    asked = ListOffsetsTopic(name=topic, partitions=[partition])
    return ListOffsetsRequest(replica_id=replica_id, topics=[asked])


def offset_at(rig: Rig, time: int, topic: str = "logs", *, version: int = 7, **options: int) -> Any:
    answer = rig.ask(list_request(time, topic, **options), version)
    return answer.topics[0].partitions[0]


def register(rig: Rig, node_id: int, host: str, port: int) -> None:
    """Register a broker with its address on the clients' listener."""
    order = registration(node_id, "HOST", host, port)
    rig.broker.parts.metadata.submit(order, lambda _: None, print)
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


@pytest.mark.parametrize(
    "error", [DiskError("logs-0", "read"), CorruptionError("logs-0", 0, "torn")], ids=type
)
@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        (4, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (6, ErrorCode.KAFKA_STORAGE_ERROR),
        (12, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_pitfall_38_a_disk_that_fails_a_read_is_a_retriable_code(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: Exception, version: int, wanted: ErrorCode
) -> None:
    """Clients below version 6 do not know KAFKA_STORAGE_ERROR, so they get another retriable
    code."""
    produce(rig, NOW)

    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Log, "read", broken)
    code = ErrorCode(fetch(rig, version=version).error_code)
    assert code is wanted
    assert code.retriable


def test_pitfall_38_a_disk_that_fails_a_look_up_is_a_retriable_code(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(rig, NOW)

    def broken(*_: object, **__: object) -> None:
        raise CorruptionError("logs-0", 0, "torn")

    monkeypatch.setattr(Log, "offset_for_timestamp", broken)
    assert ErrorCode(offset_at(rig, NOW).error_code) is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("time", [-1, -2, -3, NOW])
@pytest.mark.parametrize("version", [4, 7])
def test_offsets_are_listed_only_to_who_knows_the_leaders_epoch(
    rig: Rig, time: int, version: int
) -> None:
    """Otherwise a client that missed a change of leaders would start at an offset of another
    leader's log."""
    produce(rig, NOW)
    rig.power_cut(random.Random(1))
    epoch = rig.broker.parts.replicas.find("logs", 0).leader_epoch
    assert epoch > 0
    time = -1 if time == -3 and version < 7 else time
    codes = {
        given: ErrorCode(offset_at(rig, time, version=version, leader_epoch=given).error_code)
        for given in (-1, epoch - 1, epoch, epoch + 1)
    }
    assert codes == {
        -1: ErrorCode.NONE,
        epoch - 1: ErrorCode.FENCED_LEADER_EPOCH,
        epoch: ErrorCode.NONE,
        epoch + 1: ErrorCode.UNKNOWN_LEADER_EPOCH,
    }


@pytest.mark.parametrize(
    ("replica_id", "listener"),
    [(-1, "HOST"), (-2, "HOST"), (0, "HOST"), (1, "HOST"), (1, "BROKER")],
)
def test_offsets_are_listed_whatever_the_client_says_it_is(
    rig: Rig, replica_id: int, listener: str
) -> None:
    """As in Kafka, `replica_id` is ignored. A development version of kafka-python sends 0, and
    would retry a refusal for ever."""
    produce(rig, NOW, NOW + 10)
    # This record is written but not committed, so no client may see it.
    rig.send(produce_request("logs", batch_of([b"x"], timestamp_ms=NOW + 20)), 9)
    for time, offset in {-1: 2, -2: 0}.items():
        asked = rig.send(list_request(time, replica_id=replica_id), 7, listener=listener)
        (answer,) = asked.answer.topics[0].partitions
        assert (ErrorCode(answer.error_code), answer.offset) == (ErrorCode.NONE, offset)


def test_an_answer_is_never_larger_than_the_node_allows_whatever_is_asked_for() -> None:
    assert broker_config().fetch_max_bytes == 55 << 20
    small = Rig(fetch_max_bytes=10_000)
    small.create("logs")
    for _ in range(5):
        produce(small, NOW, size=3_000)
    found = fetch(small, max_bytes=2**31 - 1)
    assert found.error_code == ErrorCode.NONE
    assert 3_000 < len(found.records) <= 10_000


def test_pitfall_41_a_broker_registers_what_was_configured_not_where_it_listens() -> None:
    """No name is resolved or invented, because librdkafka might try such a name by IPv6 first."""
    # Port 0 is any free port, because a mill may be running beside the tests.
    bound = {"host": "0.0.0.0", "port": 0}
    outside = bound | {"advertised_host": "192.0.2.7", "advertised_port": 19092}
    inside = bound | {"advertised_host": "broker-1", "advertised_port": 29092}
    config = broker_config(listeners={"HOST": outside, "MILL": inside})
    broker = Broker(config, SimWorld(1, NOW, 1_000), SimDisk())
    broker.start(broker.recover())
    assert broker.parts.metadata.image.brokers[1].listeners == {
        "HOST": ("192.0.2.7", 19092),
        "MILL": ("broker-1", 29092),
    }


def test_pitfall_41_what_is_advertised_is_what_is_registered(rig: Rig) -> None:
    asked = FindCoordinatorRequest(key="group", key_type=0)
    wanted = ("127.0.0.1", 9092)
    register(rig, 1, *wanted)
    (broker,) = rig.ask(MetadataRequest(topics=[]), 9).brokers
    assert (broker.host, broker.port) == wanted
    (broker,) = rig.ask(DescribeClusterRequest(), 0).brokers
    assert (broker.host, broker.port) == wanted
    coordinator = rig.ask(asked, 3)
    assert (coordinator.host, coordinator.port) == wanted
