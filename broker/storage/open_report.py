"""The result of opening a data folder.

This module has only data classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.storage.dropped import DroppedFiles
from protocol.types import TopicPartition


@dataclass(slots=True)
class OpenReport:
    """The logs that were opened, recovered or taken offline, for the log output and for
    `/status`.
    """

    was_clean: bool
    dropped: DroppedFiles | None = None
    """Files left over from deletions. Unlink them in a thread."""
    truncated: list[tuple[TopicPartition, int, str]] = field(default_factory=list)
    """The torn tails that were truncated: the partition, the bytes, and the fault of the first bad
    batch."""
    offline: dict[TopicPartition, str] = field(default_factory=dict)
    """Partitions whose data is damaged below the recovery point, with the reason."""
