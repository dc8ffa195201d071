"""Removes the segments that a topic's retention settings no longer keep.

Only whole segments are removed, oldest first, and only below the high watermark. First the log
start offset moves to the end of these segments (`expire`), then a checkpoint records the new log
start offset, then the segments are dropped (`drop_below`).
"""

from __future__ import annotations

from collections.abc import Callable

from broker.config import LogConfig
from broker.storage.dropped import DroppedFiles
from broker.storage.log import Log
from broker.storage.segment import Segment
from broker.storage.segments import Segments

AgeOf = Callable[[int, int], int]
"""A function that returns the age of a record with this date at this time.

A change of the system clock makes no record older.
"""


def age_by_date(date_ms: int, now_ms: int) -> int:
    """Return the age of a date by the wall clock, as if that clock had never been set."""
    return now_ms - date_ms


def expire(log: Log, now_ms: int, age_of: AgeOf = age_by_date) -> bool:
    """Move the log start offset past the segments that the topic's settings no longer keep.

    Returns True if there are files to drop. Call `drop_below` once a checkpoint has the new start
    offset, because otherwise the next start would report the removed files as lost. If every record
    of a log has expired, the log rolls first, so that an idle topic becomes empty too.
    """
    count = _expired_count(
        log.segments,
        log.config,
        log.log_start_offset,
        log.high_watermark,
        lambda date_ms: age_of(date_ms, now_ms),
    )
    has_staged = log.log_end_offset > log.written_end_offset
    if not count or log.keeps_segments or has_staged:
        return False
    if count == len(log.segments):
        log.roll(now_ms)
    log.start_at(max(log.log_start_offset, log.segments.base_of(count)))
    return True


def drop_below(log: Log, offset: int, now_ms: int) -> DroppedFiles | None:
    """Drop the segments that end at or below `offset`, a durable log start offset."""
    count = sum(segment.next_offset <= offset for segment in log.segments.closed())
    if not count or log.keeps_segments:
        return None
    paths, held = log.segments.drop_oldest(count)
    log.producer_files.dropped_below(log.segments.start_offset)
    due_ms = now_ms + log.config.file_delete_delay_ms
    return DroppedFiles(log.disk, paths, held=held, due_ms=due_ms)


def _expired_count(
    segments: Segments,
    config: LogConfig,
    log_start_offset: int,
    high_watermark: int,
    age_of: Callable[[int], int],
) -> int:
    """Return how many segments can be removed, counted from the oldest.

    The count can include all segments with the active one. The caller then rolls first, so that the
    log continues in an empty segment. An empty active segment always stays.
    """
    left_bytes = sum(segment.size_bytes for segment in segments)
    for count, segment in enumerate(segments):
        is_empty = segment.next_offset == segment.base_offset
        if is_empty and count < len(segments) - 1 and config.is_deleted:
            # Cleaning has removed all records of this segment, so it has no age.
            continue
        if is_empty or segment.next_offset > high_watermark:
            return count
        left_bytes -= segment.size_bytes
        if segment.next_offset <= log_start_offset and count < len(segments) - 1:
            continue
        if not config.is_deleted or not _is_expired(segment, config, left_bytes, age_of):
            return count
    return len(segments)


def _is_expired(
    segment: Segment, config: LogConfig, left_bytes: int, age_of: Callable[[int], int]
) -> bool:
    if 0 <= config.retention_bytes <= left_bytes:
        return True
    return config.retention_ms >= 0 and age_of(segment.newest_ms) > config.retention_ms
