"""Who hears of partitions that have several replicas, all of it in the turn in which it happens.

Floor: replicas. A partition with one replica tells nobody here: nothing follows it, and its hot
path pays for nothing.
"""

from __future__ import annotations

from typing import Protocol

from broker.replicas.replica import Replica
from broker.replication.partition import RoleChange


class Hearer(Protocol):
    """Followers, and what serves them."""

    def changed(self, replica: Replica, change: RoleChange) -> None:
        """A role has begun in which the log's ends are those of now; who waited knows."""

    def gone(self, replica: Replica) -> None:
        """The partition is held here no more."""

    def written(self, replica: Replica) -> None:
        """Something has been written; comes before the own sync of it begins."""

    def durable_advanced(self, replica: Replica) -> None:
        """More of the own log counts."""

    def moved(self, replica: Replica) -> None:
        """The high watermark, or where the log begins, has moved."""

    def damaged(self, replica: Replica) -> None:
        """The log has been found damaged; it stays in service until others lead."""


class Deaf:
    """Hears of everything and does nothing: for who needs only some of it."""

    def changed(self, replica: Replica, change: RoleChange) -> None:
        """Not of interest."""

    def gone(self, replica: Replica) -> None:
        """Not of interest."""

    def written(self, replica: Replica) -> None:
        """Not of interest."""

    def durable_advanced(self, replica: Replica) -> None:
        """Not of interest."""

    def moved(self, replica: Replica) -> None:
        """Not of interest."""

    def damaged(self, replica: Replica) -> None:
        """Not of interest."""
