"""Which segments a topic's settings no longer keep.

Floor: storage. Pure. Only whole segments go, oldest first, and none that the high watermark has
not passed.
"""

from __future__ import annotations

from broker.config import LogConfig
from broker.storage.segment import Segment
from broker.storage.segments import Segments


def expired_count(
    segments: Segments,
    config: LogConfig,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
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
        if not config.is_deleted or not _is_expired(segment, config, left_bytes, now_ms):
            return count
    return len(segments)


def _is_expired(segment: Segment, config: LogConfig, left_bytes: int, now_ms: int) -> bool:
    if 0 <= config.retention_bytes <= left_bytes:
        return True
    return config.retention_ms >= 0 and now_ms - segment.newest_ms > config.retention_ms
