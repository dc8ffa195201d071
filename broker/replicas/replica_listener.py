"""The listeners for leaderships and for partitions with several replicas.

A listener is called at once, in the call that causes the event. A partition with a single replica
notifies no listener, because it has no followers and its appends must stay cheap.
"""

from __future__ import annotations

from typing import Protocol

from broker.replicas.replica import Replica
from broker.replication.partition import RoleChange


class LeadershipListener(Protocol):
    """The interface to the object that is notified of this broker's leaderships
    (`node/serving`)."""

    def lost(self, replica: Replica) -> None:
        """Handle that this broker does not lead the partition any more."""

    def led_late(self) -> None:
        """Handle a leadership that began later than its commit, because the log was being
        truncated."""


class NoLeaderships:
    """Ignores leaderships, until `Replicas.report_to` names an object that is notified of them."""

    def lost(self, replica: Replica) -> None:
        """Ignore the event."""

    def led_late(self) -> None:
        """Ignore the event."""


class BaseReplicaListener:
    """A `ReplicaListener` that ignores all events. Subclasses override the methods that they
    need."""

    def changed(self, replica: Replica, change: RoleChange) -> None:
        """Ignore the event."""

    def gone(self, replica: Replica) -> None:
        """Ignore the event."""

    def written(self, replica: Replica) -> None:
        """Ignore the event."""

    def durable_advanced(self, replica: Replica) -> None:
        """Ignore the event."""

    def moved(self, replica: Replica) -> None:
        """Ignore the event."""

    def damaged(self, replica: Replica) -> None:
        """Ignore the event."""
