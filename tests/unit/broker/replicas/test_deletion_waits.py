"""A topic is deleted during a flush, and another topic of the same name is created."""

from __future__ import annotations

import random
from collections.abc import Iterator
from uuid import UUID

import pytest

from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from broker.replicas.folders import CreatedLogs, Folders
from protocol.messages.topics import DeleteTopicsRequest
from protocol.types import TopicPartition
from protocol.wire.records import read_header
from tests.harness.wire import batch_of, produce_request
from tests.unit.broker.cluster.kit import create_request
from tests.unit.broker.rig import HeldWorker, Rig
from tests.unit.storage.kit import FOLDER, MANY, NOW, batch


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig


def test_a_flush_under_way_writes_nothing_into_a_namesakes_folder(rig: Rig) -> None:
    """Otherwise the folder of the new topic would get the deleted topic's index of aborted
    transactions. Kafka's consumers would drop committed records because of it."""
    rig.create("t", segment_bytes="300")
    partition = rig.broker.parts.replicas.find("t", 0)
    log = partition.log
    view = batch(b"a" * 200, producer=(7, 0, 0), is_transactional=True)
    log.append_own(view, read_header(view), 0, NOW)
    log.append_marker(7, 0, False, 0, 0, NOW)
    log.write_staged(NOW)
    partition.on_written()
    under_way = rig.flusher.begin()
    assert [one for one, _ in under_way.targets] == [log]
    asked = rig.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 4)
    # The deletion is committed and the log is out of service. The folder stays while a thread syncs
    # it.
    rig.flusher.sync()
    rig.turn()
    assert "t-0" in rig.disk.list_folder(FOLDER)
    assert not asked.is_answered()
    rig.flusher.finish(under_way)
    rig.turn()
    assert asked.is_answered()
    assert "t-0" not in rig.disk.list_folder(FOLDER)
    rig.create("t")
    made = rig.broker.parts.replicas.find("t", 0).log
    assert made is not log
    assert made.aborted_transactions(0, MANY) == []
    names = rig.disk.list_folder(made.folder)
    assert not [name for name in names if name.endswith((".txnindex", ".snapshot"))]


def test_a_log_out_of_service_is_flushed_no_more(rig: Rig) -> None:
    rig.create("t")
    partition = rig.broker.parts.replicas.find("t", 0)
    view = batch(b"a")
    partition.log.append_own(view, read_header(view), 0, NOW)
    partition.log.write_staged(NOW)
    partition.on_written()
    rig.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 4)
    rig.flusher.sync()
    assert partition.log.flush_target() is None


def test_a_checkpoint_taken_before_a_deletion_is_done_says_nothing_of_the_namesake() -> None:
    """Otherwise the new topic would have the leader epochs of the deleted one, and would refuse its
    own leader because of them."""
    worker = HeldWorker()
    rig = Rig(worker=worker)
    rig.send(create_request("t"), 7)
    rig.flusher.sync()
    worker.work()
    parts = rig.broker.parts
    old = parts.metadata.image.topics["t"]
    log = parts.replicas.find("t", 0).log
    for leader_epoch in (3, 4):
        log.leader_epochs.assign(leader_epoch, 0)
    new = old.topic_id.int ^ 1
    # One batch removes the topic and creates the next one, as an installed snapshot can.
    rig.commit(
        RemoveTopicRecord(topic_id=old.topic_id),
        TopicRecord(name="t", topic_id=UUID(int=new)),
        PartitionRecord(
            partition_id=0, topic_id=UUID(int=new), replicas=[1], isr=[1], leader=1,
            leader_epoch=0, partition_epoch=0, directories=list(old.partitions[0].directories),
        ),
    )  # fmt: skip
    assert worker.held
    parts.checkpoints.write(lambda: None, lambda error: None)
    worker.work()
    rig.ask(produce_request("t", batch_of([b"of the namesake"])), 9)
    parts.checkpoints.write(lambda: None, lambda error: None)
    worker.work()
    rig.power_cut(random.Random(0))
    made = rig.broker.parts.replicas.find("t", 0).log
    assert made.topic_id.int == new
    assert made.leader_epochs.entries == [(0, 0)]


def a_topic_is_made_anew_before_its_folder_is_gone() -> None:
    """The process dies when both changes are committed and neither has been applied to the
    folders."""
    worker = HeldWorker()
    rig = Rig(worker=worker)
    rig.send(create_request("t"), 7)
    rig.flusher.sync()
    worker.work()
    batch = batch_of([b"of the deleted"], producer_id=7, producer_epoch=0, base_sequence=0)
    rig.send(produce_request("t", batch), 9)
    rig.flusher.sync()
    rig.send(DeleteTopicsRequest(topic_names=["t"]), 5)
    rig.send(create_request("t"), 7)
    rig.flusher.sync()
    assert worker.held
    worker.held.clear()
    rig.power_cut(random.Random(0))
    worker.work()
    (log,) = (one.log for one in rig.broker.parts.replicas if one.topic == "t")
    assert log.log_end_offset == 0, "records of a deleted topic are in its namesake"


def test_guard_38_a_folder_is_known_by_its_topics_id(monkeypatch: pytest.MonkeyPatch) -> None:
    a_topic_is_made_anew_before_its_folder_is_gone()
    make = Folders.make

    def by_name(self: Folders, topic: TopicImage, image: MetadataImage) -> CreatedLogs:
        for index in self.own_indexes(topic):
            log = self._logs.get(TopicPartition(topic.name, index))
            if log is not None:
                log.topic_id = topic.topic_id
        return make(self, topic, image)

    monkeypatch.setattr(Folders, "finish_removals", lambda self, image, removed_ids: [])
    monkeypatch.setattr(Folders, "make", by_name)
    with pytest.raises(AssertionError, match="in its namesake"):
        a_topic_is_made_anew_before_its_folder_is_gone()
