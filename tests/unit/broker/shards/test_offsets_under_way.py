"""Offsets that are written but not committed when a topic or group is deleted, in a whole
broker."""

import errno
import random
from collections.abc import Iterator

import pytest

from broker.shards import replaying
from protocol.errors import ErrorCode
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from protocol.types import TopicPartition
from tests.unit.broker.rig import Rig
from tests.unit.broker.txn_rig import TxnProducer, make_coordinators, settle

NOTHING = -1
RETRY_MS = 2_000
RETENTION_MS = 60_000


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(None, offsets_retention_minutes=1)
    made.create("t")
    made.ask(FindCoordinatorRequest(key="g"), 2)
    load(made)
    yield made


def load(rig: Rig) -> None:
    rig.flusher.sync()
    while rig.broker.parts.groups.is_loading:
        rig.turn()


def commit(offset: int, group_id: str = "g") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest(group_id=group_id, topics=[topic])


def committed(rig: Rig) -> int:
    asked = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = rig.ask(OffsetFetchRequest(group_id="g", topics=[asked]), 7)
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


def test_an_offset_committed_again_does_not_expire_with_the_old_one(rig: Rig) -> None:
    rig.ask(commit(1), 8)
    rig.clock.advance(RETENTION_MS + 1)
    asked = rig.send(commit(2), 8)
    rig.broker.parts.groups.expire(rig.clock.now_ms())
    rig.flusher.sync()
    assert asked.answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert committed(rig) == 2


def test_a_clock_that_is_set_ahead_takes_no_offsets(rig: Rig) -> None:
    """The age of an offset counts only running time. So a machine that was suspended for a week
    expires no offset either."""

    def expire() -> None:
        rig.broker.parts.groups.expire(rig.clock.now_ms())
        rig.flusher.sync()

    rig.ask(commit(1), 8)
    rig.clock.set_wall_clock(rig.clock.now_ms() + RETENTION_MS + 1)
    expire()
    assert committed(rig) == 1
    rig.clock.advance(RETENTION_MS - 1)
    expire()
    assert committed(rig) == 1
    rig.clock.advance(1)
    expire()
    assert committed(rig) == NOTHING


def test_a_commit_on_its_way_goes_with_its_topic(rig: Rig) -> None:
    """Pitfall 45: a new topic of the same name starts without offsets."""
    log = rig.broker.parts.groups.find("g").replica.log
    asked = rig.send(commit(7), 8)
    # Only the sync of the offsets is slow.
    del rig.flusher.marked[log]
    rig.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    rig.flusher.mark(log)
    rig.flusher.sync()
    assert asked.answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    rig.create("t")
    assert committed(rig) == NOTHING


def remove_while_full(rig: Rig) -> None:
    """Delete the topic while the disk refuses writes to the group's partition."""
    folder = rig.broker.parts.groups.find("g").replica.log.folder
    rig.disk.refuses = lambda path, operation: operation == "write" and str(folder) in str(path)
    rig.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    rig.disk.refuses = None


def test_a_full_disk_does_not_keep_the_offsets_of_a_removed_topic(rig: Rig) -> None:
    """Pitfall 45 again: the tombstones were refused, and are written when the disk has room."""
    rig.ask(commit(7), 8)
    remove_while_full(rig)
    rig.create("t")
    assert committed(rig) == NOTHING
    rig.advance(RETRY_MS)
    rig.flusher.sync()
    rig.power_cut(random.Random(0))
    load(rig)
    assert committed(rig) == NOTHING


def test_a_commit_on_its_way_goes_with_its_topic_though_the_disk_is_full(rig: Rig) -> None:
    log = rig.broker.parts.groups.find("g").replica.log
    rig.send(commit(7), 8)
    del rig.flusher.marked[log]
    remove_while_full(rig)
    rig.flusher.mark(log)
    rig.flusher.sync()
    rig.create("t")
    assert committed(rig) == NOTHING


