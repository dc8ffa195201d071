"""Virtual time: a heap of events, and links that are slow, cut, or stalled in one direction."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

Call = Callable[..., None]

CONTROLLER = 0
"""The node id of the controller, which never fails."""


class Events:
    """Calls ordered by time. Calls in the same millisecond run in the order in which they were
    scheduled."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.count = 0
        self._heap: list[tuple[int, int, Call, tuple[Any, ...]]] = []
        self._next_id = 0

    def at(self, when_ms: int, call: Call, *args: Any) -> None:
        heappush(self._heap, (max(when_ms, self.now_ms), self._next_id, call, args))
        self._next_id += 1

    def after(self, delay_ms: int, call: Call, *args: Any) -> None:
        self.at(self.now_ms + delay_ms, call, *args)

    def step(self, until_ms: int) -> bool:
        """Run the next event if it is due by `until_ms`. Otherwise return False."""
        if not self._heap or self._heap[0][0] > until_ms:
            self.now_ms = until_ms
            return False
        self.now_ms, _, call, args = heappop(self._heap)
        self.count += 1
        call(*args)
        return True


class Network:
    """One connection for each ordered pair of nodes. The messages on it stay in order.

    During a cut messages wait, as with TCP, and arrive when the cut ends. A reset loses all
    messages in flight.
    """

    def __init__(self, events: Events, chance: Random) -> None:
        self._events = events
        self._chance = chance
        self._cut_until: dict[tuple[int, int], int] = {}
        self._held: dict[tuple[int, int], list[tuple[int, Call, tuple[Any, ...]]]] = {}
        """The messages that arrived during a cut, in order."""
        self._lag_ms: dict[tuple[int, int], int] = {}
        self._last: dict[tuple[int, int], int] = {}
        self._resets: dict[tuple[int, int], int] = {}
        self.slow_rate = 0.0
        """The share of messages that take up to `slow_ms`."""
        self.slow_ms = 0

    def cut(self, source: int, target: int, until_ms: int) -> None:
        pair = (source, target)
        if until_ms > self._cut_until.get(pair, 0):
            self._cut_until[pair] = until_ms
            self._events.at(until_ms, self._lapse, pair, until_ms)

    def restore(self, source: int, target: int) -> None:
        """End a cut. The messages that have waited arrive in order."""
        self._cut_until.pop((source, target), None)
        held = self._held.pop((source, target), [])
        for resets, call, args in held:
            self._events.after(1, self._arrive, (source, target), resets, call, args)
        self._last[source, target] = self._events.now_ms + 1

    def lag(self, source: int, target: int, by_ms: int) -> None:
        """Delay all messages in this direction by this time."""
        self._lag_ms[source, target] = by_ms

    def heal(self) -> None:
        for source, target in list(self._cut_until):
            self.restore(source, target)
        self._lag_ms.clear()
        self.slow_rate = 0.0

    def reset(self, one: int, other: int) -> None:
        """Break the connections between two nodes. Messages in flight are lost in both
        directions."""
        for pair in ((one, other), (other, one)):
            self._resets[pair] = self._resets.get(pair, 0) + 1

    def send(self, source: int, target: int, call: Call, *args: Any) -> None:
        pair = (source, target)
        delay = self._chance.randrange(1, 4)
        if self.slow_rate and self._chance.random() < self.slow_rate:
            delay += self._chance.randrange(self.slow_ms)
        when = self._events.now_ms + delay + self._lag_ms.get(pair, 0)
        when = max(when, self._last.get(pair, 0))
        self._last[pair] = when
        self._events.at(when, self._arrive, pair, self._resets.get(pair, 0), call, args)

    def _lapse(self, pair: tuple[int, int], until_ms: int) -> None:
        if self._cut_until.get(pair) == until_ms:
            self.restore(*pair)

    def _arrive(
        self, pair: tuple[int, int], resets: int, call: Call, args: tuple[Any, ...]
    ) -> None:
        if resets != self._resets.get(pair, 0):
            return
        if pair in self._cut_until:
            self._held.setdefault(pair, []).append((resets, call, args))
            return
        call(*args)
