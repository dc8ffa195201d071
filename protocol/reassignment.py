"""The roles of a partition's replicas during a reassignment (KIP-455).

This module is pure and used by all rooms. A reassignment adds replicas at its start and removes the
old ones at its end. Until the end the added replicas only copy records. So `min.insync.replicas`
and the check for under-replicated partitions (KIP-352) ignore them. All replicas except the added
ones are the *original* replicas.
"""

from collections.abc import Collection, Sequence

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
"""The settings of brokers that limit copies, sent and received, in bytes a second."""

LEADER_LIST = "leader.replication.throttled.replicas"
FOLLOWER_LIST = "follower.replication.throttled.replicas"
"""The settings of topics that name the replicas whose copies are limited."""


def original_replicas(replicas: Sequence[int], adding: Collection[int]) -> tuple[int, ...]:
    """Return the replicas that the reassignment did not add, in the order of the assignment."""
    return tuple(one for one in replicas if one not in adding)


def election_order(
    replicas: Sequence[int], adding: Collection[int], removing: Collection[int]
) -> tuple[int, ...]:
    """Return the replicas in the order in which they are elected.

    Replicas that a reassignment adds come last, so that it can be cancelled without an election.
    Replicas that stay come first, so that its end needs none.
    """
    return tuple(sorted(replicas, key=lambda one: (one in adding, one in removing)))


def effective_min_isr(min_isr: int, replicas: Sequence[int], adding: Collection[int]) -> int:
    """Return how many in-sync replicas a commit needs: `min.insync.replicas`, and at most the
    number of original replicas."""
    return min(min_isr, len(original_replicas(replicas, adding)))


def target_replicas(replicas: Sequence[int], removing: Collection[int]) -> tuple[int, ...]:
    """Return the replicas that stay when the reassignment completes, in order."""
    return tuple(one for one in replicas if one not in removing)


def awaited_replicas(
    replicas: Sequence[int],
    adding: Collection[int],
    removing: Collection[int],
    in_sync: Collection[int],
) -> tuple[int, ...]:
    """Return the replicas that must get in sync before the reassignment can complete.

    These are the added replicas. If the partition gets fewer replicas, these are all replicas that
    stay. Otherwise a lagging replica alone could stay, and in-sync replicas would be removed
    (KAFKA-16218).
    """
    target = target_replicas(replicas, removing)
    does_shrink = len(target) < len(original_replicas(replicas, adding))
    return tuple(one for one in target if one not in in_sync and (does_shrink or one in adding))


def is_under_replicated(
    replicas: Sequence[int], adding: Collection[int], in_sync: Collection[int]
) -> bool:
    """Return whether an original replica is not in sync."""
    return any(one not in in_sync for one in original_replicas(replicas, adding))
