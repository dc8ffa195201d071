"""Changed bytes on disk: what a check finds, and which errors count as damage."""

from __future__ import annotations

import errno
from struct import pack_into

import pytest

from broker.storage.checkpoint import RECOVERY_POINTS
from broker.storage.errors import CorruptionError, DiskError, FolderError, is_damage
from broker.storage.walk import check_region
from tests.unit.storage.kit import EVERYTHING, FOLDER, Node, batch, compact, records_of

EPOCH_AT = 12
"""The position of the leader epoch in a batch."""

SIZES = (100, 300 * 1024, 50)
"""The value sizes of three batches. The second batch is larger than one read."""


def test_a_refusal_of_the_disk_is_told_in_the_system_s_words() -> None:
    told = str(DiskError("data/broker-1/t-0/0.log", "write", errno.ENOSPC))
    assert told == "write data/broker-1/t-0/0.log: No space left on device"


def with_batches() -> tuple[Node, list[int]]:
    """Return a log, and the positions of its batches in the file."""
    node = Node()
    begins = []
    for number, size_bytes in enumerate(SIZES):
        begins.append(node.log.size_bytes)
        node.put(batch(bytes([number + 1]) * size_bytes), leader_epoch=3)
    return node, begins


def check(node: Node) -> None:
    region = node.log.read(0, EVERYTHING, EVERYTHING).region
    assert region is not None
    check_region(region)


def test_what_was_written_is_sound() -> None:
    check(with_batches()[0])


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_a_flipped_bit_is_found_where_its_batch_begins(number: int) -> None:
    node, begins = with_batches()
    path = f"{node.log.folder}/{0:020d}.log"
    node.sim.contents(path)[begins[number] + SIZES[number]] ^= 4
    with pytest.raises(CorruptionError) as error:
        check(node)
    assert (error.value.path, error.value.position) == (path, begins[number])


@pytest.mark.parametrize(("at", "form", "value"), [(0, ">q", 0), (EPOCH_AT, ">i", 2)])
def test_offsets_and_epochs_that_no_checksum_covers_never_fall(
    at: int, form: str, value: int
) -> None:
    node, begins = with_batches()
    pack_into(form, node.sim.contents(f"{node.log.folder}/{0:020d}.log"), begins[1] + at, value)
    with pytest.raises(CorruptionError, match="fall"):
        check(node)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CorruptionError("log", 0, "bytes"), True),
        (DiskError("log", "read", errno.EIO), True),
        (DiskError("log", "read", errno.EMFILE), False),
        (DiskError("log", "fdatasync", errno.EIO), False),
        (FolderError("log", "of another"), False),
    ],
)
def test_what_is_damage(error: Exception, expected: bool) -> None:
    assert is_damage(error) is expected


@pytest.mark.parametrize("is_marked", [False, True])
def test_without_its_recovery_points_a_start_takes_no_gap_for_a_torn_tail(is_marked: bool) -> None:
    """An error can ask the administrator to remove a damaged checkpoint file. The next start then
    checks every batch, and must keep all of them although compaction left gaps."""
    node = Node(topic={"cleanup.policy": "compact", "segment.bytes": "300"})
    for number, key in enumerate([b"a", b"a", b"b", b"c", b"b", b"d", b"b"]):
        node.put(batch(b"%03d" % number * 10, key=key))
    node.flush()
    compact(node)
    if is_marked:
        node.log.gap_mark().perform()
    node.manager.checkpoint().perform()
    kept = [one.offset for one in records_of(node.log)]
    assert kept == [1, 3, 4, 5, 6]
    node.disk.unlink(f"{FOLDER}/{RECOVERY_POINTS}")
    for _ in range(2):
        report = node.reopen()
        assert (report.truncated, report.offline) == ([], {})
        assert [one.offset for one in records_of(node.log)] == kept
    assert node.log.has_gap_mark is is_marked
