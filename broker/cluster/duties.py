"""What the metadata's disk is asked to do: one thing after the other, each numbered.

Floor: cluster. Pure. A message that must not leave before something is durable waits for a number:
all duties given so far. One is under way at a time, so nothing overtakes a vote or a truncation.
A write that the disk refuses is undone before the quorum handles any other event
(`quorum_driver._take_back`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")

Duty = Callable[[Callable[[], None]], None]
"""Begins something, and calls its argument once it is done."""


class Duties:
    """The queue. `on_done` comes after each one, when whoever gave it has heard of it."""

    def __init__(self, on_done: Callable[[], None]) -> None:
        self.given_count = 0
        self.done_count = 0
        self._on_done = on_done
        self._queue: deque[Duty] = deque()
        self._is_under_way = False
        self._is_beginning = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do."""
        return self.done_count == self.given_count

    @property
    def waiting_count(self) -> int:
        """How many have not begun."""
        return len(self._queue)

    def give(self, duty: Duty) -> int:
        """Have it done behind all others; returns its number."""
        self.given_count += 1
        number = self.given_count
        self._queue.append(duty)
        self._begin()
        return number

    def _begin(self) -> None:
        # A loop, for a duty may be done before its beginning returns.
        if self._is_beginning:
            return
        self._is_beginning = True
        try:
            while self._queue and not self._is_under_way:
                self._is_under_way = True
                self._queue.popleft()(self._done)
        finally:
            self._is_beginning = False

    def _done(self) -> None:
        self._is_under_way = False
        self.done_count += 1
        self._on_done()
        self._begin()


class AtOnce:
    """Jobs that are done on the spot: for a start, when nobody is served yet. What the disk refuses
    is raised where it was asked."""

    def run(
        self,
        job: Callable[[], R],
        done: Callable[[R], None],
        failed: Callable[[Exception], None],
    ) -> None:
        done(job())

    def stop(self, timeout_s: float | None = None) -> bool:
        return True
