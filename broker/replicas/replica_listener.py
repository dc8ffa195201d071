"""The listener interface for partitions with several replicas. All calls come in the turn of the
event.

Room: replicas. A partition with a single replica notifies no listener: it has no followers, and its
hot path stays cheap.
"""

from __future__ import annotations

from typing import Protocol

from broker.replicas.replica import Replica
from broker.replication.partition import RoleChange


class LeadershipListener(Protocol):
    """Is notified of the leaderships of this broker (`node/serving`)."""

    def lost(self, replica: Replica) -> None:
        """The partition is not led here any more."""

    def led_late(self) -> None:
        """A leadership started later than its commit, because the log was being truncated."""


class NoLeaderships:
    """Ignores leaderships, until an object is named that follows them."""

    def lost(self, replica: Replica) -> None:
        """Ignore the event."""

    def led_late(self) -> None:
        """Ignore the event."""


class BaseReplicaListener:
    """A `ReplicaListener` that ignores all events. Subclasses override what they need."""

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
