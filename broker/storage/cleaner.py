"""Rewrites the closed segments of a compacted log with only the newest record of each key.

A `CleaningJob` is planned in the loop and performed in a thread, slice by slice. It reads closed
files and makes new ones in the same folder, named `.cleaned`. `commit` renames these to `.swap`.
Then the log uses them, or the next start does if the process ends before. The job makes two passes.
The first pass records the newest offset of every key in the dirty part, which was not cleaned yet.
The second pass rewrites all segments below the end of the dirty part. Each group of segments that
fit together into one segment becomes one segment.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from broker.storage import txn_index
from broker.storage.cleaning_rules import CleaningRules, LastBatches, TransactionFilter
from broker.storage.disk import Disk, DiskFile
from broker.storage.dropped import unlink_if_there
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.offset_map import OffsetMap
from broker.storage.producer_files import snapshot_offsets, snapshot_path
from broker.storage.segment import Segment
from broker.storage.swap import CLEANED_SUFFIX, SWAP_SUFFIX
from broker.storage.txn_index import AbortedEntry
from protocol.errors import WireError
from protocol.wire.records import (
    HEADER_BYTES,
    BatchHeader,
    check_crc,
    iterate_batches,
    iterate_records,
    read_header,
)

SLICE_BYTES = 256 * 1024
"""The number of bytes read in one slice.

