"""Read the index files of a log file and compare them with the log file.

This module is pure. An offset index has entries (last offset of the batch at the position,
position). A time index has entries (timestamp, last offset of the batch that first reached it).
Zeros after the last entry are space that Kafka reserves in the index of the active segment.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from struct import Struct

from appliance.dump.scan import LogFinding, LogScan
from broker.storage import producer_snapshot, txn_index
from broker.storage.producer_snapshot import SnapshotEntry
from broker.storage.txn_index import AbortedEntry

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")


def offset_entries(data: bytes) -> list[tuple[int, int]]:
    """Return relative offsets and positions, without the zeros after the last entry."""
    whole = len(data) - len(data) % OFFSET_ENTRY.size
    return _without_room(list(OFFSET_ENTRY.iter_unpack(data[:whole])))


def time_entries(data: bytes) -> list[tuple[int, int]]:
    """Return timestamps and relative offsets, without the zeros after the last entry."""
    whole = len(data) - len(data) % TIME_ENTRY.size
    return _without_room(list(TIME_ENTRY.iter_unpack(data[:whole])))


def _without_room(entries: list[tuple[int, int]]) -> list[tuple[int, int]]:
    while entries and entries[-1] == (0, 0):
        entries.pop()
    return entries


def check_offset_index(file: str, data: bytes, scan: LogScan) -> Iterator[LogFinding]:
    """Check that every entry points at a batch and has the last offset of that batch."""
    if len(data) % OFFSET_ENTRY.size:
        yield LogFinding(file, None, f"{len(data)} bytes are not a whole number of entries")
    before = (-1, -1)
    for place, entry in enumerate(offset_entries(data)):
        relative, position = entry
        at = place * OFFSET_ENTRY.size
        if relative <= before[0] or position <= before[1]:
            yield LogFinding(file, at, f"entry {entry} does not rise above {before}")
        before = entry
        if not scan.is_readable and scan.positions and position > scan.positions[-1]:
            # The batch at this position cannot be read. The check of the log has already reported
            # that, so skip the entry.
            continue
        found = bisect_left(scan.positions, position)
        if found == len(scan.positions) or scan.positions[found] != position:
            yield LogFinding(file, at, f"no batch begins at position {position}")
        elif scan.last_offsets[found] != scan.base_offset + relative:
            yield LogFinding(
                file,
                at,
                f"Index offset: {scan.base_offset + relative}, log offset:"
                f" {scan.last_offsets[found]}",
            )


def check_time_index(
    file: str, data: bytes, scan: LogScan, *, is_closed: bool
) -> Iterator[LogFinding]:
    """Check that each entry has the largest timestamp up to its batch, and that its batch is the
    first with this timestamp.

    The last entry of a closed segment must have the largest timestamp of the segment.
    """
    if len(data) % TIME_ENTRY.size:
        yield LogFinding(file, None, f"{len(data)} bytes are not a whole number of entries")
    entries = time_entries(data)
    reached = list(accumulate(scan.max_timestamps, max))
    before = -1
    for place, (timestamp, relative) in enumerate(entries):
        at = place * TIME_ENTRY.size
        if timestamp <= before:
            yield LogFinding(file, at, f"timestamp {timestamp} does not rise above {before}")
        before = timestamp
        offset = scan.base_offset + relative
        if not scan.is_readable and offset >= scan.end_offset:
            continue
        found = bisect_left(scan.last_offsets, offset)
        if found == len(scan.last_offsets) or scan.last_offsets[found] != offset:
            yield LogFinding(file, at, f"no batch ends with offset {offset}")
        elif scan.max_timestamps[found] != timestamp:
            yield LogFinding(
                file,
                at,
                f"Index timestamp: {timestamp}, log timestamp: {scan.max_timestamps[found]}",
            )
        elif (first := bisect_left(reached, timestamp)) != found:
            since = scan.last_offsets[first]
            yield LogFinding(
                file, at, f"found offset {offset}, but the log has this time from offset {since} on"
            )
    if is_closed and scan.is_readable and scan.max_timestamp >= 0:
        last = entries[-1][0] if entries else -1
        if last != scan.max_timestamp:
            what = f"found the last time {last}, expected the log's largest, {scan.max_timestamp}"
            yield LogFinding(file, None, what)


def read_txn_index(data: bytes) -> list[AbortedEntry]:
    """Return the entries of a transaction index, unchecked. Raises ValueError."""
    return txn_index.decode(data, 0, 1 << 62)


def check_txn_index(file: str, data: bytes, scan: LogScan) -> Iterator[LogFinding]:
    """Check that each entry belongs to an abort marker of the log, and that each abort marker has
    an entry."""
    try:
        entries = txn_index.decode(data, scan.base_offset, max(scan.end_offset, scan.base_offset))
    except ValueError as error:
        yield LogFinding(file, None, str(error))
        return
    for place, entry in enumerate(entries):
        marker = scan.aborted.get(entry.last_offset)
        at = place * txn_index.ENTRY_BYTES
        if marker is None:
            yield LogFinding(file, at, f"offset {entry.last_offset} is not an abort marker")
            continue
        for what, told, known in (
            ("the producer", entry.producer_id, marker.producer_id),
            ("the first offset", entry.first_offset, marker.first_offset),
            ("the last stable offset", entry.last_stable_offset, marker.last_stable_offset),
        ):
            if known not in (None, told):
                where = f"of the transaction that ends at {entry.last_offset}"
                text = f"{what} {where} is {told} in the index, but {known} in the log"
                yield LogFinding(file, at, text)
    if scan.is_readable:
        indexed = {entry.last_offset for entry in entries}
        for offset in sorted(scan.aborted.keys() - indexed):
            yield LogFinding(file, None, f"the abort marker at offset {offset} has no entry")


def check_snapshot(
    file: str,
    data: bytes,
    offset: int,
    producers: Mapping[int, tuple[int, int]],
    first_offset: int,
) -> Iterator[LogFinding]:
    """Compare a producer snapshot at `offset` with each producer's last batch before it.

    `producers` has the producers of the batches from `first_offset` on. Older batches were not
    scanned.
    """
    try:
        entries = producer_snapshot.decode(data)
    except ValueError as error:
        yield LogFinding(file, None, str(error))
        return
    for producer_id, last in sorted(_last_of_each(entries).items()):
        if last.last_offset >= offset:
            what = f"producer {producer_id} has written offset {last.last_offset}"
            yield LogFinding(
                file, None, f"{what}, at or behind {offset}, which the file's name says"
            )
            continue
        known = producers.get(producer_id)
        if known is None or last.last_sequence < 0:
            continue
        if known != (last.last_sequence, last.last_offset):
            what = f"producer {producer_id}: last sequence and offset"
            told = (last.last_sequence, last.last_offset)
            yield LogFinding(file, None, f"{what} are {told} here and {known} in the log")


def _last_of_each(entries: Sequence[SnapshotEntry]) -> dict[int, SnapshotEntry]:
    last: dict[int, SnapshotEntry] = {}
    for entry in entries:
        before = last.get(entry.producer_id)
        if before is None or (entry.producer_epoch, entry.last_offset) >= (
            before.producer_epoch,
            before.last_offset,
        ):
            last[entry.producer_id] = entry
    return last
