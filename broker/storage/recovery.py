"""Opening a log: trust what a clean stop vouches for, check the rest, rebuild what is derived.

Floor: storage. After a clean stop the segments are taken as they are. After any other, every batch
from the recovery point on is checked, checksum included. The first one that is short or wrong
there is a torn tail: it was never vouched for, so it is cut, with all behind it. Anything wrong
below the recovery point is damage: `CorruptionError`, and the files stay as they are. Zeros behind
the last batch are neither: a file may have been stretched ahead of its batches.

Producers are known from the newest snapshot that nothing speaks against. Segments below it are
taken with their index files, once these have proved to fit; those above it are walked from batch
to batch, which makes producers, leader epochs and indexes anew. Index files that say otherwise are
written anew. Opening twice gives the same log.
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
from broker.storage.producer_state import ProducerState
from broker.storage.segment import BASE_DIGITS, DELETED_SUFFIX, LOG_SUFFIX, SUFFIXES, Segment
from broker.storage.swap import finish_swaps
from broker.storage.txn_index import AbortedEntry
from broker.storage.walk import BatchWalk, end_of_data
from protocol.errors import WireError
from protocol.wire.records import BatchHeader

WIDE = INT_MAX // 2
"""A gap behind which a segment begins (`log_writer`) has more offsets than are ever unsynced."""


@dataclass(slots=True, frozen=True)
class LoadRules:
    """What is known about a log before its files are read."""

    log_start_offset: int
    recovery_point: int
    epochs: Sequence[tuple[int, int]] | None
    """Entries of the epoch file; without any that can be used, all segments are walked."""
    interval_bytes: int
    expiration_ms: int
    producer_count_max: int
    is_clean: bool
    now_ms: int
    has_gaps: bool = False
    """Whether the log has ever been cleaned: below the recovery point offsets may be missing."""
    has_gap_mark: bool = False
    """Whether offsets may be missing anywhere (`gap_mark`)."""
    is_point_known: bool = True
    """Whether the recovery point is one: a person may have removed its file, for it was damaged."""
    is_start_known: bool = True
    """Whether the log's start is one. Without its file a log starts with its first segment."""


@dataclass(slots=True)
class Loaded:
    """A log as opening found and left it."""

    segments: list[Segment]
    leader_epochs: LeaderEpochs
    producer_state: ProducerState
    log_start_offset: int
    recovery_point: int
    has_gap_mark: bool
    truncated_bytes: int = 0
    truncated_reason: str = ""


def load(disk: Disk, folder: str, rules: LoadRules) -> Loaded:
    """Open the segments of a partition folder; an empty folder becomes an empty log.

    Raises CorruptionError for damage, DiskError when the disk refuses.
    """
    if not rules.is_start_known:
        base_offset = min(_base_offsets(disk.list_folder(folder)), default=0)
        rules = replace(rules, log_start_offset=max(rules.log_start_offset, base_offset))
    return _Loading(disk, folder, rules).run()


def _base_offsets(names: Sequence[str]) -> list[int]:
    """The base offsets of the segments among the names of files, rising."""
    return sorted(
        int(name[:BASE_DIGITS])
        for name in names
        if name.endswith(LOG_SUFFIX) and name[:-4].isdigit() and len(name) == BASE_DIGITS + 4
    )


def _whole(rules: LoadRules) -> Sequence[tuple[int, int]]:
    """The epochs from the log's start on, none where the file tells only of those above.

    It is written before a new start is, which a kill may take back. Where offsets are missing the
    first batch may lie above the start.
    """
    epochs = rules.epochs or ()
    is_short = bool(epochs) and epochs[0][1] > rules.log_start_offset
    return () if is_short and not (rules.has_gaps or rules.has_gap_mark) else epochs


