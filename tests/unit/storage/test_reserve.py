"""The disk space that is reserved for checkpoints which free space: how it is used and restored."""

from __future__ import annotations

import pytest

from broker.storage.errors import DiskError
from broker.storage.reserve import BLOCK_BYTES, RESERVE_BYTES, RESERVE_FILE, Reserve
from tests.sim.disk import SimDisk
from tests.unit.storage.kit import FOLDER, NOW, Node, batch, retain, values_of

PATH = f"{FOLDER}/{RESERVE_FILE}"


def full_node() -> Node:
    """Return a broker on a full disk, with old segments that retention would delete."""
    node = Node({"log.segment.bytes": 200}, topic={"retention.bytes": "400"})
    for number in range(8):
        node.put(batch(b"%d" % number * 50), leader_epoch=number)
    node.flush()
    node.manager.checkpoint().perform()
    node.put(batch(b"last" * 10), leader_epoch=8)
    node.flush()
    node.sim.capacity_bytes = node.sim.used_bytes()
    return node


def reserve_bytes(node: Node) -> int:
    return len(node.sim.contents(PATH))


def test_a_full_disk_frees_itself_by_retention() -> None:
    node = full_node()
    assert reserve_bytes(node) == RESERVE_BYTES
    with pytest.raises(DiskError):
        node.manager.checkpoint().perform()
    with pytest.raises(DiskError):
        node.manager.checkpoint_points().perform()
    assert reserve_bytes(node) == RESERVE_BYTES, "it frees nothing, so it must not take any"
    dropped = retain(node, NOW)
    assert dropped is not None
    dropped.perform()
    node.manager.checkpoint().perform()
    before = values_of(node.log)
    assert node.reopen().offline == {}
    assert values_of(node.log) == before


def test_what_was_given_up_is_taken_back_as_soon_as_there_is_room() -> None:
    node = full_node()
    node.log.advance_log_start(3)
    node.manager.checkpoint(frees_room=True).perform()
    assert node.sim.room_bytes() == 0, "what is left over is taken back at once"
    assert reserve_bytes(node) < RESERVE_BYTES
    node.sim.capacity_bytes = None
    node.put(batch(b"x"), leader_epoch=8)
    node.flush()
    node.manager.checkpoint_points().perform()
    assert reserve_bytes(node) == RESERVE_BYTES


def test_a_faster_writer_gets_one_piece_and_not_all() -> None:
    """Another writer can take the freed space before the checkpoint does. So the reserve is freed
    in pieces."""
    disk = SimDisk()
    disk.make_folder(FOLDER)
    reserve = Reserve(disk, FOLDER)
    reserve.refill()
    disk.capacity_bytes = disk.used_bytes()
    thief = disk.open(f"{FOLDER}/thief", create=True)
    stolen = 0

    def steal(path: str, operation: str) -> bool:
        nonlocal stolen
        if path.endswith(".tmp") and operation == "write" and disk.room_bytes() > 0 and stolen < 3:
            stolen += 1
            thief.write([bytes(disk.room_bytes())], thief.size_bytes())
        return False

    disk.refuses = steal
    reserve.replace(f"{FOLDER}/checkpoint", b"x" * 100)
    assert stolen == 3
    assert disk.read_all(f"{FOLDER}/checkpoint") == b"x" * 100
    assert disk.size_bytes(PATH) == RESERVE_BYTES - 4 * (BLOCK_BYTES + 100)


def test_a_reserve_removed_by_hand_is_made_again() -> None:
    """An administrator who needs space may delete the reserve, because the file looks empty."""
    node = full_node()
    node.sim.unlink(PATH)
    retain(node, NOW)
    node.manager.checkpoint(frees_room=True).perform()
    assert reserve_bytes(node) == RESERVE_BYTES

    node.sim.unlink(PATH)
    node.sim.capacity_bytes = node.sim.used_bytes()
    node.log.advance_log_start(node.log.log_start_offset + 1)
    with pytest.raises(DiskError) as refused:
        node.manager.checkpoint(frees_room=True).perform()
    assert refused.value.is_full
    node.sim.capacity_bytes = None
    node.manager.checkpoint().perform()
    assert reserve_bytes(node) == RESERVE_BYTES


def test_an_empty_reserve_is_no_help() -> None:
    disk = SimDisk()
    disk.make_folder(FOLDER)
    disk.capacity_bytes = 0
    reserve = Reserve(disk, FOLDER)
    reserve.refill()
    with pytest.raises(DiskError):
        reserve.replace(f"{FOLDER}/checkpoint", b"x")
