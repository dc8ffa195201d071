"""A coordinator must serve only committed offsets. Without this guard a client gets an offset that
is lost later. The number refers to `docs/guards.md`."""

from __future__ import annotations

from typing import Any

import pytest

from broker.metadata.image import OFFSETS_TOPIC
from broker.shards.shard_driver import CoordinatorDriver
from protocol.errors import ErrorCode
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.types import NO_NODE
from tests.sim.test_read_barrier import COMMITTED, GROUP, TOPIC, Scene, group_code
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import WholeBroker

COMMIT = OffsetCommitRequest(
    group_id=GROUP,
    topics=[
        OffsetCommitRequestTopic(
            name=TOPIC,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=2, committed_metadata=""
                )
            ],
        )
    ],
)
"""The offset that the coordinator and one other replica append but never commit; 1 is committed."""


def offsets_end(node: WholeBroker) -> int:
    """Return the log end offset of the offsets topic on a node."""
    assert node.broker is not None
    logs = [one.log for one in node.broker.parts.replicas if one.topic == OFFSETS_TOPIC]
    return logs[0].log_end_offset


def offset_told(scene: Scene, node: WholeBroker, patience_ms: int) -> int:
    """Ask a node for the group's committed offset until it answers. Return -1 at the deadline."""
    clock = scene.cluster.network.timeline.clock
    until_ms = clock.monotonic_ms() + patience_ms
    while clock.monotonic_ms() < until_ms:
        heard: list[Any] = scene.ask(node, COMMITTED)
        while not heard:
            scene.cluster.run_for(1)
        code = ErrorCode(group_code(heard[0]))
        if code is ErrorCode.NONE:
            offset: int = heard[0].groups[0].topics[0].partitions[0].committed_offset
            return offset
        assert code.retriable
        scene.cluster.run_for(20)
    return -1


def a_coordinator_dies_before_its_commit_and_its_successor_too() -> None:
    """The second coordinator has the first one's last record, but cannot know if it will be
    committed. In this script it is lost, so the second coordinator must not return it."""
    scene = Scene("shard")
    cluster = scene.cluster
    partition = cluster.nodes[0].metadata.image.topics[OFFSETS_TOPIC].partitions[0]
    first, second, third = (scene.node(node_id) for node_id in partition.replicas)
    assert partition.leader == first.node_id
    assert offset_told(scene, first, 1_000) == 1
    third.disk.refuses = lambda path, operation: (
        operation == "write" and f"/{OFFSETS_TOPIC}-0/" in path
    )
    end_offset = offsets_end(second)
    scene.ask(first, COMMIT)
    cluster.run_until(lambda: offsets_end(second) > end_offset, 1_000, "the second has it")
    first.kill()
    cluster.run_until(
        lambda: scene.leader_of(OFFSETS_TOPIC) == second.node_id, 2_000, "the second leads"
    )
    told = offset_told(scene, second, 1_000)
    second.kill()
    third.disk.refuses = None
    first.start()
    second.start()
    cluster.run_until(lambda: is_in_service(cluster), 30_000, "all are back")
    cluster.run_until(lambda: scene.leader_of(OFFSETS_TOPIC) != NO_NODE, 5_000, "one leads")
    known = offset_told(scene, scene.node(scene.leader_of(OFFSETS_TOPIC)), 20_000)
    assert known >= max(told, 1), f"the group's offset falls from {told} to {known}"


def test_30_a_shard_at_its_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    a_coordinator_dies_before_its_commit_and_its_successor_too()

    def serve(self: CoordinatorDriver[Any], loaded: Any, shard: Any, end_offset: int) -> None:
        loaded.shard = shard
        self.on_loaded(loaded, shard)

    monkeypatch.setattr(CoordinatorDriver, "_await_commit", serve)
    with pytest.raises(AssertionError, match="falls from 2 to 1"):
        a_coordinator_dies_before_its_commit_and_its_successor_too()
