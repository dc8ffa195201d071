"""The spread of replicas and leaders over the brokers, and partitions that break the rack rule.

This module is pure. The rule is that of the placement: a partition uses as many racks as it can. A
broker that is cordoned or not in service gets no new replica, so its rack does not count as one
that could be used. A partition that moves counts for the replicas that it will have.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from monitor.state.snapshot import PartitionView, Snapshot
from protocol.reassignment import target_replicas

UNEVEN_MIN = 2
"""The least difference between two brokers that a plan could level. A difference of 1 cannot be
levelled if the brokers' number does not divide the number of replicas.
"""

UNEVEN_SHARE = 0.1
"""The difference between the fullest and the emptiest broker, as a share of the mean, from which
`doctor` recommends a plan."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The least and the greatest number that a broker has, and the mean of all brokers."""

    least: int
    most: int
    mean: float

    @property
    def is_uneven(self) -> bool:
        """True if the difference is large enough to justify the copies of a plan."""
        apart = self.most - self.least
        return apart >= UNEVEN_MIN and apart > self.mean * UNEVEN_SHARE


@dataclass(frozen=True, slots=True)
class Skew:
    """The spread of replicas over the brokers that get new ones, and that of leaders."""

    replicas: Spread
    leaders: Spread


def skew_of(snapshot: Snapshot) -> Skew | None:
    """Return how unevenly replicas and leaders are spread.

    Return None if fewer than two brokers can take replicas.
    """
    usable = usable_brokers(snapshot)
    if len(usable) < 2:
        return None
    replicas, leaders = Counter[int](), Counter[int]()
    for part in snapshot.partitions:
        replicas.update(target_replicas(part.replicas, part.removing_replicas))
        if part.leader is not None:
            leaders[part.leader] += 1
    return Skew(_spread(replicas, usable), _spread(leaders, usable))


def usable_brokers(snapshot: Snapshot) -> frozenset[int]:
    """Return the brokers that get new replicas: those in service that are not cordoned."""
    return frozenset(
        one.node_id
        for one in snapshot.brokers
        if one.state == "up" and one.facts.is_cordoned is not True
    )


def racks_of(snapshot: Snapshot) -> dict[int, str]:
    """Return the rack of each broker that has one."""
    return {one.node_id: one.facts.rack for one in snapshot.brokers if one.facts.rack is not None}


def doubled_racks(snapshot: Snapshot) -> dict[str, int]:
    """Return by topic how many partitions have two replicas in one rack although another rack could
    take one. Empty if the brokers have no racks.
    """
    racks, usable = racks_of(snapshot), usable_brokers(snapshot)
    if not racks:
        return {}
    usable_racks = frozenset(racks[one] for one in usable if one in racks)
    found: dict[str, int] = {}
    for part in snapshot.partitions:
        if _is_doubled(part, racks, usable_racks):
            found[part.topic] = found.get(part.topic, 0) + 1
    return found


def _is_doubled(
    part: PartitionView, racks: Mapping[int, str], usable_racks: Collection[str]
) -> bool:
    target = target_replicas(part.replicas, part.removing_replicas)
    if not all(one in racks for one in target):
        return False
    used = {racks[one] for one in target}
    return len(used) < min(len(target), len(used.union(usable_racks)))


def _spread(counts: Mapping[int, int], brokers: Collection[int]) -> Spread:
    numbers = [counts.get(one, 0) for one in brokers]
    return Spread(min(numbers), max(numbers), sum(numbers) / len(numbers))
