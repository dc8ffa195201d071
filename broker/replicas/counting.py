"""Advances the watermarks of partitions when records become durable or replicated, and notifies
listeners.

Room: replicas. Roles do not change here; `replicas` changes them. Listeners are notified of an
append before it is fsynced here, so that followers fsync at the same time as the leader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from broker.replicas.flusher import Flusher
from broker.replicas.replica import Replica
from broker.replicas.replica_listener import ReplicaListener
from broker.storage.log import Log
from broker.world import Clock


class WatermarkListener(Protocol):
    """Is notified of high watermarks (`fetch/fetches`)."""

    def advanced(self, replica: Replica) -> None:
        """The high watermark has moved."""


class WatermarkTracker:
    """Advances the watermarks of all partitions of this broker.

    `report_to` names the reader of each replica whose high watermark has moved.
    """

    def __init__(
        self,
        clock: Clock,
        flusher: Flusher,
        by_log: Mapping[Log, Replica],
        listeners: Sequence[ReplicaListener],
    ) -> None:
        """`by_log` and `listeners` belong to `Replicas`, which changes them later."""
        self._readers: WatermarkListener | None = None
        self._clock = clock
        self._flusher = flusher
        self._by_log = by_log
        self._listeners = listeners

    def report_to(self, readers: WatermarkListener) -> None:
        """Notify this object of high watermarks from now on."""
        self._readers = readers

    def written(self, replica: Replica) -> None:
        """Note an append. It is durable after the fsync, or at once if the topic does not wait for
        one.
        """
        if replica.is_shared:
            # Before the fsync here, so that followers append and fsync at the same time.
            for listener in self._listeners:
                listener.written(replica)
        log = replica.log
        if log.config.is_flushed_before_ack:
            self._flusher.mark(log)
            return
        self._durable_advanced(replica)
        if log.is_flush_due(self._clock.now_ms()):
            self._flusher.mark(log)

    def flushed(self, log: Log) -> None:
        """Note that the log's recovery point has moved."""
        replica = self._by_log.get(log)
        if replica is not None:
            self._durable_advanced(replica)

    def _durable_advanced(self, replica: Replica) -> None:
        if replica.advance_durable():
            self._advanced(replica)
        if replica.is_shared:
            for listener in self._listeners:
                listener.durable_advanced(replica)

    def _advanced(self, replica: Replica) -> None:
        if self._readers is not None:
            self._readers.advanced(replica)
        if replica.is_shared:
            for listener in self._listeners:
                listener.moved(replica)

    def learned(self, replica: Replica, high_watermark: int) -> None:
        """Note the leader's high watermark, on a follower."""
        if replica.learned(high_watermark):
            self._advanced(replica)

    def trimmed(self, replica: Replica) -> None:
        """Note a new log start offset after records were deleted."""
        replica.state.trimmed(replica.log.log_start_offset)
        if replica.is_shared:
            for listener in self._listeners:
                listener.moved(replica)

    def flush_overdue(self, now_ms: int) -> None:
        """Fsync the logs whose `flush.ms` or `flush.messages` requires it."""
        for replica in self._by_log.values():
            if replica.log.is_flush_due(now_ms):
                self._flusher.mark(replica.log)

    def flush_all(self) -> None:
        """Fsync all logs, whatever the settings of their topics."""
        for replica in self._by_log.values():
            if replica.log.recovery_point < replica.log.written_end_offset:
                self._flusher.mark(replica.log)

    def take_over(self, replica: Replica) -> None:
        """Apply a moved high watermark to the log and notify the listeners."""
        if replica.take_over():
            self._advanced(replica)
