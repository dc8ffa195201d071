"""A broker that serves: what it does by the clock, and when a partition is led by another.

Floor: node. `broker` starts and closes the parts; here is what goes on in between, over
several of them at once.
"""

from __future__ import annotations

from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.node.listeners import Listeners
from broker.node.parts import Parts
from broker.node.replication import Replication
from broker.replicas.housekeeping import Housekeeping
from broker.replicas.replica import Replica

SESSION_SWEEP_MS = 1_000

RETRY_MS = 2_000
"""How often what the disk has refused is tried again: shards, folders, markers and tombstones."""


class Serving:
    """The parts of one broker at work."""

    _house: Housekeeping
    """From `keep` on."""

    def __init__(self, parts: Parts, listeners: Listeners, replication: Replication | None) -> None:
        """`replication`: None for a broker that is alone."""
        self._parts = parts
        self._listeners = listeners
        self._replication = replication
        parts.replicas.on_led_late = self._follow

    def keep(self, house: Housekeeping) -> None:
        """All partitions are open: give housekeeping what it does not do of itself."""
        self._house = house
        parts, metadata = self._parts, self._parts.metadata
        metadata.snapshotter.trimmed = lambda offset: house.trim(metadata.log.log, offset)
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
        """Try again what the disk has refused."""
        parts = self._parts
        parts.groups.load_again()
        parts.transactions.load_again()
        parts.groups.retry()
        parts.transactions.retry()
        # A shard may be among what is made.
        parts.replicas.retry(lambda: parts.metadata.image, self._follow)

    def _follow(self) -> None:
        """Partitions have come to be led here, other than by a commit of the metadata."""
        self._parts.groups.follow()
        self._parts.transactions.follow()

    def lost(self, replica: Replica) -> None:
        """A partition is not led here any more: in the same turn nobody counts on it."""
        parts = self._parts
        if replica.topic == OFFSETS_TOPIC:
            parts.groups.resigned(replica)
        elif replica.topic == TRANSACTIONS_TOPIC:
            parts.transactions.resigned(replica)
        parts.fetches.lost(replica)

    def on_time(self, now_ms: int) -> int:
        """Do what is due by the monotonic clock; returns the next deadline."""
        parts, house = self._parts, self._house
        parts.waits.expire(now_ms)
        parts.fetches.expire(now_ms)
        parts.groups.on_time(now_ms)
        house.run_due(now_ms)
        deadlines = (
            parts.waits.next_deadline_ms,
            parts.fetches.next_deadline_ms,
            parts.groups.next_deadline_ms,
            house.next_deadline_ms,
        )
        return min(one for one in deadlines if one is not None)

    def stop(self) -> None:
        """Read no more, answer the fetches and group members that are parked, and sync."""
        for session in list(self._listeners.sessions.open):
            session.stop_reading()
        self._parts.fetches.complete_all()
        if self._replication is not None:
            self._replication.complete_all()
        self._parts.groups.stop()
        self._parts.replicas.counting.flush_all()
