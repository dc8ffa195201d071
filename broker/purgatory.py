"""A place for waiting fetches, until one of several offsets is reached or time is up.

Ground floor. Pure: no coroutine, task or future per request. A request is parked under one or more
keys, each with a threshold. The code that raises a key's value (a high watermark) calls `release`
with it, which returns the requests to finish. Each request is returned exactly once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from broker.timers import Timer, Timers

Key = TypeVar("Key", bound=Hashable)
Request = TypeVar("Request")


class ParkedRequest(Generic[Key, Request]):
    """A waiting request: its thresholds and its deadline."""

    __slots__ = ("request", "thresholds", "timer")

    def __init__(self, request: Request, thresholds: dict[Key, int]) -> None:
        self.request = request
        self.thresholds = thresholds
        """Key -> the value at which the request is complete."""
        self.timer: Timer[ParkedRequest[Key, Request]] | None = None


class Purgatory(Generic[Key, Request]):
    """All waiting requests of one kind.

    The driver keeps one timer for `next_deadline_ms` and calls `expire` when it is reached.
    """

    __slots__ = ("_timers", "waiting")

    def __init__(self) -> None:
        self._timers: Timers[ParkedRequest[Key, Request]] = Timers()
        self.waiting: dict[Key, dict[ParkedRequest[Key, Request], None]] = {}
        """Key -> its requests in the order of parking; the dict serves as an ordered set. While it
        is empty, `release` need not be called.
        """

    def __len__(self) -> int:
        return len(self._timers)

    @property
    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms

    def park(
        self,
        request: Request,
        thresholds: Iterable[tuple[Key, int]],
        deadline_ms: int,
    ) -> ParkedRequest[Key, Request]:
        """Park a request until one of its keys reaches its threshold, or until the deadline.

        If a key is given twice, its higher threshold is used. Without keys the request waits for
        its deadline. The caller has checked that it must wait, because values reached earlier are
        not considered.
        """
        wanted: dict[Key, int] = {}
        for key, threshold in thresholds:
            wanted[key] = max(threshold, wanted.get(key, threshold))
        parked = ParkedRequest(request, wanted)
        for key in wanted:
            self.waiting.setdefault(key, {})[parked] = None
        parked.timer = self._timers.add(deadline_ms, parked)
        return parked

    def release(self, key: Key, value: int) -> list[Request]:
        """Remove and return the requests complete at this value of `key`, oldest first."""
        waiting = self.waiting.get(key)
        if waiting is None:
            return []
        reached = [parked for parked in waiting if parked.thresholds[key] <= value]
        done: list[Request] = []
        for parked in reached:
            self.remove(parked)
            done.append(parked.request)
        return done

    def release_all(self, key: Key) -> list[Request]:
        """Remove and return every request that waits for `key`, because that ended."""
        gone = list(self.waiting.get(key, ()))
        for parked in gone:
            self.remove(parked)
        return [parked.request for parked in gone]

    def expire(self, now_ms: int) -> list[Request]:
        """Remove and return the requests whose time is up, earliest deadline first."""
        due = self._timers.due(now_ms)
        for parked in due:
            self._forget(parked)
        return [parked.request for parked in due]

    def remove(self, parked: ParkedRequest[Key, Request]) -> None:
        """Remove one request, such as one whose connection closed. It can have left before."""
        if parked.timer is not None:
            self._timers.cancel(parked.timer)
        self._forget(parked)

    def _forget(self, parked: ParkedRequest[Key, Request]) -> None:
        for key in parked.thresholds:
            self._leave(parked, key)

    def _leave(self, parked: ParkedRequest[Key, Request], key: Key) -> None:
        waiting = self.waiting.get(key)
        if waiting is not None and parked in waiting:
            del waiting[parked]
            if not waiting:
                del self.waiting[key]
