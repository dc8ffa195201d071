"""A data folder has a permanent id. The folder of another node or another cluster is refused."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from broker.storage.errors import FolderError
from broker.storage.log_manager import LogManager
from tests.sim.disk import SimDisk
from tests.unit.storage.kit import DIRECTORY_ID, FOLDER, Node, broker_config


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"cluster_id": "CCCCCCCCCCCCCCCCCCCCCA"}, r"cluster\.id A+.*C+"),
        ({"node_id": 2}, r"node\.id 1, but the configuration has 2"),
    ],
)
def test_another_nodes_folder_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    disk = SimDisk()
    LogManager(disk, broker_config(), DIRECTORY_ID).release()
    with pytest.raises(FolderError, match=named):
        LogManager(disk, broker_config(**change), DIRECTORY_ID)
    # The refused start must have released the lock.
    LogManager(disk, broker_config(), DIRECTORY_ID).release()


def test_a_folders_id_is_made_on_its_disk_and_stays_there() -> None:
    """A wiped disk must get a new directory id. With its old id it would vote and count as a
    replica without its data."""
    disk = SimDisk()

    def started(disk: SimDisk) -> uuid.UUID:
        manager = LogManager(disk, broker_config(), uuid.uuid4())
        manager.release()
        return manager.directory_id

    made = started(disk)
    assert started(disk) == made
    disk.crash(random.Random(1))
    assert started(disk) == made
    assert started(SimDisk()) != made


@pytest.mark.parametrize("data", [b"", b"version=2\n", b"nonsense\n", b"directory.id=x\n"])
def test_a_damaged_identity_is_refused(data: bytes) -> None:
    disk = SimDisk()
    LogManager(disk, broker_config(), DIRECTORY_ID).release()
    disk.replace(f"{FOLDER}/meta.properties", data, is_durable=True)
    with pytest.raises(FolderError):
        LogManager(disk, broker_config(), DIRECTORY_ID)


def test_partitions_without_an_identity_are_not_adopted() -> None:
    node = Node()
    node.manager.release()
    node.disk.unlink(f"{FOLDER}/meta.properties")
    with pytest.raises(FolderError, match=r"meta\.properties is missing"):
        LogManager(node.disk, node.config, DIRECTORY_ID)
