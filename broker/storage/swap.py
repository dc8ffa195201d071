"""Replaces old segments by cleaned ones, so that after a crash either the old or the new ones
exist.

The order of the renames: the old files become `.deleted`, then the new indexes get their names, and
the new log file, still called `.swap`, comes last. While a `.log.swap` exists, the swap is not
finished, and the next start finishes it. A `.cleaned` file was never complete.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.storage.disk import Disk
from broker.storage.dropped import unlink_if_there
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.segment import BASE_DIGITS, DELETED_SUFFIX, LOG_SUFFIX, Segment
from broker.storage.walk import BatchWalk

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"


def swap(disk: Disk, old: Sequence[Segment], new: Segment) -> list[str]:
    """Rename the files of a group. Return the files to unlink.

    On DiskError the renames are undone as far as the disk permits. The next start finishes the
    swaps that stay half done.
    """
    done: list[tuple[str, str]] = []
    log_path, index_path, time_index_path, txn_index_path, _ = new.paths()
    try:
        for number, segment in enumerate(old):
            # Keep the snapshot at the start of the group. Rename the other snapshots away, because
            # no segment begins at their offsets any more.
            paths = segment.paths() if number else segment.paths()[:-1]
            for path in paths:
                if path == segment.log_path or disk.exists(path):
                    _rename(disk, path, path + DELETED_SUFFIX, done)
        for path in (index_path, time_index_path, txn_index_path, log_path):
            _rename(disk, path + SWAP_SUFFIX, path, done)
    except DiskError:
        _undo(disk, done)
        raise
    if not new.txn_index.count:
        _forget_empty(disk, txn_index_path)
    return [target for _, target in done if target.endswith(DELETED_SUFFIX)]


def _rename(disk: Disk, source: str, target: str, done: list[tuple[str, str]]) -> None:
    disk.rename(source, target)
    done.append((source, target))


def _undo(disk: Disk, done: list[tuple[str, str]]) -> None:
    for source, target in reversed(done):
        try:
            disk.rename(target, source)
        except DiskError:
            continue


def _forget_empty(disk: Disk, txn_index_path: str) -> None:
    try:
        unlink_if_there(disk, txn_index_path)
    except DiskError:
        # A missing index file has the same effect as an empty one, so no file is needed.
        return


def finish_swaps(disk: Disk, folder: str) -> None:
    """At a start, finish the swaps that were begun, and remove the new files of all other
    cleanings.

    Raises CorruptionError if a new segment is incomplete, because it was durable before it got its
    name.
    """
    names = disk.list_folder(folder)
    swaps = [name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    for name in names:
        is_begun = f"{name[:BASE_DIGITS]}{LOG_SUFFIX}{SWAP_SUFFIX}" in swaps
        if name.endswith(CLEANED_SUFFIX) or (name.endswith(SWAP_SUFFIX) and not is_begun):
            unlink_if_there(disk, f"{folder}/{name}")
    for name in swaps:
        _finish(disk, folder, int(name[:BASE_DIGITS]))
    if swaps:
        disk.sync_folder(folder)


def discard_swaps(disk: Disk, folder: str) -> None:
    """Remove the new segments of a cleaning that were not swapped in. The old ones all exist."""
    names = disk.list_folder(folder)
    # The log file decides whether a swap was begun, so remove it first. If a crash follows, the
    # next start removes the other files.
    names.sort(key=lambda name: not name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
    for name in names:
        if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)):
            unlink_if_there(disk, f"{folder}/{name}")


def _finish(disk: Disk, folder: str, base_offset: int) -> None:
    new = Segment(disk, folder, base_offset, 0, 0)
    log_path, index_path, time_index_path, txn_index_path, _ = new.paths()
    end_offset = _end_of(disk, log_path + SWAP_SUFFIX, base_offset)
    for name in disk.list_folder(folder):
        if name.endswith(LOG_SUFFIX) and name[:-4].isdigit():
            other = int(name[:-4])
            if base_offset < other < end_offset:
                for path in Segment(disk, folder, other, 0, 0).paths():
                    unlink_if_there(disk, path)
    for path in (index_path, time_index_path, txn_index_path, log_path):
        if disk.exists(path + SWAP_SUFFIX):
            disk.rename(path + SWAP_SUFFIX, path)
    if not disk.size_bytes(txn_index_path):
        unlink_if_there(disk, txn_index_path)


def _end_of(disk: Disk, path: str, base_offset: int) -> int:
    file = disk.open(path)
    walk = BatchWalk(file, 0, file.size_bytes(), checked_from=0)
    end_offset = base_offset
    for header in walk:
        end_offset = header.last_offset + 1
    if walk.fault is not None:
        raise CorruptionError(path, walk.position, walk.fault)
    return end_offset
