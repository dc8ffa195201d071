"""Moves units between brokers along the cheapest chains until the brokers' loads are level.

This module is pure. A unit is a replica or a leadership of an item, which is a partition. A *shift*
takes one unit of one item from one broker to another. If no single shift can level two brokers, a
chain of shifts over other brokers can. The result depends on the order of the input only, not on
hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

Shift = tuple[int, int, int]
"""A possible shift of an item, as a tuple: the broker that loses a unit, the broker that gets it,
and the cost."""

Edge = tuple[int, int]


@dataclass(slots=True)
class Levelling(Generic[Item]):
    """The loads of brokers, and the shifts that are possible at the moment.

    `loads` has every broker, and is kept up to date. `shifts_of` returns the possible shifts of an
    item; no cycle of them may have a negative cost. `shift` carries one out. Of two chains with the
    same cost, `tie` prefers the broker with the larger value as the source, and the broker with the
    smaller value as the target.
    """

    loads: MutableMapping[int, int]
    shifts_of: Callable[[Item], Iterable[Shift]]
    shift: Callable[[Item, int, int], None]
    tie: Callable[[int], int] = lambda _: 0
    changed_with: Callable[[Item], Iterable[Item]] = lambda item: (item,)
    """Returns the items whose possible shifts change when an item is shifted."""
    can_repeat: Callable[[Item], bool] = lambda _: False
    """Returns True if an item can make several steps of a chain, each at the same cost as alone."""
    is_strict: bool = False
    """True if shifts can cost less than 0. In this case only the cheapest chain between two brokers
    is used, because any other chain could leave a cycle with a negative cost."""
    _edges: dict[Edge, dict[int, dict[Item, None]]] = field(default_factory=dict)
    _shifts: dict[Item, list[Shift]] = field(default_factory=dict)

    @property
    def is_level(self) -> bool:
        """True if the loads of no two brokers differ by two or more."""
        return max(self.loads.values()) - min(self.loads.values()) < 2

    def add(self, item: Item) -> None:
        """Add an item, with the shifts that are possible for it at the moment."""
        shifts = self._shifts[item] = list(self.shifts_of(item))
        for source, target, cost in shifts:
            self._edges.setdefault((source, target), {}).setdefault(cost, {})[item] = None

    def level(self) -> None:
        """Shift units until no chain connects two brokers whose loads differ by two or more."""
        blocked: set[Edge] = set()
        while (path := self._cheapest(blocked)) is not None:
            items: list[Item] = []
            for edge in pairwise(path):
                item = self._item_for(edge, items)
                if item is None:
                    # No item is free for this step, because an earlier step of the chain uses the
                    # last one. So look for another chain.
                    blocked.add((path[0], path[-1]) if self.is_strict else edge)
                    break
                items.append(item)
            else:
                blocked.clear()
                self._carry_out(path, items)

    def _carry_out(self, path: list[int], items: list[Item]) -> None:
        """Shift one unit along a chain, and find the shifts that are possible afterwards."""
        self.loads[path[0]] -= 1
        self.loads[path[-1]] += 1
        for item, (source, target) in zip(items, pairwise(path), strict=True):
            self.shift(item, source, target)
        for changed in dict.fromkeys(one for item in items for one in self.changed_with(item)):
            self._forget(changed)
            self.add(changed)

    def _forget(self, item: Item) -> None:
        for source, target, cost in self._shifts.pop(item):
            by_cost = self._edges[source, target]
            del by_cost[cost][item]
            if not by_cost[cost]:
                del by_cost[cost]

    def _cheapest(self, blocked: set[Edge]) -> list[int] | None:
        """Return the brokers of the chain to use next; None if the loads are as level as possible.

        Chains from brokers above the rounded-up mean come first, then chains to brokers below the
        rounded-down mean. With this rule the number of shifts is the smallest possible.
        """
        if self.is_level:
            return None
        loads = self.loads
        lowest = min(loads.values())
        total, count = sum(loads.values()), len(loads)
        floor, ceiling = total // count, -(-total // count)
        costs = {
            edge: min(by_cost)
            for edge, by_cost in self._edges.items()
            if by_cost and (self.is_strict or edge not in blocked)
        }
        best: tuple[tuple[int, ...], list[int]] | None = None
        for source, load in loads.items():
            if load - lowest < 2:
                continue
            reached = _reached(source, costs, len(loads))
            for target, (cost, before) in reached.items():
                difference = load - loads[target]
                if difference < 2 or (self.is_strict and (source, target) in blocked):
                    continue
                phase = 0 if load > ceiling else 1 if loads[target] < floor else 2
                is_under = loads[target] < floor
                key = (
                    *(phase, cost, not is_under, -difference, self.tie(target) - self.tie(source)),
                    *(source, target),
                )
                if best is None or key < best[0]:
                    best = (key, _path(source, target, before, reached))
        return None if best is None else best[1]

    def _item_for(self, edge: Edge, taken: list[Item]) -> Item | None:
        """Return the cheapest item that can make one step of a chain. `taken` makes the steps
        before.

        Of two items with the same cost, prefer an item without another step.
        """
        by_cost = self._edges[edge]
        for cost in sorted(by_cost)[:1] if self.is_strict else sorted(by_cost):
            items = by_cost[cost]
            free = next((item for item in items if item not in taken), None)
            if free is not None:
                return free
            if (again := next(filter(self.can_repeat, items), None)) is not None:
                return again
        return None


Reached = dict[int, tuple[int, int]]
"""The cost to reach each broker, and the broker before it on the way, by broker."""


def _reached(source: int, costs: dict[Edge, int], count: int) -> Reached:
    """Return the cheapest ways from a broker to all other brokers (algorithm of Bellman and
    Ford)."""
    reached: Reached = {source: (0, source)}
    for _ in range(count):
        is_changed = False
        for (one, other), cost in costs.items():
            if one not in reached or other == source:
                continue
            whole = reached[one][0] + cost
            if other not in reached or whole < reached[other][0]:
                reached[other] = (whole, one)
                is_changed = True
        if not is_changed:
            break
    else:
        raise AssertionError("a cycle of moves has a negative cost, so there is no cheapest path")
    del reached[source]
    return reached


def _path(source: int, target: int, before: int, reached: Reached) -> list[int]:
    def backwards() -> Iterator[int]:
        yield target
        node = before
        while node != source:
            yield node
            node = reached[node][1]
        yield source

    return list(backwards())[::-1]
