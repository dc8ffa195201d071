import pytest

from broker.quorum.control_records import SnapshotFooter, SnapshotHeader, build_control_batch
from broker.quorum.snapshot import (
    BOOTSTRAP,
    SnapshotId,
    build_snapshot,
    check_snapshot,
    file_name,
    read_file_name,
)
from protocol.errors import CorruptBatch, WireError
from protocol.wire.records import iterate_batches, read_header
from tests.unit.broker.quorum.kit import THREE_VOTERS, batch

ID = SnapshotId(120, 4)


def snapshot() -> bytes:
    return build_snapshot(ID, THREE_VOTERS, [bytearray(batch(b"a", count=2)), bytearray(batch())])


def test_names_are_kafkas() -> None:
    assert file_name(BOOTSTRAP) == "00000000000000000000-0000000000.checkpoint"
    assert read_file_name(file_name(ID)) == ID
    for other in ("00000000000000000000.log", file_name(ID) + ".part", "0-0.checkpoint"):
        assert read_file_name(other) is None


def test_a_whole_snapshot_says_who_votes() -> None:
    content = snapshot()
    assert check_snapshot(content) == THREE_VOTERS
    headers = [header for header, _ in iterate_batches(content)]
    assert [header.base_offset for header in headers] == [0, 3, 5, 6]
    assert {header.partition_leader_epoch for header in headers} == {4}
    assert [header.is_control for header in headers] == [True, False, False, True]
    assert check_snapshot(build_snapshot(BOOTSTRAP, THREE_VOTERS, [])) == THREE_VOTERS


def test_a_snapshot_that_was_cut_anywhere_is_not_whole() -> None:
    content = snapshot()
    for size in range(len(content)):
        with pytest.raises(WireError):
            check_snapshot(content[:size])


def test_a_flipped_byte_is_found_wherever_it_counts() -> None:
    content = snapshot()
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 0x40
        batch_at = position
        for _, one in iterate_batches(content):
            if batch_at < len(one):
                break
            batch_at -= len(one)
        # The checksum does not cover the epoch, but no code uses the epoch of a snapshot's batch.
        if 12 <= batch_at < 16:
            continue
        with pytest.raises(WireError):
            check_snapshot(flipped)


def test_what_stands_behind_the_footer_is_refused() -> None:
    content = snapshot()
    more = build_control_batch([SnapshotFooter()], base_offset=7, epoch=4)
    with pytest.raises(CorruptBatch, match="after its footer"):
        check_snapshot(content + more)
    with pytest.raises(CorruptBatch, match="does not end with a footer"):
        check_snapshot(content + b"x")


def test_a_snapshot_without_header_or_voters_is_refused() -> None:
    first = read_header(snapshot()).size_bytes
    with pytest.raises(CorruptBatch):
        check_snapshot(snapshot()[first:])
    footer = build_control_batch([SnapshotFooter()], base_offset=0, epoch=4)
    with pytest.raises(CorruptBatch, match="start with a header"):
        check_snapshot(footer)
    both = build_control_batch([SnapshotHeader(), SnapshotFooter()], base_offset=0, epoch=4)
    with pytest.raises(CorruptBatch, match="no record that names the voters"):
        check_snapshot(both)
