"""Loads a log: trusts the files of a clean stop, checks all other data, and rebuilds derived files.

After a clean stop the segments are used as they are. After any other stop, every batch from the
recovery point on is checked, checksum included. The first incomplete or wrong batch in this part is
a torn tail. It was never durable, so it is truncated with everything after it. An error below the
recovery point is damage: `CorruptionError` is raised, and the files stay as they are. Zeros after
the last batch are neither a torn tail nor damage, because the broker extends files before it writes
batches into them.

The producer state comes from the newest usable snapshot. Segments below it are used with their
index files, once these are verified. Segments above it are read batch by batch, which rebuilds
producers, leader epochs and indexes. Index files that differ are rewritten. Loading twice gives the
same log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker.settings import INT_MAX
from broker.storage.adoption import adopt, good_snapshot, remove_stray_snapshots
from broker.storage.disk import Disk
from broker.storage.dropped import unlink_if_there
from broker.storage.errors import CorruptionError
from broker.storage.known_producer import LastMarker
from broker.storage.leader_epochs import LeaderEpochs
from broker.storage.markers import read_marker_at
from broker.storage.producer_state import ProducerStateManager
from broker.storage.segment import BASE_DIGITS, DELETED_SUFFIX, LOG_SUFFIX, SUFFIXES, Segment
from broker.storage.swap import finish_swaps
from broker.storage.txn_index import AbortedEntry
from broker.storage.walk import BatchWalk, end_of_data
from protocol.errors import WireError
from protocol.wire.records import BatchHeader

WIDE = INT_MAX // 2
"""The width of a gap above which a segment may begin after the gap (`log_writer`).

