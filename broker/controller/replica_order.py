"""Chooses the order of the replicas of new partitions: the leader and its successors.

This module is pure. The first replica is the preferred leader. The second one leads when the first
one fails. Each broker gets about the same number of leaderships. For each leader, the second
replicas are spread evenly over the other brokers, as far as the chosen replicas allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from broker.controller.levelling import Levelling, Shift

Pair = tuple[int, int]
"""The first and the second replica of a partition."""

EVENED_PARTITIONS_MAX = 1_000
EVENED_BROKERS_MAX = 10
"""The largest numbers of brokers and partitions for which second replicas are spread as evenly as
possible, which takes about 0.1 s. Above them each partition takes the pair that is used least at
that moment."""

_Node = tuple[str, int, int]
"""A node of the graph in `_changes`: its kind with a pair, or its kind with a broker and 0."""

_Edge = tuple[_Node, _Node, int]


@dataclass(frozen=True, slots=True)
class OrderCounts:
    """The numbers of leaderships and of pairs, in the existing partitions of the topic and in all
    topics."""

    leaders: Counter[int]
    seconds: Counter[Pair]
    all_leaders: Counter[int]
    all_seconds: Counter[Pair]


class ReplicaOrder:
    """Orders the replicas of new partitions. The brokers of each partition are already chosen."""

    def __init__(
        self, sets: Sequence[Sequence[int]], brokers: Sequence[int], counts: OrderCounts
    ) -> None:
        self._sets = sets
        self._brokers = brokers
        self._counts = counts
        self._leaders = {broker: counts.leaders[broker] for broker in brokers}
        self._seconds = Counter(counts.seconds)
        self._first: list[int] = []
        self._second: list[int] = []
        """The second replica of each partition; empty if partitions have one replica."""

    def ordered(self) -> list[list[int]]:
        """Return the replicas of each partition in their order."""
        for chosen in self._sets:
            first = min(chosen, key=lambda one: self._leader_key(one, chosen))
            self._first.append(first)
            self._leaders[first] += 1
            if len(chosen) > 1:
                self._second.append(self._best_second(first, chosen))
                self._seconds[first, self._second[-1]] += 1
        # A single partition already has its best order.
        if len(self._sets) > 1:
            self._level_leaders()
        if (
            self._second
            and 1 < len(self._sets) <= EVENED_PARTITIONS_MAX
            and len(self._brokers) <= EVENED_BROKERS_MAX
        ):
            self._even_out()
        return [self._in_order(number) for number in range(len(self._sets))]

    def _leader_key(self, one: int, chosen: Sequence[int]) -> tuple[int, ...]:
        seconds = min((self._seconds[one, other] for other in chosen if other != one), default=0)
        return self._leaders[one], seconds, self._counts.all_leaders[one], chosen.index(one)

    def _best_second(self, first: int, chosen: Sequence[int]) -> int:
        others = [one for one in chosen if one != first]
        return min(others, key=lambda one: self._second_key(first, one))

    def _second_key(self, first: int, one: int) -> tuple[int, int]:
        return self._seconds[first, one], self._counts.all_seconds[first, one]

    def _level_leaders(self) -> None:
        def shifts_of(number: int) -> Iterator[Shift]:
            first = self._first[number]
            for other in self._sets[number]:
                if other != first:
                    yield first, other, 0

        def shift(number: int, source: int, target: int) -> None:
            self._first[number] = target
            if self._second:
                self._seconds[source, self._second[number]] -= 1
                self._second[number] = self._best_second(target, self._sets[number])
                self._seconds[target, self._second[number]] += 1

        levelling = Levelling(self._leaders, shifts_of, shift)
        if levelling.is_level:
            return
        for number in range(len(self._sets)):
            levelling.add(number)
        levelling.level()

    def _even_out(self) -> None:
        """Exchange pairs between partitions along cycles that lower the cost, until no such cycle
        is left.

        The cost is the sum over all pairs of the squared number of partitions with this pair.
        Leaderships have a much larger weight, so their numbers stay level. The result is the
        minimum, because each of these costs is convex (a minimum-cost flow).
        """
        numbers_at: dict[Pair, dict[int, None]] = {}
        for number, pair in enumerate(zip(self._first, self._second, strict=True)):
            numbers_at.setdefault(pair, {})[number] = None
        while (cycle := negative_cycle(self._changes(numbers_at))) is not None:
            for (kind, *old), (_, *new) in cycle:
                if kind == "from":
                    self._change_pair(numbers_at, (old[0], old[1]), (new[0], new[1]))

    def _changes(self, numbers_at: Mapping[Pair, Mapping[int, None]]) -> list[_Edge]:
        """Return a graph in which each cycle is a possible change. The length of a cycle is its
        cost.

        An edge from a node of kind "from" to a node of kind "to" moves a partition to another pair.
        All other edges have the cost of one more partition with a pair, or of one fewer.
        """
        weight = 4 * (len(self._sets) + 1)
        edges: list[_Edge] = []
        pairs: dict[Pair, None] = {}
        for pair, numbers in numbers_at.items():
            reachable = dict.fromkeys(
                (first, second)
                for number in numbers
                for first in self._sets[number]
                for second in self._sets[number]
                if first != second
            )
            pairs |= reachable
            edges += ((("from", *pair), ("to", *new), 0) for new in reachable if new != pair)
        for first, second in pairs:
            count = self._seconds[first, second]
            edges.append((("to", first, second), ("gains", first, 0), 2 * count + 1))
            edges.append((("loses", first, 0), ("from", first, second), 1 - 2 * count))
        for broker in self._brokers:
            load = self._leaders[broker]
            edges.append((("gains", broker, 0), ("loses", broker, 0), 0))
            edges.append((("gains", broker, 0), ("all", 0, 0), weight * (2 * load + 1)))
            edges.append((("all", 0, 0), ("loses", broker, 0), weight * (1 - 2 * load)))
        return edges

    def _change_pair(self, numbers_at: dict[Pair, dict[int, None]], old: Pair, new: Pair) -> None:
        number = next(one for one in numbers_at[old] if set(new) <= set(self._sets[one]))
        del numbers_at[old][number]
        numbers_at.setdefault(new, {})[number] = None
        self._first[number], self._second[number] = new
        for pair, by in ((old, -1), (new, 1)):
            self._leaders[pair[0]] += by
            self._seconds[pair] += by

    def _in_order(self, number: int) -> list[int]:
        first = self._first[number]
        if not self._second:
            return [first]
        second = self._second[number]
        rest = [one for one in self._sets[number] if one not in (first, second)]
        rest.sort(key=lambda one: self._second_key(first, one))
        return [first, second, *rest]


def negative_cycle(edges: Sequence[_Edge]) -> list[tuple[_Node, _Node]] | None:
    """Return the edges of a cycle with a negative cost, in their order; None if there is none.

    This is the algorithm of Bellman and Ford, started at all nodes at once. If the predecessors of
    a node form a cycle, this cycle has a negative cost, so the search ends.
    """
    costs: dict[_Node, int] = {}
    for start, end, _ in edges:
        costs[start] = costs[end] = 0
    before: dict[_Node, _Node] = {}
    while True:
        has_changed = False
        for start, end, cost in edges:
            if costs[start] + cost < costs[end]:
                costs[end] = costs[start] + cost
                before[end] = start
                has_changed = True
        if not has_changed:
            return None
        cycle = _cycle_in(before)
        if cycle is not None:
            return cycle


def _cycle_in(before: Mapping[_Node, _Node]) -> list[tuple[_Node, _Node]] | None:
    """Return the edges of a cycle of a graph in which each node has at most one node before it;
    None if there is none."""
    walks: dict[_Node, _Node] = {}
    """The nodes that have been visited, each with the start node of the walk that visited it
    first."""
    for start in before:
        node = start
        while node in before and node not in walks:
            walks[node] = start
            node = before[node]
        if walks.get(node) == start:
            cycle = [(before[node], node)]
            while cycle[-1][0] != node:
                end = cycle[-1][0]
                cycle.append((before[end], end))
            return cycle[::-1]
    return None
