"""Chooses the replicas of new partitions, over racks and brokers (KIP-36).

This module is pure, and knows only ids of brokers and racks. The rules, in this order:

1. A rack is used again for a partition only when all racks have been. Of several racks, the one
   with the fewest replicas of the topic per broker comes first.
2. In the rack, the broker with the fewest replicas of the topic comes first. Ties go to the broker
   that was least often beside the chosen replicas, then to the fewest replicas of all topics.
3. Leaders of one topic are level as far as the replicas allow. So are, for the partitions of one
   leader, the second places, because the second replica leads when the first one fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from broker.controller.replica_order import OrderCounts, ReplicaOrder

Racks = Mapping[int, str | None]
"""The rack of each broker that gets replicas. Brokers without a rack are one rack together, as in
Kafka."""


@dataclass(slots=True)
class PlacementCounts:
    """The numbers of replicas, leaderships and pairs on the brokers: of one topic, or of all."""

    replicas: Counter[int] = field(default_factory=Counter)
    leaders: Counter[int] = field(default_factory=Counter)
    seconds: Counter[tuple[int, int]] = field(default_factory=Counter)
    """The number of partitions with each pair of first and second replica."""
    together: Counter[tuple[int, int]] = field(default_factory=Counter)
    """The number of partitions that have both brokers as replicas, by the two brokers in both
    orders."""

    def add(self, replicas: Sequence[int], by: int = 1) -> None:
        """Count one partition, or `by` partitions with the same replicas."""
        for one in replicas:
            self.replicas[one] += by
        self.leaders[replicas[0]] += by
        if len(replicas) > 1:
            self.seconds[replicas[0], replicas[1]] += by
        self.join(replicas, by)

    def join(self, replicas: Sequence[int], by: int = 1) -> None:
        """Count the pairs of one partition, or of `by` partitions with the same replicas."""
        for one in replicas:
            for other in replicas:
                if one != other:
                    self.together[one, other] += by


def spread(
    racks: Racks, count: int, factor: int, topic: PlacementCounts, cluster: PlacementCounts
) -> list[list[int]]:
    """Return the replicas of `count` new partitions, the preferred leader first.

    `topic` has the counts of the topic's existing partitions, which stay where they are. Both
    counts include the new partitions afterwards. There must be at least `factor` brokers.
    """
    sets = _ReplicaSets(racks, factor, topic, cluster).choose(count)
    order = ReplicaOrder(
        sets,
        sorted(racks),
        OrderCounts(topic.leaders, topic.seconds, cluster.leaders, cluster.seconds),
    )
    ordered = order.ordered()
    for replicas in ordered:
        for counts in (topic, cluster):
            counts.leaders[replicas[0]] += 1
            if factor > 1:
                counts.seconds[replicas[0], replicas[1]] += 1
    return ordered


class _ReplicaSets:
    """The brokers of each new partition, in no order yet."""

    def __init__(
        self, racks: Racks, factor: int, topic: PlacementCounts, cluster: PlacementCounts
    ) -> None:
        self._racks = racks
        self._factor = factor
        self._topic = topic
        self._cluster = cluster
        self._ring = sorted(racks)
        self._rack_sizes = Counter(racks.values())
        self._of_rack: Counter[str | None] = Counter()
        for broker in self._ring:
            self._of_rack[racks[broker]] += topic.replicas[broker]
        self._sets: list[list[int]] = []
        self._at = sum(cluster.leaders.values())
        """The position in the ring at which the choice for the next partition begins."""

    def choose(self, count: int) -> list[list[int]]:
        """Return the brokers of `count` partitions, and count them."""
        for _ in range(count):
            chosen = self._next()
            self._sets.append(chosen)
            self._topic.replicas.update(chosen)
            self._topic.join(chosen)
            self._cluster.replicas.update(chosen)
            self._exchange()
        return self._sets

    def _next(self) -> list[int]:
        topic, cluster, racks = self._topic, self._cluster, self._racks
        start = self._at % len(self._ring)
        self._at += 1
        free = self._ring[start:] + self._ring[:start]
        used: Counter[str | None] = Counter()
        chosen: list[int] = []

        def key(one: int) -> tuple[float, ...]:
            rack = racks[one]
            return (
                used[rack],
                self._of_rack[rack] / self._rack_sizes[rack],
                topic.replicas[one],
                sum(topic.together[one, other] for other in chosen),
                cluster.replicas[one],
            )

        while len(chosen) < self._factor:
            best = min(free, key=key)
            free.remove(best)
            chosen.append(best)
            used[racks[best]] += 1
        for one in chosen:
            self._of_rack[racks[one]] += 1
        return chosen

    def _exchange(self) -> None:
        """Exchange brokers between the last partition and earlier ones while that evens out how
        often two brokers have the same partition.

        Each broker keeps its number of replicas, and each partition its racks. Without this the
        last partition of each round would get the pair that is left over, always the same ones.
        """
        last = self._sets[-1]
        if not self._has_frequent_pair(last):
            return
        for other in self._sets[-(len(self._ring) ** 2) : -1]:
            for mine in list(last):
                for theirs in list(other):
                    if self._gain(last, mine, other, theirs) > 0:
                        self._swap(last, mine, other, theirs)
                        break

    def _has_frequent_pair(self, last: Sequence[int]) -> bool:
        together, racks = self._topic.together, self._racks
        for one in last:
            for other in last:
                often = together[one, other]
                if one != other and any(
                    together[one, rival] < often - 1
                    for rival in self._ring
                    if rival != one and racks[rival] == racks[other]
                ):
                    return True
        return False

    def _gain(self, last: list[int], mine: int, other: list[int], theirs: int) -> int:
        """Return by how much the exchange lowers the sum of the squares, halved; 0 if it is not
        possible."""
        if mine in other or theirs in last:
            return 0
        racks, together = self._racks, self._topic.together
        if racks[mine] != racks[theirs]:
            after = [_replaced(last, mine, theirs), _replaced(other, theirs, mine)]
            if [self._rack_use(one) for one in after] != [
                self._rack_use(last),
                self._rack_use(other),
            ]:
                return 0
        common = set(last) & set(other)
        return sum(
            together[lost, one] - together[got, one] - 1
            for members, lost, got in ((last, mine, theirs), (other, theirs, mine))
            for one in members
            if one != lost and one not in common
        )

    def _rack_use(self, members: Sequence[int]) -> list[int]:
        return sorted(Counter(self._racks[one] for one in members).values())

    def _swap(self, last: list[int], mine: int, other: list[int], theirs: int) -> None:
        for members, lost, got in ((last, mine, theirs), (other, theirs, mine)):
            self._topic.join(members, -1)
            members[members.index(lost)] = got
            self._topic.join(members)


def _replaced(members: Sequence[int], lost: int, got: int) -> list[int]:
    return [got if one == lost else one for one in members]
