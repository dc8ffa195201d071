"""What follows when the disk refuses a write.

Floor: replicas. Whoever wanted the write is told to retry: a full disk may have room later. One
that has failed will not come back under this process: it ends, as after a failed sync, so that
whoever watches over it sees more than retries.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.metrics.metrics import Metrics
from broker.storage.errors import DiskError
from protocol.types import TopicPartition

WriteFailed = Callable[[TopicPartition, DiskError, int], None]
"""Hears of a partition whose write was refused, why, and when (wall clock, ms)."""


def note_refusals(metrics: Metrics, die: Callable[[str], object]) -> WriteFailed:
    """Counts refusals, and ends the process when the disk is gone."""

    def write_failed(topic_partition: TopicPartition, error: DiskError, now_ms: int) -> None:
        metrics.write_failed(topic_partition, error, now_ms)
        if error.is_gone:
            die(f"the disk has failed: {error}")

    return write_failed
