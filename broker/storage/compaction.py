"""Decides whether the cleaning of a log is worthwhile, and plans it.

This module is pure. Only closed segments are cleaned, and only records that cannot change any more.
They are below the recovery point, the high watermark and the last stable offset, and older than
`min.compaction.lag.ms`. A cleaning is worthwhile when the dirty share of the bytes reaches
`min.cleanable.dirty.ratio`, or when a record has waited for `max.compaction.lag.ms` (KIP-354).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.config import LogConfig
from broker.settings import INT_MAX, LONG_MAX
from broker.storage.cleaner import CleaningPlan
from broker.storage.indexes import OFFSET_ENTRY_BYTES
from broker.storage.known_producer import KnownProducer
from broker.storage.producer_state import ProducerStateManager
from broker.storage.segment import Segment
from broker.storage.segments import Segments

GROUP_SEGMENTS_MAX = 64
"""The largest number of segments that are merged into one, because each segment costs some renames
in the loop."""


@dataclass(slots=True, frozen=True)
class Dirt:
    """The cleanable part of a log."""

    segments: Sequence[Segment]
    """The segments that a cleaning processes, the clean ones first."""
    first_dirty_offset: int
    limit_offset: int
    """The offset below which no record can change any more."""
    ratio: float
    """The dirty share of the bytes. It is above 1 if the cleaning must not wait any longer."""


def dirt_of(
    segments: Segments, config: LogConfig, cleaned_offset: int, limit_offset: int, now_ms: int
) -> Dirt | None:
    """Return the part of the log to clean, below `limit_offset`; None if cleaning is not
    worthwhile.
    """
    first_dirty_offset = max(cleaned_offset, segments.start_offset)
    cleanable: list[Segment] = []
    dirty_bytes = clean_bytes = 0
    oldest_ms = LONG_MAX
    for segment in segments.closed():
        if segment.next_offset > limit_offset:
            break
        is_dirty = segment.next_offset > first_dirty_offset
        lag_ms = config.min_compaction_lag_ms
        if is_dirty and lag_ms > 0 and segment.newest_ms > now_ms - lag_ms:
            break
        cleanable.append(segment)
        if is_dirty:
            dirty_bytes += segment.size_bytes
            first_ms = segment.first_timestamp_ms
            oldest_ms = min(oldest_ms, first_ms if first_ms >= 0 else segment.created_ms)
        else:
            clean_bytes += segment.size_bytes
    if not dirty_bytes:
        return None
    ratio = dirty_bytes / (dirty_bytes + clean_bytes)
    if now_ms - oldest_ms > config.max_compaction_lag_ms:
        ratio += 1
    elif ratio < config.min_cleanable_dirty_ratio:
        return None
    return Dirt(cleanable, first_dirty_offset, limit_offset, ratio)


def groups_of(segments: Sequence[Segment], config: LogConfig) -> list[list[Segment]]:
    """Return groups of neighbouring segments that fit into one segment, by size, index and
    offsets."""
    groups: list[list[Segment]] = []
    size_bytes = index_bytes = 0
    for segment in segments:
        entries = segment.size_bytes // max(config.index_interval_bytes, 1) + 1
        fits = groups and (
            size_bytes + segment.size_bytes <= config.segment_bytes
            and index_bytes + entries * OFFSET_ENTRY_BYTES <= config.segment_index_bytes
            and segment.next_offset - groups[-1][0].base_offset <= INT_MAX
            and len(groups[-1]) < GROUP_SEGMENTS_MAX
        )
        if not fits:
            groups.append([])
            size_bytes = index_bytes = 0
        groups[-1].append(segment)
        size_bytes += segment.size_bytes
        index_bytes += entries * OFFSET_ENTRY_BYTES
    return groups


def plan_of(
    folder: str,
    segments: Segments,
    config: LogConfig,
    dirt: Dirt,
    state: ProducerStateManager,
    map_bytes: int,
    now_ms: int,
) -> CleaningPlan:
    """Collect all values that a cleaning needs, so that its thread does not access the log
    again.
    """
    return CleaningPlan(
        folder,
        groups_of(dirt.segments, config),
        dirt.first_dirty_offset,
        [entry for segment in segments for entry in segment.aborted()],
        {
            producer_id: (producer.producer_epoch, _telling(producer, dirt.limit_offset))
            for producer_id, producer in state.producers.items()
        },
        map_bytes,
        config.index_interval_bytes,
        config.delete_retention_ms,
        now_ms,
    )


def _telling(producer: KnownProducer, limit_offset: int) -> set[int]:
    last_offsets = [one.last_offset for one in producer.batches if one.last_offset >= 0]
    return {*last_offsets[-1:], *[one for one in last_offsets if one < limit_offset][-1:]}
