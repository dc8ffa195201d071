"""Which segments a topic's settings no longer keep, and how a log gives them up.

Floor: storage. Only whole segments go, oldest first, and none that the high watermark has not
passed. First the log begins behind them (`expire`), then a checkpoint says so, then they are
dropped (`drop_below`).
"""

from __future__ import annotations

from collections.abc import Callable

from broker.config import LogConfig
from broker.storage.dropped import DroppedFiles
from broker.storage.log import Log
from broker.storage.segment import Segment
from broker.storage.segments import Segments

AgeOf = Callable[[int, int], int]
"""How old a record of this date is at this time; a clock that was set makes no record older."""


def age_by_date(date_ms: int, now_ms: int) -> int:
    """The age by a wall clock that was never set."""
    return now_ms - date_ms


def expire(log: Log, now_ms: int, age_of: AgeOf = age_by_date) -> bool:
    """Move the log's start past the segments that the topic's settings no longer keep.

    Returns whether there are files to be dropped; `drop_below` does that once a checkpoint
    has the new start, lest the next start take them for lost. A log whose every record is
    too old rolls first, so that an idle topic empties as well.
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
    """Drop the segments that end at or below an offset which the log starts at for good."""
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
    """How many segments from the oldest on may go.

    All of them, the active one included, may be counted; the caller then rolls first, so that the
    log goes on in an empty segment. An empty active segment always stays.
    """
    left_bytes = sum(segment.size_bytes for segment in segments)
    for count, segment in enumerate(segments):
        is_empty = segment.next_offset == segment.base_offset
        if is_empty and count < len(segments) - 1 and config.is_deleted:
            # A cleaning has left nothing of it.
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
