"""Without a free file descriptor, a process loses no log and takes no log for damaged."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from broker.storage.disk import OsDisk
from broker.storage.errors import DiskError
from broker.storage.folder_jobs import DAMAGED_SUFFIX
from broker.storage.log_manager import LogManager
from broker.storage.segments import WARM_SEGMENTS_MAX
from tests.harness.descriptors import descriptors_left
from tests.harness.own_process import in_own_process
from tests.unit.storage.kit import DIRECTORY_ID, NOW, TP, Node, batch, values_of

OPENING = ("open", "read")
"""The operations with which the simulated disk opens a file."""


def many_segments(count: int, batches_each: int = 1) -> Node:
    """Return a log with this number of segments."""
    node = Node(topic={"segment.bytes": f"{150 * batches_each}"})
    for number in range(count * batches_each):
        node.put(batch(f"{number}".encode() * 60))
    return node


@pytest.mark.parametrize(
    ("operation", "number", "is_final"),
    [
        ("sync folder", errno.EMFILE, False),
        ("sync folder", errno.ENFILE, False),
        ("sync folder", errno.EIO, True),
        ("sync folder", errno.ENOENT, True),
        ("fdatasync", errno.EIO, True),
        ("open", errno.EMFILE, False),
        ("open", errno.EIO, True),
    ],
)
def test_only_what_cannot_be_tried_again_is_final(
    operation: str, number: int, is_final: bool
) -> None:
    assert DiskError("f", operation, number).is_final is is_final


def sync_without_descriptors(folder: str) -> None:
    disk = OsDisk()
    with descriptors_left(0), pytest.raises(DiskError) as refused:
        disk.sync_folder(folder)
    assert refused.value.is_short
    assert not refused.value.is_final
    disk.sync_folder(folder)


def test_a_folder_that_could_not_be_opened_has_not_failed_to_be_synced(tmp_path: Path) -> None:
    in_own_process(sync_without_descriptors, str(tmp_path))


def test_a_start_takes_no_log_for_damaged_that_it_could_not_open() -> None:
    """A log that counts as damaged stays offline until the process ends. If another broker leads,
    its folder is renamed."""
    node = many_segments(3)
    node.flush()
    node.manager.release()
    node.sim.refusal = errno.EMFILE
    for operation in OPENING:
        node.sim.refuses = lambda path, asked, wanted=operation: (
            asked == wanted and path.endswith((".log", ".index", "leader-epoch-checkpoint"))
        )
        manager = LogManager(node.disk, node.config, DIRECTORY_ID)
        with pytest.raises(DiskError) as refused:
            manager.open_all(NOW)
        assert refused.value.is_short
        manager.release()
    node.sim.refuses = None
    node.reopen()
    assert len(values_of(node.log)) == 3


def test_an_index_that_could_not_be_opened_is_not_rebuilt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rebuild would read the whole segment in the event loop."""
    node = many_segments(WARM_SEGMENTS_MAX + 3)
    node.restart()
    node.sim.refusal = errno.EMFILE
    node.sim.refuses = lambda path, operation: path.endswith(".index")
    with pytest.raises(DiskError) as refused:
        node.log.read(0, 1, 1)
    assert refused.value.is_short
    node.sim.refuses = None
    assert len(values_of(node.log)) == WARM_SEGMENTS_MAX + 3


def test_a_flush_whose_files_could_not_be_opened_is_planned_again() -> None:
    node = many_segments(WARM_SEGMENTS_MAX + 4)
    node.sim.refusal = errno.EMFILE
    for suffix in (".log", ".index"):
        node.sim.refuses = lambda path, operation, end=suffix: (
            operation == "open" and path.endswith(end)
        )
        with pytest.raises(DiskError):
            node.log.flush_target()
    node.sim.refuses = None
    assert node.flush() == node.log.log_end_offset
    # The refused flush must not count as running, because a log with a running flush cannot be
    # truncated.
    node.truncate(2)
    assert node.log.log_end_offset == 2


def test_a_flush_that_was_refused_leaves_its_snapshots_to_the_next() -> None:
    node = Node(topic={"segment.bytes": "150"})
    for number in range(3):
        node.put(batch(b"v" * 60, producer=(7, 0, number)))
    target = node.log.flush_target()
    assert target is not None
    node.sim.refusal = errno.EMFILE
    node.sim.refuses = lambda path, operation: operation in ("open", "sync folder")
    with pytest.raises(DiskError) as refused:
        target.perform()
    assert not refused.value.is_final
    node.log.flush_refused(target)
    node.sim.refuses = None
    assert node.flush() == 3
    assert [name for name in node.names() if name.endswith(".snapshot")] == [
        "00000000000000000001.snapshot",
        "00000000000000000002.snapshot",
    ]


def test_folders_are_out_of_the_way_though_their_folder_could_not_be_synced() -> None:
    """The removal needs no sync of the parent folder, because the next folder that is created there
    syncs the parent as well."""
    node = many_segments(1)
    removal = node.manager.begin_removal([TP], DAMAGED_SUFFIX)
    assert removal is not None
    node.sim.refusal = errno.EMFILE
    node.sim.refuses = lambda path, operation: operation == "sync folder"
    done = removal.perform()
    assert not done.refused
    assert node.disk.exists(str(done.paths[TP]))


def test_a_cut_that_could_not_open_the_log_has_not_begun() -> None:
    node = many_segments(WARM_SEGMENTS_MAX + 4, 2)
    node.flush()
    node.sim.refusal = errno.EMFILE
    node.sim.refuses = lambda path, operation: operation in OPENING
    with pytest.raises(DiskError):
        node.manager.begin_truncation(node.log, 1, NOW)
    node.sim.refuses = None
    # The log continues to serve, and can be truncated later.
    node.put(batch(b"x" * 60))
    assert node.flush() == node.log.log_end_offset
    node.truncate(1)
    assert len(values_of(node.log)) == 1
