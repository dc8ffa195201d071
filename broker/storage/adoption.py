"""Uses the snapshots and index files of earlier runs, so that a start need not read every batch.

Every file is verified first: a snapshot by its checksum, a transaction index by its order, and the
two other indexes by the batches after their last entry.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.storage import producer_snapshot, txn_index
from broker.storage.disk import Disk
from broker.storage.dropped import unlink_if_there
from broker.storage.errors import CorruptionError
from broker.storage.leader_epochs import UNKNOWN, LeaderEpochs
from broker.storage.producer_files import snapshot_offsets, snapshot_path
from broker.storage.producer_state import ProducerStateManager
from broker.storage.segment import Segment
from broker.storage.walk import BatchWalk


def good_snapshot(
    disk: Disk, folder: str, bases: Sequence[int], limit: int, expiration_ms: int, count_max: int
) -> tuple[int, ProducerStateManager] | None:
    """Return the newest usable snapshot at or below `limit`, as its offset and its state; None if
    there is none.

    An unreadable snapshot is removed. Snapshots above a damaged transaction index are skipped. In
    this case the batches are read again to find the aborted transactions, and this reading must
    start with the producer state from before the damage. A snapshot below the first segment cannot
    be used, because the batches after it are gone.
    """
    limit = min(limit, _first_damage(disk, folder, bases, limit))
    for offset in reversed(snapshot_offsets(disk, folder)):
        if not bases[0] <= offset <= limit:
            continue
        path = snapshot_path(folder, offset)
        try:
            entries = producer_snapshot.decode(disk.read_all(path))
        except ValueError:
            unlink_if_there(disk, path)
            continue
        used_ms = disk.modified_ms(path)
        return offset, producer_snapshot.restore(entries, expiration_ms, count_max, used_ms)
    return None


def _first_damage(disk: Disk, folder: str, bases: Sequence[int], limit: int) -> int:
    """Return the base offset of the first segment with an invalid transaction index, or `limit`."""
    for number, base_offset in enumerate(bases):
        segment = Segment(disk, folder, base_offset, 0, 0)
        if base_offset >= limit or not disk.exists(segment.txn_index.path):
            continue
        next_base = bases[number + 1] if number + 1 < len(bases) else limit
        try:
            data = disk.read_all(segment.txn_index.path)
            if not data:
                raise ValueError("the transaction index file has no entries")
            txn_index.decode(data, base_offset, next_base)
        except ValueError:
            return base_offset
    return limit


def remove_stray_snapshots(
    disk: Disk, folder: str, bases: Sequence[int], log_end_offset: int
) -> None:
    """Remove the snapshots beyond the log's end, and keep only those at segment starts and the
    newest one."""
    offsets = snapshot_offsets(disk, folder)
    newest = max((one for one in offsets if bases[0] <= one <= log_end_offset), default=-1)
    for offset in offsets:
        if offset != newest and (offset not in bases or offset > log_end_offset):
            unlink_if_there(disk, snapshot_path(folder, offset))


def adopt(
    segment: Segment, end_offset: int, epochs: LeaderEpochs, *, is_active: bool, has_gaps: bool
) -> None:
    """Use a segment with its index files. Raises CorruptionError if the files do not fit the
    segment.

    The batches from the last index entry on are checked. The first of them must be the batch of
    this entry, and no batch after it may need an index entry of its own. The last batch must end
    with the file and at `end_offset`, which is the start of the next segment or the end of the log.
    Their leader epochs must be in the epoch file.
    """
    segment.adopt_indexes(end_offset)
    index, times = segment.index, segment.time_index
    start = index.positions[-1] if index.positions else 0
    newest_ms = times.timestamps[-1] if times.timestamps else -1
    newest_offset = times.offsets[-1] if times.offsets else 0
    walk = BatchWalk(segment.file, start, segment.size_bytes)
    since_entry, next_offset, largest_ms = 0, segment.base_offset, newest_ms
    has_untimed = False
    for header in walk:
        if index.offsets and not since_entry:
            if header.last_offset != segment.base_offset + index.offsets[-1]:
                raise CorruptionError(
                    segment.log_path,
                    walk.position,
                    "the last entry of the offset index does not fit the batch at this position",
                )
        elif since_entry > segment.interval_bytes:
            raise CorruptionError(
                segment.log_path,
                walk.position,
                "the offset index lacks entries for the batches from here on",
            )
        if epochs.epoch_of(header.last_offset) not in (header.partition_leader_epoch, UNKNOWN[0]):
            reason = f"leader-epoch-checkpoint lacks epoch {header.partition_leader_epoch}"
            raise CorruptionError(segment.log_path, walk.position, reason)
        since_entry += header.size_bytes
        next_offset = header.last_offset + 1
        has_untimed = has_untimed or header.max_timestamp < 0
        if header.max_timestamp > largest_ms:
            largest_ms = header.max_timestamp
            newest_offset = header.last_offset - segment.base_offset
    is_complete = next_offset == end_offset or (has_gaps and next_offset < end_offset)
    if walk.fault is not None or not is_complete or (largest_ms > newest_ms and not is_active):
        reason = walk.fault or "the indexes do not fit the batches"
        raise CorruptionError(segment.log_path, walk.position, reason)
    first_ms = -1
    if segment.size_bytes:
        first_ms = next(iter(BatchWalk(segment.file, 0, segment.size_bytes))).max_timestamp
        has_untimed = has_untimed or first_ms < 0
    segment.adopted(
        next_offset, first_ms, largest_ms, newest_offset, since_entry, has_untimed=has_untimed
    )
