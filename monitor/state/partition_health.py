"""Counts of partitions by state, and their consequence for producers.

This module is pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from monitor.state.snapshot import PartitionView


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """Counts of partitions by state. An offline partition has no leader.

    The other counts do not include offline partitions.
    """

    total: int
    offline: int
    under_min_isr: int
    under_replicated: int

    @property
    def meaning(self) -> str:
        """The consequence of the counts for producers, as one sentence; empty if there are no
        partitions.
        """
        if not self.total:
            return ""
        if self.offline:
            what = f"{self.offline} of {self.total} partitions have no leader"
            return f"{what}: they can be neither written nor read."
        if self.under_min_isr:
            what = f"{self.under_min_isr} of {self.total} partitions have too few replicas in sync"
            return f"{what}: they can be read, and writes with acks=all are refused."
        if self.under_replicated:
            what = f"{self.under_replicated} of {self.total} partitions are under-replicated"
            return f"{what}, none is offline: writes and reads go on."
        return f"All {self.total} partitions have a leader and are in sync."


def health_of(partitions: Iterable[PartitionView]) -> PartitionHealth:
    """Count the partitions by state."""
    parts = list(partitions)
    led = [part for part in parts if part.leader is not None]
    return PartitionHealth(
        len(parts),
        len(parts) - len(led),
        sum(part.under_min_isr for part in led),
        sum(part.under_replicated for part in led),
    )
