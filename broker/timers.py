"""Deadlines without a clock: a heap that gets the time from its caller.

This module is pure. Items with equal deadlines come out in the order in which they were added. A
cancelled timer stays in the heap until its deadline, or until the cancelled timers outnumber the
live ones and the heap is rebuilt. So the heap has at most twice as many entries as live timers,
plus a small constant.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Item = TypeVar("Item")

CANCELLED_KEPT = 64
"""The number of cancelled timers below which the heap is not rebuilt."""


class Timer(Generic[Item]):
    """One deadline. `item` is None after the timer was due or cancelled."""

    __slots__ = ("deadline_ms", "item")

    def __init__(self, deadline_ms: int, item: Item) -> None:
        self.deadline_ms = deadline_ms
        self.item: Item | None = item


class Timers(Generic[Item]):
    """All deadlines of one kind. Call `due` at `next_deadline_ms` at the latest."""

    __slots__ = ("_cancelled_count", "_heap", "_next_id")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer[Item]]] = []
        self._next_id = 0
        self._cancelled_count = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled_count

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest deadline; None if there is no timer."""
        heap = self._heap
        while heap and heap[0][2].item is None:
            heappop(heap)
            self._cancelled_count -= 1
        return heap[0][0] if heap else None

    def add(self, deadline_ms: int, item: Item) -> Timer[Item]:
        timer = Timer(deadline_ms, item)
        heappush(self._heap, (deadline_ms, self._next_id, timer))
        self._next_id += 1
        return timer

    def cancel(self, timer: Timer[Item]) -> None:
        """Cancel a timer. This has no effect if the timer was already due."""
        if timer.item is None:
            return
        timer.item = None
        self._cancelled_count += 1
        if self._cancelled_count > max(CANCELLED_KEPT, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if entry[2].item is not None]
            heapify(self._heap)
            self._cancelled_count = 0

    def due(self, now_ms: int) -> list[Item]:
        """Remove and return every item whose deadline has come, earliest first."""
        heap = self._heap
        items: list[Item] = []
        while heap and heap[0][0] <= now_ms:
            timer = heappop(heap)[2]
            if timer.item is None:
                self._cancelled_count -= 1
            else:
                items.append(timer.item)
                timer.item = None
        return items

    def postpone(self, now_ms: int, until_ms: int) -> None:
        """Move every deadline that has come to a later time, in the same order."""
        late: list[Timer[Item]] = []
        while self._heap and self._heap[0][0] <= now_ms:
            timer = heappop(self._heap)[2]
            if timer.item is None:
                self._cancelled_count -= 1
            else:
                late.append(timer)
        for timer in late:
            timer.deadline_ms = until_ms
            heappush(self._heap, (until_ms, self._next_id, timer))
            self._next_id += 1