class _Loading:
    """One opening under way; `expected` is the offset that the next batch must have."""

    def __init__(self, disk: Disk, folder: str, rules: LoadRules) -> None:
        self.disk = disk
        self.folder = folder
        self.rules = rules
        self.expected = 0
        self.known_epochs = _whole(rules)
        self.epochs = LeaderEpochs(self.known_epochs)
        self.last_epoch = -1
        self.producers = ProducerState(rules.expiration_ms, rules.producer_count_max)
        self.known_below = 0
        """Where `producers` stood before anything was walked: below it batches tell no news."""
        self.segments: list[Segment] = []
        self.truncated_bytes = 0
        self.truncated_reason = ""

    def run(self) -> Loaded:
        rules = self.rules
        bases = self._tidy()
        log_start_offset = rules.log_start_offset
        self.expected = bases[0]
        self._recall_producers(bases)
        for number, base_offset in enumerate(bases):
            next_base = bases[number + 1] if number + 1 < len(bases) else None
            fault = self._load_segment(base_offset, next_base)
            if fault is not None:
                self._cut(fault, bases[len(self.segments) :])
                break
        if self.expected < log_start_offset and self._start_may_be_lost:
            self._begin_at_start()
        if self.expected < max(rules.recovery_point, log_start_offset):
            raise CorruptionError(
                self.folder,
                self.segments[-1].size_bytes,
                f"the log ends at offset {self.expected}, but everything below "
                f"{max(rules.recovery_point, log_start_offset)} was on the disk",
            )
        bases = [segment.base_offset for segment in self.segments]
        remove_stray_snapshots(self.disk, self.folder, bases, self.expected)
        self._settle()
        self.epochs.truncate_from_end(self.expected)
        self.epochs.truncate_from_start(log_start_offset)
        self.epochs.change_count = int(self.epochs.entries != list(rules.epochs or ()))
        self.producers.expire(rules.now_ms)
        return Loaded(
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
        """Remove left-overs and return the base offsets of the segments that count."""
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
                f"the log begins at offset {bases[0]}, but it was kept from "
                f"{self.rules.log_start_offset} on",
            )
        if bases:
            return bases
        base_offset = self.rules.log_start_offset
        if (self.rules.recovery_point or base_offset) and not self._start_may_be_lost:
            raise CorruptionError(self.folder, 0, "the log's segments are missing")
        self._new_segment(base_offset)
        return [base_offset]

    @property
    def _start_may_be_lost(self) -> bool:
        """Whether the log's start was moved beyond what had been synced (`flush=interval`).

        Then nothing from the start on was vouched for, and what is below it is not wanted.
        """
        rules = self.rules
        return not rules.is_clean and rules.recovery_point < rules.log_start_offset

    def _new_segment(self, base_offset: int) -> Segment:
        rules = self.rules
        segment = Segment(self.disk, self.folder, base_offset, rules.interval_bytes, rules.now_ms)
        segment.create()
        return segment

    def _begin_at_start(self) -> None:
        """Go on in an empty segment at the log's start: all that is left lies below it.

        The offsets in between were given, and perhaps read; they must not be given again.
        """
        self.truncated_reason += f" the log ended at {self.expected}, below its start"
        for segment in self.segments:
            self.truncated_bytes += segment.size_bytes
            self._unlink_segment(segment.base_offset)
        self.expected = self.rules.log_start_offset
        self.segments = [self._new_segment(self.expected)]
        rules = self.rules
        self.producers = ProducerState(rules.expiration_ms, rules.producer_count_max)

    def _recall_producers(self, bases: Sequence[int]) -> None:
        """Begin with the newest snapshot below everything that must be walked anyway."""
        rules = self.rules
        limit = rules.recovery_point
        if not rules.is_clean:
            # What is checked is also made anew, so the producers must be known at its beginning.
            limit = max((base for base in bases if base <= limit), default=bases[0])
        found = good_snapshot(
            self.disk, self.folder, bases, limit, rules.expiration_ms, rules.producer_count_max
        )
        if found is not None:
            self.known_below, self.producers = found

    def _load_segment(self, base_offset: int, next_base: int | None) -> str | None:
        """Add one segment; returns what is wrong at `expected`, or None."""
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
                # Walked like the others, which writes the index files anew.
                self.segments[-1] = segment = Segment(
                    self.disk, self.folder, base_offset, rules.interval_bytes, modified_ms
                )
            else:
                self.expected = segment.next_offset
                return None
        # Also where another segment follows that was never begun: what a full disk took of a batch
        # stands in this one then.
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
            # The snapshot vouches for the file; what comes behind it is appended.
            segment.txn_index.recall(self.known_below, segment.next_offset)
        if walk.fault and end_of_data(segment.file, walk.position, size_bytes) > walk.position:
            return walk.fault
        if not is_last:
            segment.finish_time_index()
        return None

    def _may_begin_at(self, base_offset: int) -> bool:
        """Whether a segment may begin behind the end of the one before it.

        Above the recovery point none does: the end of the other is lost, for it was not synced yet.
        What follows a gap too wide for an index is all that begins so.
        """
        rules = self.rules
        is_above = base_offset > rules.recovery_point and rules.is_point_known
        if is_above and base_offset - self.expected <= WIDE:
            return False
        return self._may_skip_to(base_offset)

    def _may_skip_to(self, offset: int) -> bool:
        """Whether a cleaning may have left the gap: it never comes above the recovery point.

        What a follower has received may have gaps anywhere.
        """
        rules = self.rules
        if self.expected >= offset:
            return False
        is_below = offset <= rules.recovery_point or not rules.is_point_known
        return rules.has_gap_mark or (rules.has_gaps and is_below)

    def _replay(self, segment: Segment, position: int, header: BatchHeader) -> None:
        """Tell the producers of a batch that is being walked over."""
        now_ms = segment.created_ms
        if not header.is_control:
            self.producers.replay(header, header.base_offset, header.max_timestamp, now_ms)
            return
        try:
            marker = read_marker_at(segment.file, position, header)
        except WireError as error:
            raise CorruptionError(segment.log_path, position, f"a marker: {error}") from error
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

    def _cut(self, fault: str, later: Sequence[int]) -> None:
        """Cut a torn tail, or raise when what is wrong had been vouched for."""
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
        """Make what was found last: data on the disk, index files right, memory free."""
        rules = self.rules
        is_vouched_for = True
        for segment in self.segments:
            is_last = segment is self.segments[-1]
            was_cut = is_last and bool(self.truncated_reason)
            if not rules.is_clean and (segment.next_offset > rules.recovery_point or was_cut):
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
