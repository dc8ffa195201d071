"""Compaction: a log's closed segments written anew with only the newest record of each key.

Floor: storage. A `CleaningJob` is planned in the loop and performed in a thread, slice by slice. It
reads files that nobody writes any more and makes new ones beside them, named `.cleaned`; `commit`
renames these to `.swap`, from where the log takes them over, or the next start does. The first of
two passes notes the newest offset of every key in the dirty stretch, the second rewrites everything
below its end, in groups of segments that fit into one.
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
"""Read in one slice: some milliseconds of work, for a thread shares the processor with the loop."""


@dataclass(slots=True, frozen=True)
class CleaningPlan:
    """What a cleaning needs to know, as of the moment it was planned."""

    folder: str
    groups: Sequence[Sequence[Segment]]
    """Closed segments, oldest first; the segments of a group become one."""
    first_dirty_offset: int
    aborted: Sequence[AbortedEntry]
    last_batches: LastBatches
    map_bytes: int
    interval_bytes: int
    delete_retention_ms: int
    now_ms: int


@dataclass(slots=True)
class CleanedGroup:
    """Segments and the one that takes their place."""

    old: Sequence[Segment]
    new: Segment


class CleaningJob:
    """One cleaning under way.

    `perform` until it returns True, then `commit`, both in a thread; then `adopt_cleaned` in the
    loop (`log_cleaning`). Instead of the last two, `abandon` removes what was made. Raises
    DiskError, and CorruptionError for a batch that is not what was written: then nothing has been
    changed.
    """

    def __init__(self, disk: Disk, plan: CleaningPlan) -> None:
        self._disk = disk
        self._plan = plan
        self._newest = OffsetMap(plan.map_bytes)
        self._steps = self._run()
        self.done: list[CleanedGroup] = []
        """Groups that came out smaller or otherwise changed, oldest first."""

    @property
    def end_offset(self) -> int:
        """Everything below has been cleaned."""
        return self._newest.end_offset

    def perform(self) -> bool:
        """Do one slice; returns whether that was the last."""
        return next(self._steps, True)

    def commit(self) -> None:
        """Make it certain that the new segments will take the place of the old ones.

        A group's log file goes last: without it a start throws the others away. Groups go in the
        order of the log, for a tombstone may go only after what it has deleted. Snapshots go
        before: a transaction that is open in one may lose its marker now.
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
        """Remove what was made, as far as the disk lets us; the next start removes the rest."""
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
        """Note the keys of the dirty stretch until it ends or the memory does."""
        newest, plan = self._newest, self._plan
        # The marker of what ended below is not met again: its producer would abort for ever.
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
                # The rules leave a batch alone that cannot be read.
                pass
        newest.end_offset = header.last_offset + 1
        return True

    def _clean(self, group: Sequence[Segment], rules: CleaningRules) -> Iterator[bool]:
        """Write one group anew; a segment that stays as it was is left alone."""
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
        """Make the files of a new segment durable under their first names."""
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
        """The whole batches of a segment, checked, some at a time."""
        file = self._disk.open(segment.log_path)
        position = 0
        while position < segment.size_bytes:
            size_bytes = min(SLICE_BYTES, segment.size_bytes - position)
            batches = self._whole(segment, file, position, size_bytes)
            if not batches:
                head = read_header(file.read(HEADER_BYTES, position))
                batches = self._whole(segment, file, position, head.size_bytes)
            if not batches:
                raise CorruptionError(segment.log_path, position, "a batch is cut short")
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
            # A rewritten batch gets a checksum of its own: it must not make damage look right.
            if not check_crc(batch):
                reason = "the checksum of a batch does not match"
                raise CorruptionError(segment.log_path, position, reason)
            position += len(batch)
        return batches


def _made(segment: Segment) -> list[str]:
    """The final names of what a cleaning makes: the log file first, then the indexes."""
    return segment.paths()[:4]
