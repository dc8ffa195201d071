"""A serving broker: its periodic work, and what happens when it loses a leadership.

Room: node. `broker` starts and closes the parts. While the broker runs, this module does the work
that concerns several parts.
"""

from __future__ import annotations

from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.node.listeners import Listeners
from broker.node.parts import BrokerParts
from broker.node.replication import Replication
from broker.replicas.housekeeping import Housekeeping
from broker.replicas.replica import Replica
from protocol.errors import ErrorCode

SESSION_SWEEP_MS = 1_000

RETRY_MS = 2_000
"""How often refused disk work is tried again: shards, folders, markers and tombstones."""


class Serving:
    """The parts of one broker at work."""

    _house: Housekeeping
    """Set by `keep`."""

    def __init__(
        self, parts: BrokerParts, listeners: Listeners, replication: Replication | None
    ) -> None:
        """`replication` is None if the cluster has no other broker."""
        self._parts = parts
        self._listeners = listeners
        self._replication = replication
        parts.replicas.report_to(self)

    def keep(self, house: Housekeeping) -> None:
        """Register the periodic jobs, once all partitions are open."""
        self._house = house
        parts = self._parts
        parts.metadata.snapshotter.trim_with(house)
        config, clock = parts.settings.config, parts.clock
        sessions, warnings = self._listeners.sessions, parts.metrics.warnings
        house.repeat(SESSION_SWEEP_MS, lambda: sessions.sweep(clock.monotonic_ms()))
        house.repeat(SESSION_SWEEP_MS, lambda: warnings.close_due(clock.monotonic_ms()))
        house.repeat(RETRY_MS, self._retry)
        house.repeat(
            config.offsets_retention_check_interval_ms,
            lambda: parts.groups.expire(clock.now_ms()),
        )
        house.repeat(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            parts.transactions.abort_overdue,
        )
        house.repeat(
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            parts.transactions.expire,
        )

    def _retry(self) -> None:
        """Try again the work that the disk has refused."""
        parts = self._parts
        parts.groups.load_again()
        parts.transactions.load_again()
        parts.groups.retry()
        parts.transactions.retry()
        # The created partitions can include shards.
        parts.replicas.retry(lambda: parts.metadata.image, self.led_late)

    def led_late(self) -> None:
        """Update the coordinators after partitions became led here without a metadata commit."""
        self._parts.groups.follow()
        self._parts.transactions.follow()

    def lost(self, replica: Replica) -> None:
        """Stop serving a partition that is no longer led here, within the same turn."""
        parts = self._parts
        if replica.topic == OFFSETS_TOPIC:
            parts.groups.resigned(replica)
        elif replica.topic == TRANSACTIONS_TOPIC:
            parts.transactions.resigned(replica)
        for readers in replica.readable:
            readers.lost(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def on_time(self, now_ms: int) -> int:
        """Run the jobs that are due by the monotonic clock. Return the next deadline."""
        parts, house = self._parts, self._house
        parts.waits.expire(now_ms)
        parts.groups.on_time(now_ms)
        house.run_due(now_ms)
        deadlines = (
            parts.waits.next_deadline_ms,
            parts.groups.next_deadline_ms,
            house.next_deadline_ms,
        )
        return min(one for one in deadlines if one is not None)

    def stop(self) -> None:
        """Read nothing more, answer parked fetches and waiting group members, and sync."""
        for session in list(self._listeners.sessions.open):
            session.stop_reading()
        self._parts.fetches.complete_all()
        if self._replication is not None:
            self._replication.complete_all()
        self._parts.groups.stop()
        self._parts.replicas.flush_all()
