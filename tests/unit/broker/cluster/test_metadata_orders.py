"""The order of commits in the metadata log. A response is sent when the records on which it depends
are committed."""

import errno
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from broker.cluster.snapshotter import SnapshotLimits
from broker.controller.outcome import AllocateProducerIds, ControllerDecision
from broker.metadata.image import ImpossibleRecord
from broker.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)
from broker.node.broker import METADATA_CONFIG
from broker.node.status import BrokerStatus
from protocol.errors import ApiError, ErrorCode
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.types import Uuid
from tests.harness.wire import batch_of, produce_request
from tests.unit.broker.cluster.kit import create_request
from tests.unit.broker.rig import Asked, HeldWorker, Rig

PENDING_MAX = 3_000

UNKNOWN_TOPIC = Uuid(int=99)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(max_pending_metadata_orders=PENDING_MAX)
    yield rig


def order_ids(rig: Rig, count: int) -> tuple[list[object], list[ApiError]]:
    """Submit orders for this number of producer id blocks. Return the lists of replies and of
    refusals, which fill later."""
    metadata = rig.broker.parts.metadata
    node_id = rig.broker.config.node_id
    order = AllocateProducerIds(node_id, metadata.image.brokers[node_id].broker_epoch)
    replies: list[object] = []
    refusals: list[ApiError] = []
    for _ in range(count):
        metadata.submit(order, replies.append, refusals.append)
    return replies, refusals


def test_thousands_of_commits_wait_for_one_sync(rig: Rig) -> None:
    replies, refusals = order_ids(rig, PENDING_MAX)
    assert replies == []
    rig.flusher.sync()
    rig.turn()
    assert len(replies) == len(set(replies)) == PENDING_MAX
    assert refusals == []


def test_what_waits_has_a_limit(rig: Rig) -> None:
    replies, refusals = order_ids(rig, PENDING_MAX + 2)
    assert [error.code for error in refusals] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    asked = rig.send(CreateTopicsRequest(topics=[topic]), 7)
    assert asked.answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    rig.flusher.sync()
    rig.turn()
    assert len(replies) == PENDING_MAX
    rig.create("t")


def test_one_host_cannot_take_every_place() -> None:
    rig = Rig(max_pending_metadata_orders=6, max_pending_metadata_orders_per_ip=4)

    def create(host: str, name: str) -> Asked:
        asked = Asked(create_request(name), 7, "HOST")
        asked.session.peer_host = host
        rig.start_request(asked)
        return asked

    def code_of(asked: Asked) -> ErrorCode:
        return ErrorCode(asked.answer.topics[0].error_code)

    for _ in range(2):
        # The second order for t writes no record. It waits for the first one, so it also counts for
        # the limits.
        mine = [create("a", name) for name in ("t", "t", "u", "v", "w")]
        assert code_of(mine.pop()) is ErrorCode.REQUEST_TIMED_OUT
        others = [create(host, f"{host}0") for host in ("b", "c", "d")]
        assert code_of(others.pop()) is ErrorCode.REQUEST_TIMED_OUT
        assert not any(one.is_answered() for one in [*mine, *others])
        rig.flusher.sync()
        assert all(one.is_answered() for one in [*mine, *others])
        rig.ask(DeleteTopicsRequest(topic_names=["t", "u", "v", "b0", "c0"]), 5)


def test_an_answer_without_records_waits_for_the_commit_that_is_being_applied() -> None:
    worker = HeldWorker()
    rig = Rig(worker=worker)
    first = rig.send(create_request("t"), 7)
    rig.flusher.sync()
    # The creation of the topic is committed, but its folder does not exist yet. So no client may
    # see the topic.
    assert len(worker.held) == 1
    again = rig.send(create_request("t"), 7)
    named = rig.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    assert not first.is_answered()
    assert not again.is_answered()
    assert not named.is_answered()
    worker.work()
    assert first.answer.topics[0].error_code == ErrorCode.NONE
    assert again.answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert named.answer.topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("is_full", [False, True])
def test_a_topic_that_is_being_deleted_is_not_made_any_more(is_full: bool) -> None:
    """Otherwise the broker would serve the partitions for ever, although the deletion has removed
    their folders."""
    worker = HeldWorker()
    rig = Rig(worker=worker)
    services = rig.broker.parts
    rig.disk.refuses = lambda path, operation: operation == "write" and "/t-0/" in path
    rig.send(create_request("t"), 7)
    rig.flusher.sync()
    worker.work()
    assert services.replicas.unmade
    if not is_full:
        rig.disk.refuses = None
    services.replicas.retry(lambda: None)
    deleting = rig.send(DeleteTopicsRequest(topic_names=["t"]), 5)
    rig.flusher.sync()
    # The retry occupies the thread, and the deletion waits behind it.
    assert len(worker.held) == 1
    assert not deleting.is_answered()
    worker.work()
    assert deleting.answer.responses[0].error_code == ErrorCode.NONE
    assert not services.replicas.unmade
    batch = batch_of([b"x"], producer_id=7, producer_epoch=0, base_sequence=0)
    answer = rig.send(produce_request("t", batch), 9).answer.responses[0]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.partition_responses[0].error_code == unknown


def is_metadata_write(path: str, operation: str) -> bool:
    return operation == "write" and "/__cluster_metadata-0/" in path