It takes some milliseconds, because the thread shares the CPU with the loop.
"""


@dataclass(slots=True, frozen=True)
class CleaningPlan:
    """All values that a cleaning needs, as of the moment at which it was planned."""

    folder: str
    groups: Sequence[Sequence[Segment]]
    """The closed segments, oldest first. The segments of a group become one segment."""
    first_dirty_offset: int
    aborted: Sequence[AbortedEntry]
    last_batches: LastBatches
    map_bytes: int
    interval_bytes: int
    delete_retention_ms: int
    now_ms: int


@dataclass(slots=True)
class CleanedGroup:
    """A group of old segments, and the new segment that replaces them."""

    old: Sequence[Segment]
    new: Segment


class CleaningJob:
    """One cleaning in progress.

    Call `perform` until it returns True, then `commit`, both in a thread, then `adopt_cleaned` in
    the loop (`log_cleaning`). Instead of `commit` and `adopt_cleaned`, you can call `abandon`,
    which removes the new files. The methods raise DiskError, and CorruptionError for a damaged
    batch. After an error the log is unchanged.
    """

    def __init__(self, disk: Disk, plan: CleaningPlan) -> None:
        self._disk = disk
        self._plan = plan
        self._newest = OffsetMap(plan.map_bytes)
        self._steps = self._run()
        self.done: list[CleanedGroup] = []
        """The groups whose segments were rewritten, oldest first."""

    @property
    def end_offset(self) -> int:
        """The offset below which all records have been cleaned."""
        return self._newest.end_offset

    def perform(self) -> bool:
        """Do one slice of the work. Return True if it was the last slice."""
        return next(self._steps, True)

    def commit(self) -> None:
        """Make the replacement of the old segments by the new ones durable.

        The log file of a group is renamed last, because a start removes the group's other files if
        the log file is missing. Groups are committed in log order, because a tombstone must not be
        removed before the records that it deletes. Old snapshots are removed first, because a
        transaction that is open in a snapshot can lose its marker in the cleaning.
        """
        for offset in snapshot_offsets(self._disk, self._plan.folder) if self.done else ():
            if offset < self.end_offset:
                unlink_if_there(self._disk, snapshot_path(self._plan.folder, offset))
        for group in self.done:
            for path in reversed(_made(group.new)):
                self._disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        if self.done:
            self._disk.sync_folder(self._plan.folder)

    def abandon(self) -> None:
        """Remove the new files. If the disk refuses, the next start removes them."""
        self._steps.close()
        try:
            for group in self._plan.groups:
                for path in _made(group[0]):
                    for suffix in (CLEANED_SUFFIX, SWAP_SUFFIX):
                        unlink_if_there(self._disk, path + suffix)
        except DiskError:
            return

    def _run(self) -> Generator[bool, None, None]:
        plan = self._plan
        yield from self._map()
        transactions = TransactionFilter(plan.aborted)
        rules = CleaningRules(
            self._newest, transactions, plan.last_batches, plan.now_ms, plan.delete_retention_ms
        )
        for group in plan.groups:
            if group[0].base_offset >= self.end_offset:
                break
            yield from self._clean(group, rules)
        yield True

    def _map(self) -> Iterator[bool]:
        """Record the keys of the dirty part, until its end is reached or the memory for keys is
        full."""
        newest, plan = self._newest, self._plan
        # Skip transactions whose marker is below the dirty part. Otherwise the filter would never
        # see the marker, and would treat all later batches of the producer as aborted.
        coming = [one for one in plan.aborted if one.last_offset >= plan.first_dirty_offset]
        transactions = TransactionFilter(coming)
        for group in plan.groups:
            for segment in group:
                if segment.next_offset <= plan.first_dirty_offset:
                    newest.end_offset = segment.next_offset
                    continue
                for batches in self._batches(segment):
                    for header, batch in batches:
                        if not self._note(header, batch, transactions):
                            return
                    yield False
                newest.end_offset = segment.next_offset

    def _note(self, header: BatchHeader, batch: memoryview, txns: TransactionFilter) -> bool:
        newest = self._newest
        if header.is_control:
            txns.is_marker_idle(header, batch)
        elif not txns.is_aborted(header) and header.last_offset >= self._plan.first_dirty_offset:
            try:
                for record in iterate_records(batch):
                    if record.key is not None and not newest.put(record.key, record.offset):
                        newest.end_offset = record.offset
                        return False
            except WireError:
                # The cleaning keeps a batch that cannot be read, so its keys need not be recorded.
                pass
        newest.end_offset = header.last_offset + 1
        return True

    def _clean(self, group: Sequence[Segment], rules: CleaningRules) -> Iterator[bool]:
        """Rewrite one group. A single segment that would not change is left as it is."""
        first = group[0]
        new = Segment(
            self._disk,
            self._plan.folder,
            first.base_offset,
            self._plan.interval_bytes,
            group[-1].created_ms,
        )
        new.written_ms = group[-1].written_ms
        file = self._disk.open(new.log_path + CLEANED_SUFFIX, create=True)
        file.truncate(0)
        is_changed = len(group) > 1
        for segment in group:
            for batches in self._batches(segment):
                left: list[bytes | memoryview] = []
                position = new.size_bytes
                for header, batch in batches:
                    kept = rules.cleaned(header, batch)
                    is_changed = is_changed or kept is not batch
                    if kept is not None:
                        left.append(kept)
                        stamp_ms = header.max_timestamp
                        if kept is not batch:
                            stamp_ms = read_header(kept).max_timestamp
                        new.take(header.last_offset, len(kept), stamp_ms)
                if left:
                    file.write(left, position)
                yield False
        aborted, rules.transactions.kept = rules.transactions.kept, []
        if not is_changed:
            unlink_if_there(self._disk, new.log_path + CLEANED_SUFFIX)
            return
        for entry in aborted:
            new.txn_index.add(entry)
        self._finish(new, file)
        self.done.append(CleanedGroup(group, new))

    def _finish(self, new: Segment, file: DiskFile) -> None:
        """Make the files of a new segment durable under their `.cleaned` names."""
        new.finish_time_index()
        file.datasync()
        contents = new.index.encode(), new.time_index.encode(), txn_index.encode(new.aborted())
        for path, content in zip(_made(new)[1:], contents, strict=True):
            index_file = self._disk.open(path + CLEANED_SUFFIX, create=True)
            index_file.truncate(0)
            index_file.write([content], 0)
            index_file.datasync()
        new.indexes.written()
        new.txn_index.written()

    def _batches(self, segment: Segment) -> Iterator[list[tuple[BatchHeader, memoryview]]]:
        """Yield the whole batches of a segment, checked, some at a time."""
        file = self._disk.open(segment.log_path)
        position = 0
        while position < segment.size_bytes:
            size_bytes = min(SLICE_BYTES, segment.size_bytes - position)
            batches = self._whole(segment, file, position, size_bytes)
            if not batches:
                head = read_header(file.read(HEADER_BYTES, position))
                batches = self._whole(segment, file, position, head.size_bytes)
            if not batches:
                raise CorruptionError(
                    segment.log_path, position, "the batch is longer than the rest of the segment"
                )
            position += sum(len(batch) for _, batch in batches)
            yield batches

    def _whole(
        self, segment: Segment, file: DiskFile, position: int, size_bytes: int
    ) -> list[tuple[BatchHeader, memoryview]]:
        data = file.read(size_bytes, position)
        try:
            batches = list(iterate_batches(data))
        except WireError as error:
            raise CorruptionError(segment.log_path, position, str(error)) from error
        for _, batch in batches:
            # A rewritten batch gets a new checksum, so check the old one or damage would look
            # valid.
            if not check_crc(batch):
                reason = "the checksum of a batch does not match"
                raise CorruptionError(segment.log_path, position, reason)
            position += len(batch)
        return batches


def _made(segment: Segment) -> list[str]:
    """Return the final paths of a cleaning's files: the log file first, then the indexes."""
    return segment.paths()[:4]