def test_what_is_committed_for_a_new_topic_outlives_the_old_ones_tombstones(rig: Rig) -> None:
    rig.ask(commit(7), 8)
    remove_while_full(rig)
    rig.create("t")
    asked = rig.send(commit(3), 8)
    rig.advance(RETRY_MS)
    rig.flusher.sync()
    assert asked.answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    rig.advance(RETRY_MS)
    rig.flusher.sync()
    rig.power_cut(random.Random(0))
    load(rig)
    assert committed(rig) == 3


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_for_a_new_topic_outlives_the_old_ones_tombstones(
    rig: Rig, is_commit: bool
) -> None:
    rig.ask(commit(7), 8)
    make_coordinators(rig)
    settle(rig)
    remove_while_full(rig)
    rig.create("t")
    producer = TxnProducer(rig).ready()
    assert producer.add_offsets("g") is ErrorCode.NONE
    assert producer.commit_offsets("g", {TopicPartition("t", 0): 3}) == [ErrorCode.NONE]
    rig.advance(RETRY_MS)
    settle(rig)
    assert producer.end(is_commit=is_commit) is ErrorCode.NONE
    settle(rig)
    rig.advance(RETRY_MS)
    settle(rig)
    rig.power_cut(random.Random(0))
    load(rig)
    assert committed(rig) == (3 if is_commit else NOTHING)


def test_a_topic_made_again_while_the_offsets_load_begins_without_them(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(50):
        rig.ask(commit(7), 8)
    # Each turn of the loop loads one commit.
    monkeypatch.setattr(replaying, "LOAD_BYTES", 1)
    rig.power_cut(random.Random(0))
    assert rig.broker.parts.groups.is_loading
    rig.send(DeleteTopicsRequest(topic_names=["t"]), 5)
    rig.flusher.sync()
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    rig.send(CreateTopicsRequest(topics=[topic]), 7)
    rig.flusher.sync()
    assert rig.broker.parts.groups.is_loading
    assert "t" in rig.broker.parts.metadata.image.topics
    load(rig)
    assert committed(rig) == NOTHING


def test_a_topic_removed_right_before_a_crash_leaves_no_offsets(rig: Rig) -> None:
    """Pitfall 45 again: the deletion was on disk, but the tombstones were not."""
    rig.ask(commit(7), 8)
    log = rig.broker.parts.groups.find("g").replica.log
    asked = rig.send(DeleteTopicsRequest(topic_names=["t"]), 5)
    while not asked.is_answered():
        rig.flusher.marked.pop(log, None)
        rig.flusher.sync()
        rig.turn()
    # With this seed, the power cut loses the tombstones.
    rig.power_cut(random.Random(0))
    load(rig)
    rig.create("t")
    assert committed(rig) == NOTHING


def test_offsets_of_groups_with_the_longest_names_expire_too_many_of_them_at_once() -> None:
    """The tombstones of 40 such groups do not fit into one batch."""
    rig = Rig(None, offsets_retention_minutes=1, offsets_topic_num_partitions=1)
    rig.create("t")
    rig.ask(FindCoordinatorRequest(key="g"), 2)
    load(rig)
    for number in range(40):
        rig.ask(commit(1, f"{number:02}".ljust(32_000, "x")), 8)
    rig.clock.advance(RETENTION_MS + 1)
    log = rig.broker.parts.groups.find("g").replica.log
    before = log.log_end_offset
    rig.broker.parts.groups.expire(rig.clock.now_ms())
    # Each turn writes one batch of tombstones, so that the loop stays responsive.
    assert 0 < log.log_end_offset - before < 40
    settle(rig)
    assert not [place for one in rig.broker.parts.groups.shards() for place in one.offsets.places()]
    assert log.log_end_offset - before == 40


def test_a_log_that_cannot_be_read_for_a_moment_is_loaded_when_it_can(rig: Rig) -> None:
    """The read can fail for lack of file descriptors, although the log is sound."""
    rig.ask(commit(7), 8)
    groups = rig.broker.parts.groups
    groups.resigned(groups.find("g").replica)
    rig.disk.refusal = errno.EMFILE
    rig.disk.refuses = lambda path, operation: "/__consumer_offsets-" in path
    groups.follow()
    for _ in range(3):
        rig.advance(RETRY_MS)
        rig.turn()
    assert groups.is_loading
    rig.disk.refuses = None
    rig.advance(RETRY_MS)
    rig.turn()
    assert committed(rig) == 7
