"""Which brokers hold the partitions of a topic.

Floor: controller. Pure: chance and load come in as `start`.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def check_replication_factor(replication_factor: int, broker_ids: Sequence[int]) -> None:
    """Refuse a number of replicas that there are no brokers for."""
    if not 1 <= replication_factor <= len(broker_ids):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor}, but there are {len(broker_ids)} brokers",
        )


def check_assignment(replicas: Sequence[int], broker_ids: Sequence[int]) -> None:
    """Refuse a list of replicas that a client has chosen by hand and that cannot be."""
    if not replicas or len(set(replicas)) != len(replicas):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"replicas {list(replicas)} are empty or repeated"
        )
    unknown = sorted(set(replicas) - set(broker_ids))
    if unknown:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas {unknown} are no brokers of this cluster",
        )
