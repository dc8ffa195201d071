"""What the opening of a data folder has found.

Floor: storage. Plain data.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.storage.dropped import DroppedFiles
from protocol.types import TopicPartition


@dataclass(slots=True)
class OpenReport:
    """What opening found, for the log and for `/status`."""

    was_clean: bool
    dropped: DroppedFiles | None = None
    """Left-overs of deletions, to be unlinked in a thread."""
    truncated: list[tuple[TopicPartition, int, str]] = field(default_factory=list)
    """Torn tails that were cut: partition, bytes, what was wrong with the first of them."""
    offline: dict[TopicPartition, str] = field(default_factory=dict)
    """Partitions whose data is damaged below the durable floor, with the reason."""