def test_a_write_that_a_full_disk_refuses_is_counted_and_shown(rig: Rig) -> None:
    rig.disk.refuses = is_metadata_write
    answer = rig.ask(create_request("t"), 7)
    assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert rig.broker.metrics.write_failures == 1
    status = BrokerStatus(rig.broker, 0).status()
    assert [one.code for one in status.problems] == ["write_refused"]
    rig.disk.refuses = None
    assert rig.ask(create_request("t"), 7).topics[0].error_code == ErrorCode.NONE


def test_a_failed_disk_ends_the_broker(rig: Rig) -> None:
    rig.disk.refuses = is_metadata_write
    rig.disk.refusal = errno.EIO
    with pytest.raises(AssertionError, match="the broker would end: the disk has failed"):
        rig.send(create_request("t"), 7)


def restart(rig: Rig) -> None:
    """Restart the broker with all data synced."""
    rig.flusher.sync()
    rig.power_cut(random.Random(0))


def test_the_broker_starts_again_after_a_topic_was_deleted_by_name_and_id_at_once(rig: Rig) -> None:
    rig.create("t")
    rig.create("kept")
    topic_id = rig.broker.parts.metadata.image.topics["t"].topic_id
    both = [DeleteTopicState(name="t"), DeleteTopicState(topic_id=topic_id)]
    (refused,) = rig.ask(DeleteTopicsRequest(topics=both), 6).responses
    assert (refused.name, refused.topic_id) == ("t", topic_id)
    assert ErrorCode(refused.error_code) is ErrorCode.INVALID_REQUEST
    restart(rig)
    assert sorted(rig.broker.parts.metadata.image.topics) == ["kept", "t"]


def impossible_records() -> list[MetadataRecord]:
    """Return one record of each kind that names a topic, for a topic that does not exist."""
    setting = ConfigRecord(
        resource_type=TOPIC_RESOURCE, resource_name="gone", name="retention.ms", value="1"
    )
    return [
        RemoveTopicRecord(topic_id=UNKNOWN_TOPIC),
        PartitionChangeRecord(partition_id=0, topic_id=UNKNOWN_TOPIC, leader=1),
        PartitionRecord(partition_id=0, topic_id=UNKNOWN_TOPIC, replicas=[1], isr=[1], leader=1),
        setting,
    ]


def test_records_of_topics_that_are_gone_do_not_keep_the_broker_from_its_start(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.create("kept")
    metadata = rig.broker.parts.metadata
    end_offset = metadata.image.end_offset
    records = impossible_records()
    # An earlier version could write such records, because it did not replay a record before it
    # wrote the record.
    rig.commit(*records)
    caplog.clear()
    restart(rig)
    image = rig.broker.parts.metadata.image
    assert list(image.topics) == ["kept"]
    assert not image.configs
    # The skipped records keep their offsets. The record of the new leader epoch follows them, and
    # then the broker's registration.
    assert image.brokers[1].broker_epoch == end_offset + len(records) + 1
    skipped = [one for one in caplog.records if "skipped" in one.getMessage()]
    assert len(skipped) == len(records)
    rig.create("later")


@pytest.mark.parametrize("record", impossible_records(), ids=lambda one: type(one).__name__)
def test_what_cannot_be_replayed_does_not_reach_the_disk(
    rig: Rig, record: MetadataRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = rig.broker.parts.metadata
    before = metadata.log.log.log_end_offset
    with monkeypatch.context() as faulty:
        faulty.setattr(
            rig.broker._controller, "handle", lambda *_: ControllerDecision([record], None)
        )
        with pytest.raises(ImpossibleRecord):
            order_ids(rig, 1)
        with pytest.raises(ImpossibleRecord):
            metadata.submit_now(AllocateProducerIds(1, 0))
    assert metadata.log.log.log_end_offset == before
    rig.create("later")
    restart(rig)
    assert "later" in rig.broker.parts.metadata.image.topics


def test_an_order_that_could_not_be_written_is_not_built_upon(rig: Rig) -> None:
    rig.disk.refuses = is_metadata_write
    replies, refusals = order_ids(rig, 1)
    assert [error.code for error in refusals] == [ErrorCode.KAFKA_STORAGE_ERROR]
    rig.disk.refuses = None
    first = rig.broker.parts.metadata.image.next_producer_id
    replies, refusals = order_ids(rig, 1)
    rig.flusher.sync()
    rig.turn()
    assert replies == [range(first, first + 1_000)]
    assert refusals == []


def test_the_log_is_cut_behind_snapshots_and_the_broker_starts_from_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = replace(METADATA_CONFIG, segment_bytes=2_000, file_delete_delay_ms=0)
    monkeypatch.setattr("broker.node.broker.METADATA_CONFIG", small)
    rig = Rig(max_pending_metadata_orders=PENDING_MAX)
    rig.create("t", 3, retention_ms="1000")
    rig.create("gone")
    rig.ask(DeleteTopicsRequest(topic_names=["gone"]), 5)
    metadata = rig.broker.parts.metadata
    metadata.snapshotter._limits = SnapshotLimits(records=50)
    log = metadata.log.log
    while log.log_start_offset == 0:
        order_ids(rig, 1)
        rig.flusher.sync()
        rig.turn()
    rig.flusher.sync()
    rig.turn()
    rig.advance(0)
    assert log.segments.start_offset > 0, "files were dropped"
    before = metadata.image
    restart(rig)
    image = rig.broker.parts.metadata.image
    assert image.topics.keys() == {"t"}
    assert image.topics["t"].topic_id == before.topics["t"].topic_id
    assert image.configs == before.configs
    assert image.next_producer_id == before.next_producer_id
    rig.create("gone")
