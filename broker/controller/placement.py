"""Which brokers hold the partitions of a topic.

Floor: controller. Pure: chance and load come in as `start`.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.metadata.image import MetadataImage
from protocol.errors import ApiError, ErrorCode


def place(
    broker_ids: Sequence[int], partition_count: int, replication_factor: int, start: int
) -> list[list[int]]:
    """Replicas per partition, preferred leader first, dealt around the ring of brokers.

    Leaders go round robin from `start`; followers keep growing distances from their leader, so that
    the load of a broker that fails is shared by all others. Needs as many brokers as replicas.
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
    """The brokers that new partitions are placed on: those in service, if they are enough, else all
    that are registered, for one that restarts must not keep anybody from making a topic.

    Raises INVALID_REPLICATION_FACTOR.
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
    """Whether any of these replicas is on a broker in service, and can lead."""
    return any(image.brokers[one].is_active for one in replicas)


def check_assignment(replicas: Sequence[int], image: MetadataImage) -> None:
    """Refuse a list of replicas that a client has chosen by hand and that cannot be."""
    if not replicas or len(set(replicas)) != len(replicas):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"replicas {list(replicas)} are empty or repeated"
        )
    unknown = sorted(set(replicas) - image.brokers.keys())
    if unknown:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas {unknown} are no brokers of this cluster",
        )
    if not is_led_by_any(replicas, image):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"none of the replicas {list(replicas)} is on a broker in service",
        )
