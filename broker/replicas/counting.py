"""How far what is written to the partitions held here counts: synced, in sync, told of.

Floor: replicas. Roles are another matter (`replicas`): here they are what they are. Whoever follows
a partition hears of a write before it is synced here, so that all sync at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from broker.replicas.flusher import Flusher
from broker.replicas.hearing import Hearer
from broker.replicas.replica import Replica
from broker.storage.log import Log
from broker.world import Clock


class Counting:
    """Counts for all partitions that are held here.

    `on_advance`, once it is set, hears of every high watermark that has moved.
    """

    def __init__(
        self,
        clock: Clock,
        flusher: Flusher,
        by_log: Mapping[Log, Replica],
        hearers: Sequence[Hearer],
    ) -> None:
        """`by_log` and `hearers` are those of `Replicas`, whatever they hold by now."""
        self.on_advance: Callable[[Replica], None] = _nobody_waits
        self._clock = clock
        self._flusher = flusher
        self._by_log = by_log
        self._hearers = hearers

    def written(self, replica: Replica) -> None:
        """Something has been written to the log: it counts now, or once it is synced."""
        if replica.is_shared:
            # Before the own sync: followers write and sync at the same time.
            for hearer in self._hearers:
                hearer.written(replica)
        log = replica.log
        if log.config.is_flushed_before_ack:
            self._flusher.mark(log)
            return
        self._durable_advanced(replica)
        if log.is_flush_due(self._clock.now_ms()):
            self._flusher.mark(log)

    def flushed(self, log: Log) -> None:
        """The log's recovery point has moved."""
        replica = self._by_log.get(log)
        if replica is not None:
            self._durable_advanced(replica)

    def _durable_advanced(self, replica: Replica) -> None:
        if replica.advance_durable():
            self._advanced(replica)
        if replica.is_shared:
            for hearer in self._hearers:
                hearer.durable_advanced(replica)

    def _advanced(self, replica: Replica) -> None:
        self.on_advance(replica)
        if replica.is_shared:
            for hearer in self._hearers:
                hearer.moved(replica)

    def learned(self, replica: Replica, high_watermark: int) -> None:
        """Its leader's high watermark is known."""
        if replica.learned(high_watermark):
            self._advanced(replica)

    def trimmed(self, replica: Replica) -> None:
        """The log begins elsewhere: records were deleted."""
        replica.state.trimmed(replica.log.log_start_offset)
        if replica.is_shared:
            for hearer in self._hearers:
                hearer.moved(replica)

    def flush_overdue(self, now_ms: int) -> None:
        """Sync the logs that their `flush.ms` or `flush.messages` asks for."""
        for replica in self._by_log.values():
            if replica.log.is_flush_due(now_ms):
                self._flusher.mark(replica.log)

    def flush_all(self) -> None:
        """Sync everything that is written, whatever its topic's settings."""
        for replica in self._by_log.values():
            if replica.log.recovery_point < replica.log.written_end_offset:
                self._flusher.mark(replica.log)

    def take_over(self, replica: Replica) -> None:
        """Its state may have moved the high watermark: bring that to the log, and tell of it."""
        if replica.take_over():
            self._advanced(replica)


def _nobody_waits(replica: Replica) -> None:
    """Before clients are served."""
