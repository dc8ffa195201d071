"""What a log says of an append and of a read.

Floor: storage. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from broker.config import LogConfig
from broker.storage.disk import FileRegion


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at all records of a client's batch has found, which is good."""

    under: LogConfig
    """The topic's settings by which it was judged."""
    max_timestamp_ms: int
    """The largest of the records, whatever the header says; -1 without any."""


@dataclass(slots=True)
class Appended:
    """Where a batch stands. A duplicate stands where its first copy does; nothing was staged."""

    base_offset: int
    last_offset: int
    is_duplicate: bool
    log_append_time_ms: int
    """-1 unless the topic stamps records itself."""


@dataclass(slots=True)
class LogRead:
    """What lies at an offset: whole batches in one file, perhaps none yet.

    `region` is None when nothing is readable below the limit. The first batch may begin below the
    offset asked for, or above it where a cleaning has left a gap; clients skip the records they
    did not ask for.
    """

    region: FileRegion | None
    size_bytes: int
    limit_offset: int = 0
    """No batch of the region has an offset as high as this: it is where its segment ends."""
    readable_bytes: int = 0
    """What lies there in the same segment below the limit, whatever size was asked for."""
    ends_with_segment: bool = False
    """Whether the limit is in a later segment: waiting adds nothing to what lies here."""


NOTHING = LogRead(None, 0)


NO_SEGMENT = -1
"""The base of a segment, where a batch begins none."""


class Staged(NamedTuple):
    """A batch that has its place and is not written yet."""

    batch: memoryview
    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int
    leader_epoch: int
    segment_base: int
    """The base offset of the segment that it begins, or NO_SEGMENT."""
