"""The keys that choose the partitions of files."""

from collections import Counter
from pathlib import Path

import pytest

from collector.send.addresses import Addresses
from protocol.client.partitioner import partition_for_key
from tests.unit.collector.world import HOST, World

PARTITIONS = 6


def partition_key(folder: Path, name: str | None, kind: str = "path") -> bytes:
    """Return the key that chooses the partition of the file `a` on a host."""
    world = World(folder, key=kind)
    world.write(1, "a")
    world.look()
    (generation,) = world.registry.generations.values()
    return Addresses(HOST, name).partition_key_of(generation)


@pytest.mark.parametrize("kind", ["path", "none"])
def test_files_of_the_same_path_on_many_hosts_go_to_all_partitions(
    tmp_path: Path, kind: str
) -> None:
    keys = [partition_key(tmp_path, f"web-{number:02}", kind) for number in range(60)]
    counts = Counter(partition_for_key(key, PARTITIONS) for key in keys)
    assert len(counts) == PARTITIONS
    assert max(counts.values()) <= 20


def test_a_collector_without_a_name_uses_the_key_of_the_records(tmp_path: Path) -> None:
    assert partition_key(tmp_path, None) == b"a"


def test_the_key_host_chooses_the_partition_as_for_every_kafka_client(tmp_path: Path) -> None:
    assert partition_key(tmp_path, "web-07", "host") == HOST.encode()
