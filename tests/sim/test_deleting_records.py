"""DeleteRecords with three brokers. The response comes when all live replicas have the new log
start offset."""

from __future__ import annotations

from typing import Any

import pytest

from broker.world import Address
from protocol.errors import ErrorCode
from protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.types import NO_OFFSET, TopicPartition
from tests.sim.clients import Client, Script, batch_of, producer_of, topic_made, written
from tests.sim.test_damaged_replicas import LOG
from tests.sim.test_leaving import client_of, in_service, leaders
from tests.sim.whole_brokers import HOST_PORT, WholeBroker, WholeCluster
from tests.unit.storage.kit import FOLDER, batch

TOPIC = "t"
RECORDS = 10
FIRST_KEPT = 5
FOLLOWED_MS = 1_200
"""Within this time a follower learns a new log start offset from its pending Fetch, and reports its
own with the next Fetch."""


class Scene:
    """A cluster with one partition that has ten records and replicas on all three brokers."""

    def __init__(self, name: str, *, in_one_batch: bool = False) -> None:
        self.cluster = in_service(f"deleting {name}")
        self._in_one_batch = in_one_batch
        self.answers: list[Any] = []
        writing = client_of(self.cluster, "w", self._filled(), 0)
        self.cluster.run_until(lambda: writing.is_done, 20_000, "ten records")
        self._asked_count = 0

    def _filled(self) -> Script:
        yield from topic_made(TOPIC, 1, replication_factor=3)
        producer = yield from producer_of(None)
        values = [b"%d" % number for number in range(RECORDS)]
        batches = [batch_of(one, (*producer, number)) for number, one in enumerate(values)]
        if self._in_one_batch:
            batches = [batch(*values, timestamp_ms=1_000, producer=(*producer, 0))]
        for one in batches:
            yield from written(TOPIC, 0, one, None)

    @property
    def leader(self) -> WholeBroker:
        (leader_id,) = leaders(self.cluster)
        return self.cluster.nodes[leader_id - 1]

    @property
    def follower(self) -> WholeBroker:
        """Return a follower that is not the controller, so that a test can stop it."""
        active = self.cluster.active()
        return next(one for one in self.cluster.nodes if one not in (self.leader, active))

    def delete(self, offset: int, timeout_ms: int) -> None:
        """Send DeleteRecords for all records below an offset to the leader, without waiting."""
        self._asked_count += 1
        leader = self.leader
        where = {leader.node_id: Address(leader.host, HOST_PORT)}
        Client(self.cluster.network, f"d{self._asked_count}", where, self._asks(offset, timeout_ms))

    def _asks(self, offset: int, timeout_ms: int) -> Script:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name=TOPIC, partitions=[partition])
        answer = yield DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
        assert answer is not None, "it was answered, and the link stands"
        one = answer.topics[0].partitions[0]
        self.answers.append((ErrorCode(one.error_code), one.low_watermark, self.starts()))

    def starts(self) -> dict[int, int]:
        """Return the log start offset on each running broker."""
        return {node.node_id: start_of(node) for node in self.cluster.running}

    def answered(self, limit_ms: int) -> Any:
        """Wait for the next response. Return its error code and low watermark, and the log start
        offsets at that moment."""
        self.cluster.run_until(lambda: self.answers, limit_ms, "an answer")
        return self.answers.pop()


def start_of(node: WholeBroker) -> int:
    assert node.broker is not None
    replicas = {one.topic_partition: one for one in node.broker.parts.replicas}
    return replicas[TopicPartition(TOPIC, 0)].log.log_start_offset


def in_sync(cluster: WholeCluster) -> tuple[int, ...]:
    """Return the in-sync replicas according to the metadata."""
    image = cluster.running[0].metadata.image
    replicas: tuple[int, ...] = image.topics[TOPIC].partitions[0].in_sync_replicas
    return replicas


