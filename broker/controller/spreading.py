"""Chooses the replicas of new partitions, over racks and brokers (KIP-36).

This module is pure, and knows only ids of brokers and racks. The rules, in this order:

1. A rack gets a second replica of a partition only when all racks have one. Of several racks, the
   one with the fewest replicas of the topic per broker comes first.
2. In the rack, the broker with the fewest replicas of the topic comes first. Of equal brokers, the
   broker with the fewest partitions in common with the already chosen brokers comes first, then
   the broker with the fewest replicas of all topics.
3. The leaderships of a topic are spread evenly over the brokers, as far as the replicas allow. So
   are the second replicas of the partitions of each leader, because the second replica leads when
   the first one fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm

from broker.controller.replica_order import EVENED_PARTITIONS_MAX, OrderCounts, ReplicaOrder

REPEATED_MIN = 1_000
"""The number of partitions in a request above which a pattern of replicas is repeated."""

PATTERN_TRIES = 3
"""The number of pattern lengths to try."""

Racks = Mapping[int, str | None]
"""The rack of each broker that gets replicas, by broker id. All brokers without a rack form one
rack, as in Kafka."""


@dataclass(slots=True)
class PlacementCounts:
    """The numbers of replicas, leaderships and pairs on the brokers, for one topic or for all
    topics."""

    replicas: Counter[int] = field(default_factory=Counter)
    leaders: Counter[int] = field(default_factory=Counter)
    seconds: Counter[tuple[int, int]] = field(default_factory=Counter)
    """The number of partitions with each pair of first and second replica."""
    together: Counter[tuple[int, int]] = field(default_factory=Counter)
    """For each two brokers, in both orders, the number of partitions with replicas on both."""

    def add(self, replicas: Sequence[int], by: int = 1) -> None:
        """Add one partition, or `by` partitions with the same replicas."""
        for one in replicas:
            self.replicas[one] += by
        self.leaders[replicas[0]] += by
        if len(replicas) > 1:
            self.seconds[replicas[0], replicas[1]] += by
        self.join(replicas, by)

    def join(self, replicas: Sequence[int], by: int = 1) -> None:
        """Add the broker pairs of one partition, or of `by` partitions with the same replicas."""
        for one in replicas:
            for other in replicas:
                if one != other:
                    self.together[one, other] += by

    def copy(self) -> PlacementCounts:
        """Return a copy, on which a placement can be tried."""
        return PlacementCounts(
            self.replicas.copy(), self.leaders.copy(), self.seconds.copy(), self.together.copy()
        )

    def is_even(self, racks: Racks) -> bool:
        """Return True if all brokers have the same counts, and all pairs of brokers too. Pairs in
        one rack, which share fewer partitions, are compared with each other."""
        singles = {(self.replicas[one], self.leaders[one]) for one in racks}
        pairs = {
            (racks[one] == racks[other], self.seconds[one, other], self.together[one, other])
            for one in racks
            for other in racks
            if one != other
        }
        return len(singles) == 1 and len(pairs) == len({is_one_rack for is_one_rack, *_ in pairs})


def spread(
    racks: Racks, count: int, factor: int, topic: PlacementCounts, cluster: PlacementCounts
) -> list[list[int]]:
    """Return the replicas of `count` new partitions, the preferred leader first.

    `topic` has the counts of the topic's existing partitions, which stay where they are. `cluster`
    has the counts of all topics. The new partitions are added to both. There must be at least
    `factor` brokers.

    The choice of each partition takes tens of microseconds. So thousands of partitions repeat a
    short pattern after which all counts are even, if there is such a pattern. The partitions that
    are left after the last whole pattern are placed one by one.
    """
    pattern = _pattern(racks, factor, topic, cluster) if count > REPEATED_MIN else []
    times = count // len(pattern) if pattern else 0
    for replicas in pattern:
        topic.add(replicas, times)
        cluster.add(replicas, times)
    repeated = [list(replicas) for _ in range(times) for replicas in pattern]
    rest = count - len(repeated)
    return repeated + _spread_each(racks, rest, factor, topic, cluster)


def _pattern(
    racks: Racks, factor: int, topic: PlacementCounts, cluster: PlacementCounts
) -> list[list[int]]:
    """Return a pattern of replicas after which even counts are even again; empty if no short
    pattern does this."""
    if not topic.is_even(racks):
        return []
    has_racks = len(set(racks.values())) >= factor
    pairs = sum(
        one != other and (not has_racks or racks[one] != racks[other])
        for one in racks
        for other in racks
    )
    step = lcm(len(racks), max(pairs, 1))
    for length in range(step, min(PATTERN_TRIES * step, EVENED_PARTITIONS_MAX) + 1, step):
        after = topic.copy()
        pattern = _spread_each(racks, length, factor, after, cluster.copy())
        if after.is_even(racks):
            return pattern
    return []


def _spread_each(
    racks: Racks, count: int, factor: int, topic: PlacementCounts, cluster: PlacementCounts
) -> list[list[int]]:
    """Return the replicas of new partitions, placed one after the other."""
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
    """The brokers of each new partition. The order of its replicas is not decided yet."""

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
        """Return the brokers of `count` new partitions, and add them to the counts."""
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
        used = dict.fromkeys(self._rack_sizes, 0)
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
        """Exchange brokers between the last partition and earlier ones, as long as this spreads the
        pairs more evenly.

        Each broker keeps its number of replicas, and each partition its racks. Without the
        exchange, the last partition of each round would always get the same pair of brokers.
        """
        # If each partition has all brokers, there is nothing to exchange.
        if self._factor == len(self._ring) or not self._has_frequent_pair(self._sets[-1]):
            return
        futile: set[frozenset[int]] = set()
        for other in self._sets[-(len(self._ring) ** 2) : -1]:
            members = frozenset(other)
            if members in futile:
                continue
            if self._exchange_with(other):
                futile.clear()
            else:
                futile.add(members)

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

    def _exchange_with(self, other: list[int]) -> bool:
        """Exchange brokers between the last partition and an earlier one, if this spreads the pairs
        more evenly.

        Returns True if a broker was exchanged.
        """
        last, together = self._sets[-1], self._topic.together
        ours = [one for one in last if one not in other]
        theirs = [one for one in other if one not in last]
        if len(ours) < 2:
            # If the partitions differ in one broker only, an exchange would just swap the two
            # partitions.
            return False
        excess = self._excess(ours, theirs)
        has_exchanged = False
        for mine in list(ours):
            for new in theirs:
                # The exchange lowers the sum of the squares of `together` by twice this number,
                # as in the algorithm of Kernighan and Lin.
                gain = excess[mine] - excess[new] + 2 * (together[mine, new] - len(ours) + 1)
                if gain > 0 and self._keeps_racks(last, mine, other, new):
                    self._swap(last, mine, other, new)
                    ours[ours.index(mine)], theirs[theirs.index(new)] = new, mine
                    excess = self._excess(ours, theirs)
                    has_exchanged = True
                    break
        return has_exchanged

    def _excess(self, ours: Sequence[int], theirs: Sequence[int]) -> dict[int, int]:
        """Return for each of these brokers how much more often it shares a partition with `ours`
        than with `theirs`."""
        together = self._topic.together
        return {
            one: sum([together[one, other] for other in ours])
            - sum([together[one, other] for other in theirs])
            for one in (*ours, *theirs)
        }

    def _keeps_racks(self, last: list[int], mine: int, other: list[int], new: int) -> bool:
        """Return True if both partitions use their racks as often after the exchange."""
        if self._racks[mine] == self._racks[new]:
            return True
        return all(
            self._rack_use(_replaced(members, lost, got)) == self._rack_use(members)
            for members, lost, got in ((last, mine, new), (other, new, mine))
        )

    def _rack_use(self, members: Sequence[int]) -> list[int]:
        return sorted(Counter(self._racks[one] for one in members).values())

    def _swap(self, last: list[int], mine: int, other: list[int], new: int) -> None:
        for members, lost, got in ((last, mine, new), (other, new, mine)):
            self._topic.join(members, -1)
            members[members.index(lost)] = got
            self._topic.join(members)


def _replaced(members: Sequence[int], lost: int, got: int) -> list[int]:
    return [got if one == lost else one for one in members]
