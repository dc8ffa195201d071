"""Decides when the reassignment of a partition is complete, and which replicas remain then
(KIP-455).

This module is pure. Only `leadership.change` completes a reassignment. It builds every record of a
partition, so a reassignment ends in the first record in which its conditions hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import RECOVERED
from protocol.reassignment import awaited_replicas, effective_min_isr
from protocol.types import Uuid


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The replicas of a partition, and those that a reassignment adds and removes. `directories`
    are in the order of `replicas`; empty if one of them is unknown."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    directories: tuple[Uuid, ...] = ()


def reassigned(partition: PartitionImage, to: ReplicaAssignment | None) -> PartitionImage:
    """Return the partition with another assignment. A replica that leaves the assignment also
    leaves the in-sync and the eligible replicas."""
    if to is None:
        return partition
    return replace(
        partition,
        replicas=to.replicas,
        adding_replicas=to.adding,
        removing_replicas=to.removing,
        directories=to.directories,
        in_sync_replicas=within(partition.in_sync_replicas, to.replicas),
        eligible_leader_replicas=within(partition.eligible_leader_replicas, to.replicas),
        last_known_elr=within(partition.last_known_elr, to.replicas),
    )


def within(replicas: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """Return the `replicas` that are also in `wanted`."""
    return tuple(one for one in replicas if one in wanted)


def is_complete(partition: PartitionImage, min_isr: int) -> bool:
    """Return True if a reassignment can be completed without a loss of acknowledged records.

    A leader that was elected uncleanly must finish its recovery first (KIP-704).
    """
    return (
        partition.is_moving
        and partition.leader_recovery_state == RECOVERED
        and _has_copied(partition)
        and _is_enough_left(partition, min_isr)
    )


def _has_copied(partition: PartitionImage) -> bool:
    """Return True if all replicas that must get in sync before the reassignment ends are in
    sync."""
    return not awaited_replicas(
        partition.replicas,
        partition.adding_replicas,
        partition.removing_replicas,
        partition.in_sync_replicas,
    )


def _is_enough_left(partition: PartitionImage, min_isr: int) -> bool:
    """Return True if enough in-sync replicas remain to commit records. The target's size limits the
    minimum, because a smaller target could otherwise never be reached (KAFKA-15665)."""
    target = partition.target_replicas
    return len(within(partition.in_sync_replicas, target)) >= effective_min_isr(min_isr, target, ())


def takes_replicas_away(partition: PartitionImage) -> bool:
    """Return True if the end of a reassignment must start a new leader epoch, because it removes
    replicas.

    Without a new epoch, the leader could take a late fetch of a removed replica for a fetch of a
    later replica on the same broker. The epoch also shows clients which metadata is newer.
    """
    return bool(partition.removing_replicas)


def completed(partition: PartitionImage) -> PartitionImage:
    """Return the partition at the end of its reassignment, before the election.

    Its set of eligible replicas is empty, because enough replicas are in sync.
    """
    target = partition.target_replicas
    known = partition.directory_by_node
    directories = tuple(known[one] for one in target if one in known)
    return replace(
        reassigned(partition, ReplicaAssignment(target, directories=directories)),
        eligible_leader_replicas=(),
        last_known_elr=(),
    )
