"""One partition, as the metadata log describes it.

This module is pure. `image` has the partitions of each topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from broker.metadata.records import (
    LEADER_UNCHANGED,
    RECOVERED,
    RECOVERY_UNCHANGED,
    PartitionChangeRecord,
)
from protocol.reassignment import original_replicas, target_replicas
from protocol.types import Uuid

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition: its replicas, its leader, and its epochs.

    `eligible_leader_replicas` have all records that were ever committed, and may lead without being
    in sync. They left the in-sync replicas when these were already too few for a commit (KIP-966).
    `last_known_elr` were eligible until their disks could have lost records. They only help an
    operator who must choose a leader.
    """

    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    directories: tuple[Uuid, ...] = ()
    """The ids of the directories that have the replicas, in the order of `replicas`. Empty if an
    older record did not name them."""

    @property
    def directory_by_node(self) -> Mapping[int, Uuid]:
        """The directory of each replica, by node id; empty if they are unknown."""
        return dict(zip(self.replicas, self.directories, strict=bool(self.directories)))

    @property
    def is_moving(self) -> bool:
        """True while a reassignment adds or removes replicas."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def original_replicas(self) -> tuple[int, ...]:
        """The replicas that the reassignment did not add, in the order of `replicas`."""
        return original_replicas(self.replicas, self.adding_replicas)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas at the end of the reassignment, in their order."""
        if not self.removing_replicas:
            return self.replicas
        return target_replicas(self.replicas, self.removing_replicas)

    def changed(self, record: PartitionChangeRecord) -> PartitionImage:
        """Return the partition after a change. Fields that are None in the record keep their
        values."""
        is_elected = record.leader != LEADER_UNCHANGED
        recovery = record.leader_recovery_state
        return PartitionImage(
            replicas=_or(record.replicas, self.replicas),
            in_sync_replicas=_or(record.isr, self.in_sync_replicas),
            leader=record.leader if is_elected else self.leader,
            leader_epoch=self.leader_epoch + is_elected,
            partition_epoch=self.partition_epoch + 1,
            eligible_leader_replicas=_or(
                record.eligible_leader_replicas, self.eligible_leader_replicas
            ),
            last_known_elr=_or(record.last_known_elr, self.last_known_elr),
            leader_recovery_state=(
                self.leader_recovery_state if recovery == RECOVERY_UNCHANGED else recovery
            ),
            removing_replicas=_or(record.removing_replicas, self.removing_replicas),
            adding_replicas=_or(record.adding_replicas, self.adding_replicas),
            directories=_or(record.directories, self.directories),
        )


def _or(changed: list[T] | None, unchanged: tuple[T, ...]) -> tuple[T, ...]:
    return unchanged if changed is None else tuple(changed)