def test_records_are_called_deleted_when_all_replicas_have_deleted_them() -> None:
    scene = Scene("all")
    scene.delete(FIRST_KEPT, 2_000)
    code, low_watermark, starts = scene.answered(FOLLOWED_MS)
    assert (code, low_watermark) == (ErrorCode.NONE, FIRST_KEPT)
    assert set(starts.values()) == {FIRST_KEPT}
    # These offsets are already deleted. The response must have the current low watermark.
    scene.delete(2, 2_000)
    code, low_watermark, _ = scene.answered(100)
    assert (code, low_watermark) == (ErrorCode.NONE, FIRST_KEPT)


@pytest.mark.parametrize("number", range(5))
def test_no_power_cut_brings_back_what_was_called_deleted(number: int) -> None:
    scene = Scene(f"power {number}")
    cluster = scene.cluster
    scene.delete(FIRST_KEPT, 2_000)
    scene.answered(FOLLOWED_MS)
    for node in cluster.nodes:
        node.cut_power(cluster.chance)
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: all(node.is_ready for node in cluster.nodes), 20_000, "all are back")
    assert all(start >= FIRST_KEPT for start in scene.starts().values()), scene.starts()


def test_a_follower_that_stands_still_is_waited_for_as_long_as_the_request_allows() -> None:
    scene = Scene("frozen")
    follower = scene.follower
    follower.freeze()
    scene.delete(FIRST_KEPT, 1_500)
    scene.cluster.run_for(1_400)
    assert not scene.answers
    code, low_watermark, starts = scene.answered(200)
    assert (code, low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, NO_OFFSET)
    assert starts[follower.node_id] == 0
    follower.thaw()
    scene.cluster.run_for(FOLLOWED_MS)
    scene.delete(FIRST_KEPT, 2_000)
    assert scene.answered(FOLLOWED_MS)[:2] == (ErrorCode.NONE, FIRST_KEPT)


def test_a_follower_that_dies_holds_nothing_back_and_deletes_when_it_is_back() -> None:
    scene = Scene("dead")
    cluster, follower = scene.cluster, scene.follower
    follower.freeze()
    scene.delete(FIRST_KEPT, 2_000)
    cluster.run_for(700)
    assert not scene.answers
    # A killed process is fenced after a moment. Then DeleteRecords need not wait for it.
    follower.kill()
    assert scene.answered(500)[:2] == (ErrorCode.NONE, FIRST_KEPT)
    follower.start()
    cluster.run_until(lambda: follower.is_ready, 20_000, "it is back")
    cluster.run_until(lambda: start_of(follower) == FIRST_KEPT, 5_000, "it has deleted too")


def test_a_leader_that_is_replaced_says_so_to_who_waits() -> None:
    scene = Scene("replaced")
    cluster, leader = scene.cluster, scene.leader
    scene.follower.freeze()
    scene.delete(FIRST_KEPT, 2_000)
    cluster.run_for(700)
    assert not scene.answers
    leader.stop()
    code, low_watermark, _ = scene.answered(500)
    assert (code, low_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_OFFSET)


def test_a_replica_is_fetched_again_though_its_leader_begins_in_the_middle_of_a_batch() -> None:
    scene = Scene("middle", in_one_batch=True)
    cluster, follower = scene.cluster, scene.follower
    scene.delete(FIRST_KEPT, 2_000)
    assert scene.answered(FOLLOWED_MS)[:2] == (ErrorCode.NONE, FIRST_KEPT)
    follower.kill()
    follower.disk.remove_folder(f"{FOLDER}/{TOPIC}-0")
    follower.start()
    cluster.run_until(lambda: follower.is_ready, 20_000, "it is back")
    cluster.run_until(lambda: start_of(follower) == FIRST_KEPT, 5_000, "it begins there")
    cluster.run_until(lambda: len(in_sync(cluster)) == 3, 10_000, "it is in sync again")
    first, *others = (bytes(one.disk.contents(LOG)).rstrip(b"\0") for one in cluster.nodes)
    assert first
    assert others == [first, first]