It is wider than any range of unsynced offsets.
"""


@dataclass(slots=True, frozen=True)
class LoadRules:
    """The facts about a log that are known before its files are read."""

    log_start_offset: int
    recovery_point: int
    epochs: Sequence[tuple[int, int]] | None
    """The entries of the epoch file; None if the file cannot be used, so that all segments are
    read."""
    interval_bytes: int
    expiration_ms: int
    producer_count_max: int
    is_clean: bool
    now_ms: int
    has_gaps: bool = False
    """True if the log has ever been cleaned: offsets below the recovery point can be missing."""
    has_gap_mark: bool = False
    """True if offsets can be missing anywhere (`gap_mark`)."""
    is_point_known: bool = True
    """False if the recovery point is unknown because an operator removed its damaged file."""
    is_start_known: bool = True
    """False if the log start offset is unknown, so that the log starts with its first segment."""


@dataclass(slots=True)
class LoadedLog:
    """A log in the state after loading."""

    segments: list[Segment]
    leader_epochs: LeaderEpochs
    producer_state: ProducerStateManager
    log_start_offset: int
    recovery_point: int
    has_gap_mark: bool
    truncated_bytes: int = 0
    truncated_reason: str = ""


def load(disk: Disk, folder: str, rules: LoadRules) -> LoadedLog:
    """Load the segments of a partition folder. A folder without segments becomes an empty log.

    Raises CorruptionError for damage and DiskError if the disk refuses.
    """
    if not rules.is_start_known:
        base_offset = min(_base_offsets(disk.list_folder(folder)), default=0)
        rules = replace(rules, log_start_offset=max(rules.log_start_offset, base_offset))
    return _Loading(disk, folder, rules).run()


def _base_offsets(names: Sequence[str]) -> list[int]:
    """Return the base offsets of the segments among these file names, in rising order."""
    return sorted(
        int(name[:BASE_DIGITS])
        for name in names
        if name.endswith(LOG_SUFFIX) and name[:-4].isdigit() and len(name) == BASE_DIGITS + 4
    )


def _whole(rules: LoadRules) -> Sequence[tuple[int, int]]:
    """Return the entries of the epoch file; empty if they do not reach back to the log start.

    The epoch file is written before the checkpoint with a new log start offset, so after a crash it
    can have only epochs above the old start. In a log with gaps this check is left out, because the
    first batch can be above the log start offset.
    """
    epochs = rules.epochs or ()
    is_short = bool(epochs) and epochs[0][1] > rules.log_start_offset
    return () if is_short and not (rules.has_gaps or rules.has_gap_mark) else epochs


class _Loading:
    """One load in progress. `expected` is the offset that the next batch must have."""

    def __init__(self, disk: Disk, folder: str, rules: LoadRules) -> None:
        self.disk = disk
        self.folder = folder
        self.rules = rules
        self.expected = 0
        self.known_epochs = _whole(rules)
        self.epochs = LeaderEpochs(self.known_epochs)
        self.last_epoch = -1
        self.producers = ProducerStateManager(rules.expiration_ms, rules.producer_count_max)
        self.known_below = 0
        """The offset of the snapshot in `producers`. Batches below it do not change the state."""
        self.segments: list[Segment] = []
        self.truncated_bytes = 0
        self.truncated_reason = ""

    def run(self) -> LoadedLog:
        rules = self.rules
        bases = self._tidy()
        log_start_offset = rules.log_start_offset
        self.expected = bases[0]
        self._recall_producers(bases)
        for number, base_offset in enumerate(bases):
            next_base = bases[number + 1] if number + 1 < len(bases) else None
            fault = self._load_segment(base_offset, next_base)
            if fault is not None:
                self._truncate_tail(fault, bases[len(self.segments) :])
                break
        if self.expected < log_start_offset and self._start_may_be_lost:
            self._begin_at_start()
        if self.expected < max(rules.recovery_point, log_start_offset):
            raise CorruptionError(
                self.folder,
                self.segments[-1].size_bytes,
                f"the log ends at offset {self.expected}, but its records up to offset "
                f"{max(rules.recovery_point, log_start_offset)} had been synced to the disk",
            )
        bases = [segment.base_offset for segment in self.segments]
        remove_stray_snapshots(self.disk, self.folder, bases, self.expected)
        self._settle()
        self.epochs.truncate_from_end(self.expected)
        self.epochs.truncate_from_start(log_start_offset)
        self.epochs.change_count = int(self.epochs.entries != list(rules.epochs or ()))
        self.producers.expire(rules.now_ms)
        return LoadedLog(
            self.segments,
            self.epochs,
            self.producers,
            log_start_offset,
            self.expected,
            rules.has_gap_mark,
            self.truncated_bytes,
            self.truncated_reason,
        )

    def _tidy(self) -> list[int]:
        """Remove left-over files, and return the base offsets of the valid segments."""
        finish_swaps(self.disk, self.folder)
        names = self.disk.list_folder(self.folder)
        bases = _base_offsets(names)
        for name in names:
            stem, _, suffix = name.partition(".")
            is_orphan = f".{suffix}" in SUFFIXES and stem.isdigit() and int(stem) not in bases
            if name.endswith((DELETED_SUFFIX, ".tmp")) or is_orphan:
                unlink_if_there(self.disk, f"{self.folder}/{name}")
        while len(bases) > 1 and bases[1] <= self.rules.log_start_offset:
            self._unlink_segment(bases.pop(0))
        if bases and bases[0] > self.rules.log_start_offset and self._start_may_be_lost:
            while bases:
                self._unlink_segment(bases.pop())
        if bases and bases[0] > self.rules.log_start_offset:
            raise CorruptionError(
                self.folder,
                0,
                f"the first segment begins at offset {bases[0]}, but the log start offset is "
                f"{self.rules.log_start_offset}: segments are missing",
            )
        if bases:
            return bases
        base_offset = self.rules.log_start_offset
        if (self.rules.recovery_point or base_offset) and not self._start_may_be_lost:
            raise CorruptionError(
                self.folder, 0, "the folder has no segments, but the log had synced records"
            )
        self._new_segment(base_offset)
        return [base_offset]

    @property
    def _start_may_be_lost(self) -> bool:
        """True if the log start offset is above all fsynced records (`flush=interval`).

        In this case no record from the start on was durable, and the records below the start are
        not needed.
        """
        rules = self.rules
        return not rules.is_clean and rules.recovery_point < rules.log_start_offset

    def _new_segment(self, base_offset: int) -> Segment:
        rules = self.rules
        segment = Segment(self.disk, self.folder, base_offset, rules.interval_bytes, rules.now_ms)
        segment.create()
        return segment

    def _begin_at_start(self) -> None:
        """Continue in an empty segment at the log start, because all remaining data is below it.

        The offsets up to the log start were assigned before and perhaps read, so they must not be
        assigned again.
        """
        self.truncated_reason += f" the log ended at {self.expected}, below its start"
        for segment in self.segments:
            self.truncated_bytes += segment.size_bytes
            self._unlink_segment(segment.base_offset)
        self.expected = self.rules.log_start_offset
        self.segments = [self._new_segment(self.expected)]
        rules = self.rules
        self.producers = ProducerStateManager(rules.expiration_ms, rules.producer_count_max)

    def _recall_producers(self, bases: Sequence[int]) -> None:
        """Load the newest snapshot below the first batch that must be read."""
        rules = self.rules
        limit = rules.recovery_point
        if not rules.is_clean:
            # The index files of checked segments are rebuilt, so the producer state at the start of
            # these segments is needed.
            limit = max((base for base in bases if base <= limit), default=bases[0])
        found = good_snapshot(
            self.disk, self.folder, bases, limit, rules.expiration_ms, rules.producer_count_max
        )
        if found is not None:
            self.known_below, self.producers = found

    def _load_segment(self, base_offset: int, next_base: int | None) -> str | None:
        """Add one segment, and check it as far as needed. Return None if the segment is valid,
        otherwise a description of its first fault, whose offset is then `self.expected`."""
        rules = self.rules
        if base_offset != self.expected and not self._may_begin_at(base_offset):
            return f"the next segment begins at {base_offset}, expected {self.expected}"
        self.expected = base_offset
        probe = Segment(self.disk, self.folder, base_offset, rules.interval_bytes, 0)
        modified_ms = self.disk.modified_ms(probe.log_path)
        segment = Segment(self.disk, self.folder, base_offset, rules.interval_bytes, modified_ms)
        self.segments.append(segment)
        is_checked = not rules.is_clean and (next_base is None or next_base > rules.recovery_point)
        end_offset = rules.recovery_point if next_base is None else next_base
        if not is_checked and end_offset <= self.known_below and self.known_epochs:
            try:
                adopt(
                    segment,
                    end_offset,
                    self.epochs,
                    is_active=next_base is None,
                    has_gaps=rules.has_gaps or rules.has_gap_mark,
                )
            except CorruptionError:
                # Read this segment batch by batch, which also rewrites its index files.
                self.segments[-1] = segment = Segment(
                    self.disk, self.folder, base_offset, rules.interval_bytes, modified_ms
                )
            else:
                self.expected = segment.next_offset
                return None
        # Also check this segment if the next one has no batch. In this case a write to a full disk
        # can have left part of a batch in this segment.
        above = None if rules.is_clean else rules.recovery_point
        return self._walk(segment, 0 if is_checked else above, next_base is None)

    def _walk(self, segment: Segment, checked_from: int | None, is_last: bool) -> str | None:
        size_bytes = self.disk.size_bytes(segment.log_path)
        walk = BatchWalk(segment.file, 0, size_bytes, checked_from=checked_from)
        is_recalled = False
        for header in walk:
            offset = header.base_offset
            if offset != self.expected and not self._may_skip_to(offset):
                return f"a batch begins at {offset}, expected {self.expected}"
            leader_epoch = header.partition_leader_epoch
            if leader_epoch < self.last_epoch:
                return f"leader epoch {leader_epoch} follows {self.last_epoch}"
            if leader_epoch > self.last_epoch:
                self.last_epoch = leader_epoch
                self.epochs.assign(leader_epoch, header.base_offset)
            last_offset = header.base_offset + header.last_offset_delta
            segment.take(last_offset, header.size_bytes, header.max_timestamp)
            if header.base_offset < self.known_below:
                is_recalled = True
            elif header.producer_id >= 0:
                self._replay(segment, walk.position, header)
            self.expected = last_offset + 1
        self.producers.transactions.keep()
        if is_recalled:
            # The snapshot means that the index file is complete below it. Later entries are
            # appended.
            segment.txn_index.recall(self.known_below, segment.next_offset)
        if walk.fault and end_of_data(segment.file, walk.position, size_bytes) > walk.position:
            return walk.fault
        if not is_last:
            segment.finish_time_index()
        return None

    def _may_begin_at(self, base_offset: int) -> bool:
        """Return True if a segment may begin above the end of the segment before it.

        Above the recovery point it must not, because then the end of the earlier segment was never
        fsynced and is lost. The only exception is a gap that is too wide for an index.
        """
        rules = self.rules
        is_above = base_offset > rules.recovery_point and rules.is_point_known
        if is_above and base_offset - self.expected <= WIDE:
            return False
        return self._may_skip_to(base_offset)

    def _may_skip_to(self, offset: int) -> bool:
        """Return True if cleaning can have left this gap, which it does only below recovery points.

        In a follower's log with a gap mark, gaps can be anywhere.
        """
        rules = self.rules
        if self.expected >= offset:
            return False
        is_below = offset <= rules.recovery_point or not rules.is_point_known
        return rules.has_gap_mark or (rules.has_gaps and is_below)

    def _replay(self, segment: Segment, position: int, header: BatchHeader) -> None:
        """Update the producer state with a batch that is being read."""
        now_ms = segment.created_ms
        if not header.is_control:
            self.producers.replay(header, header.base_offset, header.max_timestamp, now_ms)
            return
        try:
            marker = read_marker_at(segment.file, position, header)
        except WireError as error:
            raise CorruptionError(
                segment.log_path, position, f"unreadable transaction marker: {error}"
            ) from error
        if marker is None:
            return
        ended = self.producers.replay_marker(
            header.producer_id,
            header.producer_epoch,
            LastMarker(marker.coordinator_epoch, header.max_timestamp, header.last_offset),
            now_ms,
        )
        if ended is not None and not marker.is_commit:
            segment.txn_index.add(AbortedEntry(header.producer_id, *ended))

    def _truncate_tail(self, fault: str, later: Sequence[int]) -> None:
        """Truncate a torn tail, or raise CorruptionError if the damaged data was durable."""
        last = self.segments[-1]
        if self.rules.is_clean or self.expected < self.rules.recovery_point:
            raise CorruptionError(last.log_path, last.size_bytes, fault)
        self.truncated_reason = f"{last.log_path} at byte {last.size_bytes}: {fault}"
        end = end_of_data(last.file, last.size_bytes, last.file.size_bytes())
        self.truncated_bytes = end - last.size_bytes
        last.file.truncate(last.size_bytes)
        for base_offset in later:
            segment = Segment(self.disk, self.folder, base_offset, self.rules.interval_bytes, 0)
            self.truncated_bytes += self.disk.size_bytes(segment.log_path)
            self._unlink_segment(base_offset)

    def _settle(self) -> None:
        """Make the result durable, complete the index files, and free memory."""
        rules = self.rules
        is_vouched_for = True
        for segment in self.segments:
            is_last = segment is self.segments[-1]
            was_truncated = is_last and bool(self.truncated_reason)
            if not rules.is_clean and (segment.next_offset > rules.recovery_point or was_truncated):
                segment.file.datasync()
                is_vouched_for = False
            if segment.was_walked:
                segment.shrink_file()
                segment.indexes.compare_files()
                segment.txn_index.replace_file()
            if not is_last:
                segment.indexes.sync()
                segment.unload()
        if not is_vouched_for:
            self.disk.sync_folder(self.folder)

    def _unlink_segment(self, base_offset: int) -> None:
        for path in Segment(self.disk, self.folder, base_offset, 0, 0).paths():
            unlink_if_there(self.disk, path)
