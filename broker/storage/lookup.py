"""Finds records by timestamp exactly, and the first batch of a log.

The indexes narrow the search, and the headers identify the batch. Only this batch is read and, if
needed, decompressed. If a client has produced a batch that cannot be read, the search uses the
header of the batch. If a batch is damaged on the disk, CorruptionError is raised.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from broker.storage.errors import CorruptionError
from broker.storage.segment import Segment
from broker.storage.segments import Segments
from broker.storage.walk import BatchWalk
from protocol.errors import WireError
from protocol.wire.records import (
    HEADER_BYTES,
    BatchHeader,
    check_crc,
    iterate_places,
    read_header,
)


@dataclass(slots=True, frozen=True)
class TimestampOffset:
    """A record found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def first_not_older(
    segments: Iterable[Segment], timestamp_ms: int, start_offset: int, limit_offset: int
) -> TimestampOffset | None:
    """Return the first record in [start, limit) whose timestamp is `timestamp_ms` or later."""
    for segment in segments:
        if segment.largest_timestamp_ms < timestamp_ms or segment.next_offset <= start_offset:
            continue
        older = segment.time_index.offset_before(timestamp_ms)
        for position, header in _batches(segment, segment.index.position_before(older)):
            if header.base_offset >= limit_offset:
                return None
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            for offset, stamp_ms in _records(segment, position, header, start_offset):
                if stamp_ms >= timestamp_ms:
                    if offset >= limit_offset:
                        return None
                    return TimestampOffset(offset, stamp_ms, header.partition_leader_epoch)
    return None


def largest_timestamp(
    segments: Iterable[Segment], start_offset: int, limit_offset: int
) -> TimestampOffset | None:
    """Return the first record in [start, limit) with the largest timestamp in this range."""
    best: tuple[int, int, Segment] | None = None
    for segment in segments:
        if segment.next_offset <= start_offset or segment.base_offset >= limit_offset:
            continue
        timestamp_ms, last_offset = segment.largest_timestamp_ms, segment.largest_timestamp_offset
        if segment.base_offset < start_offset or segment.next_offset > limit_offset:
            timestamp_ms, last_offset = _largest_between(segment, start_offset, limit_offset)
        if timestamp_ms >= 0 and (best is None or timestamp_ms > best[0]):
            best = timestamp_ms, last_offset, segment
    if best is None:
        return None
    timestamp_ms, last_offset, segment = best
    for position, header in _batches(segment, segment.locate(last_offset)):
        for offset, stamp_ms in _records(segment, position, header, start_offset):
            if stamp_ms == timestamp_ms:
                return TimestampOffset(offset, timestamp_ms, header.partition_leader_epoch)
        # The producer has set a header timestamp that none of the batch's records has.
        return TimestampOffset(last_offset, timestamp_ms, header.partition_leader_epoch)
    return None


def first_batch_offset(segments: Segments, start_offset: int) -> int:
    """Return the base offset of the batch that contains the log start; the log start if no batch
    does."""
    segment = segments.at(start_offset)
    position = segment.locate(start_offset)
    if position >= segment.size_bytes:
        return start_offset
    return min(read_header(segment.file.read(HEADER_BYTES, position)).base_offset, start_offset)


def _largest_between(segment: Segment, start_offset: int, limit_offset: int) -> tuple[int, int]:
    """Return the largest timestamp in part of a segment, with its offset or its batch's last one.

    A query on the growing active segment covers only a part of it. So the headers are read from the
    last time index entry on, whose timestamp covers all earlier batches. If all those batches are
    below `start_offset`, the headers are read from `start_offset` on instead.
    """
    largest, position = _known_largest(segment, limit_offset)
    if segment.base_offset < start_offset and not _begins_within(segment, largest, start_offset):
        largest, position = (-1, -1), segment.locate(start_offset)
    for at, header in _batches(segment, position):
        if header.base_offset >= limit_offset:
            break
        found = header.max_timestamp, header.last_offset
        if header.base_offset < start_offset or header.last_offset >= limit_offset:
            inside = [
                (stamp_ms, offset)
                for offset, stamp_ms in _records(segment, at, header, start_offset)
                if offset < limit_offset
            ]
            found = max(inside, key=lambda one: one[0], default=(-1, -1))
        if found[0] > largest[0]:
            largest = found
    return largest


def _known_largest(segment: Segment, limit_offset: int) -> tuple[tuple[int, int], int]:
    """Return the known largest timestamp below the limit, and the position to continue from.

    Each entry of the time index is added together with an entry of the offset index, and covers
    every batch up to it. So a newer batch before the next time entry begins after the
    second-to-last offset entry.
    """
    base_offset, times, index = segment.base_offset, segment.time_index, segment.index
    if segment.largest_timestamp_offset < limit_offset:
        known = segment.largest_timestamp_ms, segment.largest_timestamp_offset
        return known, segment.size_bytes
    count = bisect_left(times.offsets, limit_offset - base_offset)
    known = -1, -1
    if count:
        known = times.timestamps[count - 1], base_offset + times.offsets[count - 1]
    newer = segment.largest_timestamp_offset - base_offset
    if count < len(times):
        newer = times.offsets[count]
    return known, index.position_before(newer - 1)


def _begins_within(segment: Segment, largest: tuple[int, int], start_offset: int) -> bool:
    """Return True if the newest known batch has no record below the start."""
    if largest[1] < start_offset:
        return False
    newest = islice(_batches(segment, segment.locate(largest[1])), 1)
    return any(header.base_offset >= start_offset for _, header in newest)


def _batches(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and the header of each batch from `position` on.

    Raises CorruptionError if a batch is damaged.
    """
    walk = BatchWalk(segment.file, position, segment.size_bytes)
    for header in walk:
        yield walk.position, header
    if walk.fault is not None:
        raise CorruptionError(segment.log_path, walk.position, walk.fault)


def _records(
    segment: Segment, position: int, header: BatchHeader, start_offset: int
) -> Iterator[tuple[int, int]]:
    """Yield offset and timestamp of each record of a batch, from `start_offset` on.

    A client can have stored a batch that no codec can decompress, or that is too large to
    decompress (decision 0015). From the first unreadable record on, only the header is known. So
    one record with the header's largest timestamp is yielded for all unreadable records, and a
    search by time never skips a record that can match. Raises CorruptionError if the bytes are not
    what was stored.
    """
    batch = segment.file.read(header.size_bytes, position)
    unknown_offset = header.base_offset
    try:
        for offset, timestamp_ms, _ in iterate_places(batch):
            unknown_offset = offset + 1
            if offset >= start_offset:
                yield offset, timestamp_ms
    except WireError as error:
        if not check_crc(batch):
            raise CorruptionError(segment.log_path, position, str(error)) from error
        unknown_offset = max(unknown_offset, start_offset)
        if unknown_offset <= header.last_offset:
            yield unknown_offset, header.max_timestamp
