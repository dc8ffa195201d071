"""Index files after a power cut: what a start believes is what the batches say."""

from __future__ import annotations

import random

import pytest

from broker.storage.walk import BatchWalk
from tests.unit.storage.kit import NOW, Node, batch

SETTINGS = {"log.index.interval.bytes": 100, "log.segment.bytes": 1_500}


def put_at_random_times(node: Node, chance: random.Random, count: int) -> None:
    """Batches whose newest may stand anywhere in a segment, as from late senders."""
    for _ in range(count):
        node.put(batch(b"x" * 60, timestamp_ms=NOW + chance.randrange(1_000)))
        if chance.random() < 0.3:
            node.flush()


def newest_times(node: Node) -> list[int]:
    """The largest timestamp of each segment, from its batches."""
    return [
        max(
            (one.max_timestamp for one in BatchWalk(segment.file, 0, segment.size_bytes)),
            default=-1,
        )
        for segment in node.log.segments
    ]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_times_are_right_after_a_power_cut(seed: int, is_clean: bool) -> None:
    chance = random.Random(seed)
    node = Node(SETTINGS)
    for _ in range(3):
        put_at_random_times(node, chance, 60)
        node.flush()
        node.manager.checkpoint().perform()
        if is_clean:
            node.manager.close_clean()
        node.crash(chance)
        believed = [segment.largest_timestamp_ms for segment in node.log.segments]
        assert believed == newest_times(node), f"seed {seed}"


@pytest.mark.parametrize("suffix", [".timeindex", ".index"])
@pytest.mark.parametrize("seed", range(10))
def test_times_are_right_after_an_index_file_could_not_be_written(seed: int, suffix: str) -> None:
    chance = random.Random(seed)
    node = Node(SETTINGS)
    put_at_random_times(node, chance, 10)
    node.sim.refuses = lambda path, operation: path.endswith(suffix) and operation == "write"
    put_at_random_times(node, chance, 20)
    node.sim.refuses = None
    put_at_random_times(node, chance, 20)
    node.flush()
    node.manager.checkpoint().perform()
    # Killed and started again, with everything that was written still there.
    node.reopen()
    believed = [segment.largest_timestamp_ms for segment in node.log.segments]
    assert believed == newest_times(node), f"seed {seed}"
