"""Chooses the brokers for the partitions of a topic.

This module is pure: the caller chooses `start` at random or by load.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.metadata.image import MetadataImage
from protocol.errors import ApiError, ErrorCode


def place(
    broker_ids: Sequence[int], partition_count: int, replication_factor: int, start: int
) -> list[list[int]]:
    """Return the replicas of each partition, the preferred leader first.

    Leaders go round robin from `start`. Followers have growing distances from their leader, so all
    other brokers share the load of a broker that fails. There must be at least as many brokers as
    replicas.
    """
    count = len(broker_ids)
    ring = sorted(broker_ids)
    placed = []
    for partition in range(partition_count):
        leader = (start + partition) % count
        shift = partition // count
        replicas = [ring[leader]]
        for follower in range(replication_factor - 1):
            distance = 1 + (shift + follower) % max(count - 1, 1)
            replicas.append(ring[(leader + distance) % count])
        placed.append(replicas)
    return placed


def candidates(replication_factor: int, image: MetadataImage) -> Sequence[int]:
    """Return the brokers for new partitions: those in service if they suffice, else all registered
    brokers.

    So a broker that restarts does not prevent new topics. Raises INVALID_REPLICATION_FACTOR if too
    few brokers are registered.
    """
    active = [one.node_id for one in image.brokers.values() if one.is_active]
    if 1 <= replication_factor <= len(active):
        return active
    if 1 <= replication_factor <= len(image.brokers):
        return list(image.brokers)
    raise ApiError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"replication factor {replication_factor}, but there are {len(image.brokers)} brokers",
    )


def is_led_by_any(replicas: Sequence[int], image: MetadataImage) -> bool:
    """Return whether any of these replicas is on a broker in service, so that the partition has a
    leader."""
    return any(image.brokers[one].is_active for one in replicas)


def check_assignment(replicas: Sequence[int], image: MetadataImage) -> None:
    """Refuse an invalid list of replicas that a client has chosen."""
    if not replicas or len(set(replicas)) != len(replicas):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"replicas {list(replicas)} are empty or repeated"
        )
    unknown = sorted(set(replicas) - image.brokers.keys())
    if unknown:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas {unknown} are not brokers of this cluster",
        )
    if not is_led_by_any(replicas, image):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"none of the replicas {list(replicas)} is on a broker in service",
        )
