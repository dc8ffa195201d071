"""Decides when the reassignment of a partition is complete, and what remains then (KIP-455).

This module is pure. Only `leadership.change` completes a reassignment, and it looks at every record
of a partition. So a reassignment ends in the first record in which its conditions hold.
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
    """Return the partition with another assignment; replicas that leave it leave all its sets."""
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
    """Return True if no replica must get in sync first."""
    return not awaited_replicas(
        partition.replicas,
        partition.adding_replicas,
        partition.removing_replicas,
        partition.in_sync_replicas,
    )


def _is_enough_left(partition: PartitionImage, min_isr: int) -> bool:
    """Return True if enough in-sync replicas stay for a commit. The target's size limits the
    minimum, because a smaller target could otherwise never be reached (KAFKA-15665)."""
    target = partition.target_replicas
    return len(within(partition.in_sync_replicas, target)) >= effective_min_isr(min_isr, target, ())


def takes_replicas_away(partition: PartitionImage) -> bool:
    """Return True if the end of a reassignment must begin a leader epoch.

    A fetch that a removed replica sent before could otherwise be taken for one of a later replica
    on the same broker. Clients also see by the epoch which metadata is newer.
    """
    return bool(partition.removing_replicas)


def completed(partition: PartitionImage) -> PartitionImage:
    """Return the partition at the end of its reassignment, before the election.

    Enough replicas are in sync, so no other replica is eligible.
    """
    target = partition.target_replicas
    known = partition.directory_by_node
    directories = tuple(known[one] for one in target if one in known)
    return replace(
        reassigned(partition, ReplicaAssignment(target, directories=directories)),
        eligible_leader_replicas=(),
        last_known_elr=(),
    )
