"""Offsets that are written and not committed when others are taken away, through a whole broker."""

import random
from collections.abc import Iterator

import pytest

from protocol.errors import ErrorCode
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from protocol.messages.topics import DeleteTopicsRequest
from tests.unit.broker.rig import Rig

NOTHING = -1
RETENTION_MS = 60_000


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(None, offsets_retention_minutes=1)
    made.create("t")
    made.ask(FindCoordinatorRequest(key="g"), 2)
    load(made)
    yield made
    made.stop()


def load(rig: Rig) -> None:
    rig.flusher.sync()
    while rig.broker.services.groups.is_loading:
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


def test_an_offset_committed_anew_does_not_expire_with_the_old_one(rig: Rig) -> None:
    rig.ask(commit(1), 8)
    rig.clock.advance(RETENTION_MS + 1)
    asked = rig.send(commit(2), 8)
    rig.broker.services.groups.expire(rig.clock.now_ms())
    rig.flusher.sync()
    assert asked.answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert committed(rig) == 2


def test_a_commit_on_its_way_goes_with_its_topic(rig: Rig) -> None:
    """Pitfall 45: a new topic of the same name begins without offsets."""
    log = rig.broker.services.groups.find("g").partition.log
    asked = rig.send(commit(7), 8)
    # The disk is slow for the offsets alone.
    del rig.flusher.marked[log]
    rig.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    rig.flusher.mark(log)
    rig.flusher.sync()
    assert asked.answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    rig.create("t")
    assert committed(rig) == NOTHING


def test_a_topic_removed_right_before_a_crash_leaves_no_offsets(rig: Rig) -> None:
    """Pitfall 45 again: the removal was on the disk, the tombstones were not."""
    rig.ask(commit(7), 8)
    log = rig.broker.services.groups.find("g").partition.log
    asked = rig.send(DeleteTopicsRequest(topic_names=["t"]), 5)
    while not asked.is_answered():
        rig.flusher.marked.pop(log, None)
        rig.flusher.sync()
        rig.turn()
    # This seed takes the tombstones away.
    rig.power_cut(random.Random(0))
    load(rig)
    rig.create("t")
    assert committed(rig) == NOTHING


def test_offsets_of_groups_with_the_longest_names_expire_too_many_of_them_at_once() -> None:
    """The tombstones of 40 of them do not fit into one batch."""
    rig = Rig(None, offsets_retention_minutes=1, offsets_topic_num_partitions=1)
    rig.create("t")
    rig.ask(FindCoordinatorRequest(key="g"), 2)
    load(rig)
    for number in range(40):
        rig.ask(commit(1, f"{number:02}".ljust(32_000, "x")), 8)
    rig.clock.advance(RETENTION_MS + 1)
    rig.broker.services.groups.expire(rig.clock.now_ms())
    rig.flusher.sync()
    assert not [
        place for one in rig.broker.services.groups.shards() for place in one.offsets.places()
    ]
    rig.stop()
