"""Responses of the administrative APIs in every version: results and error codes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.controller.outcome import CreateOwnTopic
from broker.metadata.image import OFFSETS_TOPIC
from protocol.errors import TEXT_CHARS_MAX, ErrorCode
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from protocol.messages.elections import (
    ElectLeadersRequest,
    TopicPartitions,
)
from protocol.messages.list_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from protocol.messages.metadata import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.wire.records import NewRecord, build_batch
from tests.unit.broker.cluster import kit
from tests.unit.broker.rig import HeldWorker, Rig
from tests.unit.storage.kit import NOW

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.create("logs", 2)
    yield rig


def fill(rig: Rig, count: int, topic: str = "logs") -> None:
    for number in range(count):
        batch = build_batch([NewRecord(b"k", b"%d" % number, NOW)])
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        answer = rig.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def make_offsets_topic(rig: Rig) -> None:
    rig.broker.parts.metadata.submit(CreateOwnTopic(OFFSETS_TOPIC), lambda _: None, print)
    rig.flusher.sync()
    rig.turn()


def records_request(topic: str, index: int, offset: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=index, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])])


def delete_records(rig: Rig, topic: str, index: int, offset: int, version: int = 2) -> Any:
    return rig.ask(records_request(topic, index, offset), version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_deleted_records_are_gone_also_after_a_power_cut(rig: Rig, version: int) -> None:
    fill(rig, 5)
    answer = delete_records(rig, "logs", 0, 3, version)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 3)
    rig.power_cut(random.Random(version))
    assert rig.broker.parts.replicas.find("logs", 0).log.log_start_offset == 3
    assert delete_records(rig, "logs", 0, -1).low_watermark == 5
    assert delete_records(rig, "logs", 0, 2).low_watermark == 5


def test_records_are_not_called_deleted_before_that_is_on_the_disk(rig: Rig) -> None:
    fill(rig, 5)
    rig.disk.refuses = lambda path, operation: path.endswith(".tmp") and operation == "write"
    answer = delete_records(rig, "logs", 0, 3)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    rig.disk.refuses = None
    answer = delete_records(rig, "logs", 0, 3)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 3)
    rig.power_cut(random.Random(0))
    assert rig.broker.parts.replicas.find("logs", 0).log.log_start_offset == 3


def test_deletions_that_come_while_a_checkpoint_is_written_share_the_next() -> None:
    worker = HeldWorker()
    rig = Rig(worker=worker)
    rig.send(kit.create_request("logs"), 7)
    rig.flusher.sync()
    worker.work()
    fill(rig, 5)
    asked = [rig.send(records_request("logs", 0, offset), 2) for offset in range(1, 5)]
    for answered in (1, 4):
        # However many requests wait, only one write of the checkpoint is queued.
        assert len(worker.held) == 1
        worker.held.popleft()()
        assert sum(one.is_answered() for one in asked) == answered
    assert not worker.held
    rig.power_cut(random.Random(0))
    assert rig.broker.parts.replicas.find("logs", 0).log.log_start_offset == 4


def test_delete_records_refuses_what_cannot_be_deleted(rig: Rig) -> None:
    fill(rig, 2)
    rig.create("kept", cleanup_policy="compact")
    make_offsets_topic(rig)
    cases = {
        ("logs", 0, 3): ErrorCode.OFFSET_OUT_OF_RANGE,
        ("logs", 0, -2): ErrorCode.OFFSET_OUT_OF_RANGE,
        ("logs", 9, 0): UNKNOWN,
        ("none", 0, 0): UNKNOWN,
        ("kept", 0, 0): ErrorCode.POLICY_VIOLATION,
        (OFFSETS_TOPIC, 0, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    for (topic, index, offset), code in cases.items():
        answer = delete_records(rig, topic, index, offset)
        assert (answer.error_code, answer.low_watermark) == (code, -1), topic


def test_a_deletion_of_records_that_cannot_be_made_durable_is_no_success(rig: Rig) -> None:
    """The records could come back after a crash, and the client must know this."""
    fill(rig, 5)
    rig.disk.refuses = lambda path, operation: operation == "write" and "checkpoint" in path
    answer = delete_records(rig, "logs", 0, 3)
    assert ErrorCode(answer.error_code).retriable
    assert answer.low_watermark == -1
    # A request that must be refused for another reason gets the code of that reason.
    assert delete_records(rig, "logs", 0, 9).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    rig.disk.refuses = None
    answer = delete_records(rig, "logs", 0, 3)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 3)


def create_request() -> CreateTopicsRequest:
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic])


def grow_request() -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name="logs", count=3, assignments=None)
    return CreatePartitionsRequest(topics=[topic])


def delete_request(version: int = 1) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=["logs"])
    return DeleteTopicsRequest(topics=[DeleteTopicState(name="logs")])


def alter_request() -> AlterConfigsRequest:
    config = AlterConfigsRequestConfig(name="retention.ms", value="99")
    resource = AlterConfigsRequestResource(resource_type=2, resource_name="logs", configs=[config])
    return AlterConfigsRequest(resources=[resource])


def increment_request() -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name="retention.ms", config_operation=0, value="99")
    resource = AlterConfigsResource(resource_type=2, resource_name="logs", configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource])


@pytest.mark.parametrize(
    ("request_of", "version", "results"),
    [
        (create_request, 7, "topics"),
        (grow_request, 3, "results"),
        (delete_request, 5, "responses"),
        (lambda: delete_request(6), 6, "responses"),
        (alter_request, 2, "responses"),
        (increment_request, 1, "responses"),
    ],
    ids=["create", "grow", "delete", "delete by v6", "alter", "increment"],
)
def test_an_order_that_the_disk_refuses_is_a_time_out_and_changes_nothing(
    rig: Rig, request_of: Any, version: int, results: str
) -> None:
    before = rig.broker.parts.metadata.image
    rig.disk.refuses = lambda path, operation: operation == "write" and "_metadata-0" in path
    (refused,) = getattr(rig.ask(request_of(), version), results)
    assert ErrorCode(refused.error_code) is ErrorCode.REQUEST_TIMED_OUT
    assert refused.error_message or version < 5
    rig.turn()
    assert rig.broker.parts.metadata.image is before
    rig.disk.refuses = None
    (taken,) = getattr(rig.ask(request_of(), version), results)
    assert ErrorCode(taken.error_code) is ErrorCode.NONE


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_a_deletion_that_is_put_off_is_answered_under_the_names_it_gave(version: int) -> None:
    rig = Rig(max_pending_metadata_orders=1)
    rig.create("logs")
    rig.send(create_request(), 7)
    names = ["", "logs"]
    refused = rig.ask(DeleteTopicsRequest(topic_names=names), version).responses
    assert [(one.name, one.error_code) for one in refused] == [
        (name, ErrorCode.REQUEST_TIMED_OUT) for name in names
    ]


def test_a_name_given_twice_is_answered_once_also_when_the_order_is_put_off() -> None:
    rig = Rig(max_pending_metadata_orders=1)
    rig.create("logs")
    rig.send(create_request(), 7)
    topic = create_request().topics[0]
    grown = CreatePartitionsTopic(name="logs", count=2)
    answers = [
        rig.ask(CreateTopicsRequest(topics=[topic, topic]), 7).topics,
        rig.ask(CreatePartitionsRequest(topics=[grown, grown]), 3).results,
        rig.ask(DeleteTopicsRequest(topic_names=["logs", "logs"]), 5).responses,
    ]
    assert [[one.error_code for one in answer] for answer in answers] == [
        [ErrorCode.REQUEST_TIMED_OUT]
    ] * 3


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_REQUEST), (2, ErrorCode.INVALID_REQUEST)]
    + [(version, ErrorCode.TOPIC_DELETION_DISABLED) for version in (3, 4, 5, 6)],
)
def test_that_topics_cannot_be_deleted_is_told_as_the_version_can(
    version: int, code: ErrorCode
) -> None:
    rig = Rig(delete_topic_enable=False)
    rig.create("logs")
    (refused,) = rig.ask(delete_request(version), version).responses
    assert ErrorCode(refused.error_code) is code
    assert "logs" in rig.broker.parts.metadata.image.topics


@pytest.mark.parametrize("version", [2, 3, 4])
def test_pitfall_4_the_end_of_an_epoch_is_told_in_every_version(rig: Rig, version: int) -> None:
    fill(rig, 3)

    def ask(topic: str, index: int, epoch: int, current: int = -1) -> Any:
        partition = OffsetForLeaderPartition(
            partition=index, current_leader_epoch=current, leader_epoch=epoch
        )
        asked = OffsetForLeaderTopic(topic=topic, partitions=[partition])
        answer = rig.ask(OffsetForLeaderEpochRequest(topics=[asked]), version)
        return answer.topics[0].partitions[0]

    epoch = rig.broker.parts.replicas.find("logs", 0).leader_epoch
    found = ask("logs", 0, epoch)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, epoch, 3)
    assert ask("logs", 0, epoch, current=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    unknown = ask("logs", 7, 0)
    assert (unknown.error_code, unknown.leader_epoch, unknown.end_offset) == (UNKNOWN, -1, -1)
    rig.power_cut(random.Random(1))
    assert ask("logs", 0, epoch, current=epoch).error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_pitfall_33_log_dirs_are_described(rig: Rig, version: int) -> None:
    fill(rig, 1)
    (one,) = rig.ask(DescribeLogDirsRequest(topics=None), version).results
    assert one.error_code == ErrorCode.NONE
    assert one.log_dir == str(Path(rig.broker.config.log_dir).absolute())
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in one.topics
        for partition in topic.partitions
    }
    assert sizes.keys() == {("logs", 0), ("logs", 1)}
    assert sizes["logs", 0] > 0 == sizes["logs", 1]
    asked = [DescribableLogDirTopic(topic="logs", partitions=[1, 9])]
    (one,) = rig.ask(DescribeLogDirsRequest(topics=asked), version).results
    assert [[it.partition_index for it in topic.partitions] for topic in one.topics] == [[1]]
    (one,) = rig.ask(DescribeLogDirsRequest(topics=[]), version).results
    assert one.topics == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_to_no_other_folder(rig: Rig, version: int) -> None:
    def move(path: str, index: int) -> int:
        topic = AlterReplicaLogDirTopic(name="logs", partitions=[index])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        code: int = rig.ask(request, version).results[0].partitions[0].error_code
        return code

    own = str(Path(rig.broker.config.log_dir).absolute())
    assert move(own, 0) == ErrorCode.NONE
    assert move(own, 7) == UNKNOWN
    assert move("/elsewhere", 0) == ErrorCode.LOG_DIR_NOT_FOUND


@pytest.mark.parametrize("version", [0, 1, 2])
def test_there_is_never_a_leader_to_elect(rig: Rig, version: int) -> None:
    asked = [
        TopicPartitions(topic="logs", partitions=[0, 5]),
        TopicPartitions(topic="none", partitions=[0]),
    ]
    answer = rig.ask(ElectLeadersRequest(topic_partitions=asked), version)
    codes = {
        (topic.topic, one.partition_id): one.error_code
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }
    assert codes == {
        ("logs", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("logs", 5): UNKNOWN,
        ("none", 0): UNKNOWN,
    }
    everywhere = rig.ask(ElectLeadersRequest(topic_partitions=None), version)
    assert everywhere.replica_election_results == []
    if version:
        wrong = rig.ask(ElectLeadersRequest(election_type=7, topic_partitions=None), version)
        assert wrong.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_election_that_is_put_off_is_told_as_the_version_can(version: int) -> None:
    rig = Rig(max_pending_metadata_orders=1)
    rig.create("logs")
    rig.send(create_request(), 7)
    asked = [TopicPartitions(topic="logs", partitions=[0, 0])] * 2
    answer = rig.ask(ElectLeadersRequest(topic_partitions=asked), version)
    (topic,) = answer.replica_election_results
    (one,) = topic.partition_result
    assert (topic.topic, one.partition_id) == ("logs", 0)
    assert one.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert answer.error_code == (ErrorCode.REQUEST_TIMED_OUT if version else ErrorCode.NONE)
    everywhere = rig.ask(ElectLeadersRequest(topic_partitions=None), version)
    assert everywhere.replica_election_results == []


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_pitfall_31_create_partitions_answers_for_every_topic(rig: Rig, version: int) -> None:
    topics = [
        CreatePartitionsTopic(name="logs", count=4, assignments=None),
        CreatePartitionsTopic(name="none", count=2, assignments=None),
        CreatePartitionsTopic(name="twice", count=2, assignments=None),
        CreatePartitionsTopic(name="twice", count=2, assignments=None),
    ]
    answer = rig.ask(CreatePartitionsRequest(topics=topics), version)
    codes = [(one.name, one.error_code) for one in answer.results]
    assert codes[:2] == [("logs", ErrorCode.NONE), ("none", UNKNOWN)]
    assert {code for name, code in codes[2:] if name == "twice"} == {ErrorCode.INVALID_REQUEST}


def pages(rig: Rig, limit: int, *names: str) -> list[Any]:
    """Return all pages of DescribeTopicPartitions, by following the cursor."""
    found: list[Any] = []
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        found.append(rig.ask(request, 0))
        cursor = found[-1].next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_topics_are_described_page_by_page_each_partition_once(rig: Rig, limit: int) -> None:
    rig.create("a", 3)
    rig.create("z", 1)
    found = pages(rig, limit)
    listed = [
        (topic.name, one.partition_index)
        for page in found
        for topic in page.topics
        for one in topic.partitions
    ]
    wanted = [("a", 0), ("a", 1), ("a", 2), ("logs", 0), ("logs", 1), ("z", 0)]
    assert listed == wanted
    assert all(sum(len(one.partitions) for one in page.topics) <= limit for page in found)


def test_pitfall_6_lists_of_eligible_leaders_are_empty_never_null(rig: Rig) -> None:
    (page,) = pages(rig, 2000, "logs")
    (topic,) = page.topics
    assert topic.error_code == ErrorCode.NONE
    assert topic.topic_id.int != 0
    for one in topic.partitions:
        assert (one.leader_id, one.replica_nodes, one.isr_nodes) == (1, [1], [1])
        assert (one.eligible_leader_replicas, one.last_known_elr) == ([], [])


def test_topics_that_are_not_there_are_named_in_the_page(rig: Rig) -> None:
    (page,) = pages(rig, 2000, "none", "b@d", "logs")
    codes = {one.name: one.error_code for one in page.topics}
    assert codes == {"none": UNKNOWN, "b@d": ErrorCode.INVALID_TOPIC_EXCEPTION, "logs": 0}
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="logs")], cursor=Cursor(topic_name="logs", partition_index=-1)
    )
    assert rig.ask(request, 0).topics[0].error_code == ErrorCode.INVALID_REQUEST


def test_there_are_no_subscriptions_to_client_metrics(rig: Rig) -> None:
    answer = rig.ask(ListConfigResourcesRequest(), 0)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.NONE, [])


def test_a_refusal_quotes_no_more_than_any_answer_can_carry(rig: Rig) -> None:
    good = CreatableTopic(name="good", num_partitions=1, replication_factor=1)
    value = CreatableTopicConfig(name="retention.ms", value="x" * 32_760)
    bad = CreatableTopic(name="bad", num_partitions=1, replication_factor=1, configs=[value])
    # The response is encoded when the good topic has been synced. No caller would catch an error
    # there.
    asked = rig.send(CreateTopicsRequest(topics=[good, bad]), 4)
    rig.flusher.sync()
    codes = {one.name: ErrorCode(one.error_code) for one in asked.answer.topics}
    assert codes == {"good": ErrorCode.NONE, "bad": ErrorCode.INVALID_CONFIG}
    assert len(asked.answer.topics[1].error_message) <= TEXT_CHARS_MAX


def test_a_deletion_that_cannot_be_written_names_every_topic_as_it_was_asked_for(rig: Rig) -> None:
    topic_id = rig.broker.parts.metadata.image.topics["logs"].topic_id
    rig.disk.capacity_bytes = 0
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)])
    (by_id,) = rig.ask(request, 6).responses
    assert by_id.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (by_id.name, by_id.topic_id) == ("logs", topic_id)
    (by_name,) = rig.ask(DeleteTopicsRequest(topic_names=["logs"]), 5).responses
    assert (by_name.name, by_name.error_code) == ("logs", ErrorCode.REQUEST_TIMED_OUT)
