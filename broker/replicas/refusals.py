"""Handles disk errors of appends.

The client must retry, because a full disk can have room later. A failed disk does not recover while
this process runs. So the process stops, as after a failed fsync, and its supervisor notices the
failure.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.metrics.metrics import Metrics
from broker.storage.errors import DiskError
from protocol.types import TopicPartition

WriteFailed = Callable[[TopicPartition, DiskError, int], None]
"""A function that gets the partition whose append was rejected, the error, and the wall time in
milliseconds."""


def note_refusals(metrics: Metrics, die: Callable[[str], object]) -> WriteFailed:
    """Return a function that counts rejected appends, and ends the process if the disk has
    failed."""

    def write_failed(topic_partition: TopicPartition, error: DiskError, now_ms: int) -> None:
        metrics.write_failed(topic_partition, error, now_ms)
        if error.is_gone:
            die(f"the disk has failed: {error}")

    return write_failed
