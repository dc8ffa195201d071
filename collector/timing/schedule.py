"""Decides which file is read next: fairly, live files first, with delays after failures.

This module is pure. A file is `ready` in one of two queues, `parked` until a partition has room, or
`delayed` until a time. A file with nothing to read is in none of these. The first file of a queue
is read next. A file that has more to read then goes to the end of its queue.
"""

import random
from collections import OrderedDict
from collections.abc import Hashable
from enum import StrEnum
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)
Place = TypeVar("Place", bound=Hashable)


class ReadQueue(StrEnum):
    """The two queues of files.

    Files with live lines are read first, so that old files do not delay them.
    """

    LIVE = "live"
    BACKFILL = "backfill"


class DoublingWait:
    """Computes waiting times that double from a shortest to a longest one. It reads no clock.

    With `rng`, each wait is a random time between the shortest time and the doubled one. So many
    collectors that failed together do not retry together. `first_ms` is the upper limit of the
    first wait; None for the shortest time.
    """

    __slots__ = ("_first_ms", "_least_ms", "_most_ms", "_next_ms", "_rng")

    def __init__(
        self,
        least_ms: int,
        most_ms: int,
        rng: random.Random | None = None,
        first_ms: int | None = None,
    ):
        self._least_ms = least_ms
        self._most_ms = most_ms
        self._first_ms = least_ms if first_ms is None else first_ms
        self._next_ms = self._first_ms
        self._rng = rng

    def next_ms(self) -> int:
        """Return how long to wait this time. The next waiting time is twice as long."""
        wait = self._next_ms
        self._next_ms = min(wait * 2, self._most_ms)
        return wait if self._rng is None else self._rng.randint(self._least_ms, wait)

    def reset(self) -> None:
        """Start again with the first waiting time, after a success."""
        self._next_ms = self._first_ms


class Schedule(Generic[Name, Place]):
    """The order in which files (`Name`) are read; each file writes to one partition (`Place`)."""

    def __init__(self) -> None:
        self._queues: dict[ReadQueue, OrderedDict[Name, None]] = {
            one: OrderedDict() for one in ReadQueue
        }
        self._parked: dict[Place, OrderedDict[Name, None]] = {}
        self._place: dict[Name, Place] = {}
        self._delayed: dict[Name, int] = {}

    def ready(self, name: Name, read_queue: ReadQueue) -> None:
        """Add a file to a queue, unless it is parked, delayed or already in this queue."""
        if name in self._place or name in self._delayed:
            return
        other = ReadQueue.BACKFILL if read_queue is ReadQueue.LIVE else ReadQueue.LIVE
        self._queues[other].pop(name, None)
        self._queues[read_queue].setdefault(name)

    def next(self, read_queue: ReadQueue) -> Name | None:
        """Remove and return the first file of a queue; None when the queue is empty."""
        queue = self._queues[read_queue]
        return queue.popitem(last=False)[0] if queue else None

    def waiting(self, read_queue: ReadQueue) -> int:
        """Return how many files a queue has."""
        return len(self._queues[read_queue])

    def park(self, name: Name, place: Place) -> None:
        """Keep a file back until its partition has room again."""
        self.drop(name)
        self._place[name] = place
        self._parked.setdefault(place, OrderedDict()).setdefault(name)

    def release(self, place: Place) -> list[Name]:
        """Return the files that were parked for a partition, in order. The caller queues them
        again.
        """
        names = list(self._parked.pop(place, ()))
        for name in names:
            del self._place[name]
        return names

    def places(self) -> list[Place]:
        """Return the partitions for which files are parked."""
        return list(self._parked)

    def delay(self, name: Name, until_ms: int) -> None:
        """Keep a file back until a time."""
        self.drop(name)
        self._delayed[name] = until_ms

    def expire(self, now_ms: int) -> list[Name]:
        """Return the files whose delay is over. The caller queues them again."""
        names = [name for name, until_ms in self._delayed.items() if until_ms <= now_ms]
        for name in names:
            del self._delayed[name]
        return names

    @property
    def deadline_ms(self) -> int | None:
        """The time when the next delay ends; None if no file is delayed."""
        return min(self._delayed.values(), default=None)

    def drop(self, name: Name) -> None:
        """Remove a file from every queue, and end its delay."""
        for queue in self._queues.values():
            queue.pop(name, None)
        self._delayed.pop(name, None)
        place = self._place.pop(name, None)
        if place is not None:
            parked = self._parked[place]
            del parked[name]
            if not parked:
                del self._parked[place]
