"""The periodic work of a serving broker, and its reaction to the loss of a leadership.

`broker` starts and closes the parts. While the broker runs, this module does the work that concerns
several parts.
"""

from __future__ import annotations

from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.node.listeners import Listeners
from broker.node.parts import BrokerParts
from broker.node.replication import Replication
from broker.replicas.copies import CopyState
from broker.replicas.housekeeping import Housekeeping
from broker.replicas.replica import Replica
from protocol.errors import ErrorCode
from protocol.types import TopicPartition

SESSION_SWEEP_MS = 1_000

RETRY_MS = 2_000
"""The interval in milliseconds at which work is retried that the disk has refused: shards, folders,
markers and tombstones."""


class Serving:
    """One serving broker."""

    _house: Housekeeping
    """The periodic jobs. `keep` sets them."""

    def __init__(
        self, parts: BrokerParts, listeners: Listeners, replication: Replication | None
    ) -> None:
        """`replication` is None for a broker that is configured alone."""
        self._parts = parts
        self._listeners = listeners
        self._replication = replication
        parts.replicas.report_to(self)

    @property
    def is_out_of_room(self) -> bool:
        """True if copies of replicas pause, because the disk is nearly full."""
        return self._replication is not None and self._replication.is_out_of_room

    @property
    def copies(self) -> dict[TopicPartition, CopyState]:
        """The copies of replicas that this broker fetches."""
        return {} if self._replication is None else self._replication.copies

    def keep(self, house: Housekeeping) -> None:
        """Register the periodic jobs. Call this when all partitions are open."""
        self._house = house
        parts = self._parts
        parts.metadata.snapshotter.trim_with(house)
        config, clock = parts.settings.config, parts.clock
        sessions, warnings = self._listeners.sessions, parts.metrics.warnings
        house.repeat(SESSION_SWEEP_MS, lambda: sessions.sweep(clock.monotonic_ms()))
        house.repeat(SESSION_SWEEP_MS, lambda: warnings.close_due(clock.monotonic_ms()))
        house.repeat(SESSION_SWEEP_MS, lambda: parts.audit.close_due(clock.monotonic_ms()))
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
        """Retry the work that the disk has refused, and the listeners whose ports were taken."""
        parts = self._parts
        parts.groups.load_again()
        parts.transactions.load_again()
        parts.groups.retry()
        parts.transactions.retry()
        # A created partition can belong to a coordinator, so `led_late` follows.
        parts.replicas.retry(self.led_late)
        self._listeners.open_to_users(parts.metadata.image.credentials)

    def led_late(self) -> None:
        """Update the coordinators, because this broker began to lead partitions without a metadata
        commit."""
        self._parts.groups.follow()
        self._parts.transactions.follow()

    def lost(self, replica: Replica) -> None:
        """End the coordinator and the waiting fetches of a partition that this broker no longer
        leads."""
        parts = self._parts
        if replica.topic == OFFSETS_TOPIC:
            parts.groups.resigned(replica)
        elif replica.topic == TRANSACTIONS_TOPIC:
            parts.transactions.resigned(replica)
        for readers in replica.readable:
            readers.lost(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def on_time(self, now_ms: int) -> int:
        """Run the jobs that are due at `now_ms` (monotonic). Return the next deadline."""
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
        """Read no more requests, answer parked fetches and waiting group members, and fsync all
        logs."""
        for session in list(self._listeners.sessions.open):
            session.stop_reading()
        self._parts.fetches.complete_all()
        if self._replication is not None:
            self._replication.complete_all()
        self._parts.groups.stop()
        self._parts.audit.close_all()
        self._parts.replicas.flush_all()
