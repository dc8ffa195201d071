"""Where fetches wait: for any of several offsets to be reached, or for their time to be up.

Ground floor. Pure; no coroutine, task or future per request. A request is parked under one or more
keys, each with a threshold; whoever raises a key's value (a high watermark) calls `release` with
it. What comes out is the request itself, for the driver to finish; it comes out exactly once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from broker.timers import Timer, Timers

Key = TypeVar("Key", bound=Hashable)
Request = TypeVar("Request")


class Parked(Generic[Key, Request]):
    """A waiting request: what it still waits for, and until when."""

    __slots__ = ("request", "thresholds", "timer")

    def __init__(self, request: Request, thresholds: dict[Key, int]) -> None:
        self.request = request
        self.thresholds = thresholds
        """Key -> the value at which it is satisfied."""
        self.timer: Timer[Parked[Key, Request]] | None = None


class Purgatory(Generic[Key, Request]):
    """All waiting requests of one kind.

    The driver keeps one timer for `next_deadline_ms` and calls `expire` when it is reached.
    """

    __slots__ = ("_timers", "waiting")

    def __init__(self) -> None:
        self._timers: Timers[Parked[Key, Request]] = Timers()
        self.waiting: dict[Key, dict[Parked[Key, Request], None]] = {}
        """Key -> its requests in the order of parking; the dict serves as an ordered set. While it
        is empty no release is worth a call."""

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
    ) -> Parked[Key, Request]:
        """Let a request wait until one of its keys reaches its threshold, at most to the deadline.

        A key named twice counts with its higher threshold. Without any key it waits for its
        deadline alone. The caller has checked that it must wait: values reached before are not
        looked at.
        """
        wanted: dict[Key, int] = {}
        for key, threshold in thresholds:
            wanted[key] = max(threshold, wanted.get(key, threshold))
        parked = Parked(request, wanted)
        for key in wanted:
            self.waiting.setdefault(key, {})[parked] = None
        parked.timer = self._timers.add(deadline_ms, parked)
        return parked

    def release(self, key: Key, value: int) -> list[Request]:
        """The requests that are complete now that `key` has reached `value`, oldest first."""
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
        """Every request that waits for `key`: it is gone or has moved, and waiting is in vain."""
        gone = list(self.waiting.get(key, ()))
        for parked in gone:
            self.remove(parked)
        return [parked.request for parked in gone]

    def expire(self, now_ms: int) -> list[Request]:
        """The requests whose time is up, earliest deadline first."""
        due = self._timers.due(now_ms)
        for parked in due:
            self._forget(parked)
        return [parked.request for parked in due]

    def remove(self, parked: Parked[Key, Request]) -> None:
        """Take a request out by hand, as when its connection closes; harmless when it has left."""
        if parked.timer is not None:
            self._timers.cancel(parked.timer)
        self._forget(parked)

    def _forget(self, parked: Parked[Key, Request]) -> None:
        for key in parked.thresholds:
            self._leave(parked, key)

    def _leave(self, parked: Parked[Key, Request], key: Key) -> None:
        waiting = self.waiting.get(key)
        if waiting is not None and parked in waiting:
            del waiting[parked]
            if not waiting:
                del self.waiting[key]
