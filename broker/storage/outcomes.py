"""The results of an append and of a read.

This module has only data classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from broker.config import LogConfig
from broker.storage.disk import FileRegion


@dataclass(frozen=True, slots=True)
class CheckedRecords:
    """The result of a successful check of all records in a client's batch."""

    under: LogConfig
    """The topic's settings against which the batch was validated."""
    max_timestamp_ms: int
    """The largest timestamp that the records themselves have; -1 without records. The header can
    have another value."""


@dataclass(slots=True)
class AppendResult:
    """The offsets of an appended batch.

    A duplicate gets the offsets of its first copy, and is not staged.
    """

    base_offset: int
    last_offset: int
    is_duplicate: bool
    log_append_time_ms: int
    """The time of the append; -1 unless the topic stamps records itself."""


@dataclass(slots=True)
class ReadResult:
    """The result of a read: whole batches in one file, or no batches.

    `region` is None if no batch is readable below the limit. The first batch can begin below the
    requested offset, or above it after a gap left by cleaning. Clients skip the records before the
    requested offset.
    """

    region: FileRegion | None
    size_bytes: int
    limit_offset: int = 0
    """The end of the segment or the read limit. Every batch of the region has a lower offset."""
    readable_bytes: int = 0
    """The number of bytes that are readable at this offset in the same segment below the limit,
    whatever the requested size."""
    ends_with_segment: bool = False
    """True if the limit is in a later segment, so that waiting for more records adds no bytes to
    this read."""


NOTHING = ReadResult(None, 0)


NO_SEGMENT = -1
"""The `segment_base` of a batch that does not begin a segment."""


class StagedBatch(NamedTuple):
    """A batch that has its offsets and its position in a segment, but is not yet written."""

    batch: memoryview
    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int
    leader_epoch: int
    segment_base: int
    """The base offset of the segment that this batch begins, or NO_SEGMENT."""
