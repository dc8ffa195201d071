"""Handles disk errors of appends.

Room: replicas. The client must retry, because a full disk can have room later. A failed disk does
not recover under this process, so the process stops, as after a failed fsync. Then its supervisor
sees more than retries.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.metrics.metrics import Metrics
from broker.storage.errors import DiskError
from protocol.types import TopicPartition

WriteFailed = Callable[[TopicPartition, DiskError, int], None]
"""Gets the partition whose append was rejected, the error, and the time (wall clock, ms)."""


def note_refusals(metrics: Metrics, die: Callable[[str], object]) -> WriteFailed:
    """Return a handler that counts rejected appends, and stops the process if the disk failed."""

    def write_failed(topic_partition: TopicPartition, error: DiskError, now_ms: int) -> None:
        metrics.write_failed(topic_partition, error, now_ms)
        if error.is_gone:
            die(f"the disk has failed: {error}")

    return write_failed
