"""Index files after a power cut: recovery must derive everything from the batches."""

from __future__ import annotations

import random

import pytest

from broker.storage import log_manager, segment
from broker.storage.walk import BatchWalk
from tests.unit.storage.kit import NOW, Node, batch

SETTINGS = {"log.index.interval.bytes": 100, "log.segment.bytes": 1_500}


def put_at_random_times(node: Node, chance: random.Random, count: int) -> None:
    """Append batches whose largest timestamps are in random order, as from late senders."""
    for _ in range(count):
        node.put(batch(b"x" * 60, timestamp_ms=NOW + chance.randrange(1_000)))
        if chance.random() < 0.3:
            node.flush()


def newest_times(node: Node) -> list[int]:
    """Return the largest timestamp of each segment, computed from its batches."""
    return [
        max(
            (header.max_timestamp for header in BatchWalk(one.file, 0, one.size_bytes)),
            default=-1,
        )
        for one in node.log.segments
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
        believed = [one.largest_timestamp_ms for one in node.log.segments]
        assert believed == newest_times(node), f"seed {seed}"


def lose_of_time_indexes_only(node: Node, chance: random.Random) -> None:
    """Cut the power so that only unsynced data of time indexes can be lost."""
    for name in node.names():
        if not name.endswith(".timeindex"):
            node.disk.open(node.path(name)).datasync()
    node.disk.sync_folder(node.path("").rstrip("/"))
    node.crash(chance)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_a_lost_end_of_a_time_index_is_never_believed(
    seed: int, is_clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Write every entry separately, so that a power cut can take any number of them.
    monkeypatch.setattr(segment, "INDEX_WRITE_ENTRIES", 1)
    chance = random.Random(seed)
    # A stop can have more unsynced files than it may sync together.
    monkeypatch.setattr(log_manager, "UNSYNCED_MAX", chance.choice([1, log_manager.UNSYNCED_MAX]))
    node = Node(SETTINGS)
    for _ in range(6):
        put_at_random_times(node, chance, chance.randrange(20))
        node.flush()
        if chance.random() < 0.5:
            node.restart()
        else:
            # Kill the broker, perhaps before a flush could sync the files that a roll has written.
            put_at_random_times(node, chance, chance.randrange(20))
            node.reopen()
    put_at_random_times(node, chance, chance.randrange(20))
    node.flush()
    node.manager.checkpoint().perform()
    if is_clean:
        node.manager.close_clean()
    lose_of_time_indexes_only(node, chance)
    believed = [one.largest_timestamp_ms for one in node.log.segments]
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
    # Kill and restart the broker. Everything written is still in the page cache.
    node.reopen()
    believed = [one.largest_timestamp_ms for one in node.log.segments]
    assert believed == newest_times(node), f"seed {seed}"
