"""Limits on how long one turn of the loop works for clients, and for one connection.

Ground floor. Pure. Each connection has a budget of its own (`sessions`), but a hundred busy ones
would still delay all others a hundred times as long. So all client connections share one more
budget. Work that exceeds it waits for the next turn, and in between the loop handles every socket,
timer and finished sync. Other brokers have no budget, so they never wait for clients.

A session whose turn is over pauses reading until no whole frame is left in its buffer. Without the
pause libuv would read the same socket up to 32 times in a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.world import Soon

SESSION_TURN_NS_MAX = 20_000_000
"""The longest time that one session works in a row before others get a turn."""

TURN_GAP_NS = 2_000_000
"""A read within this time after the last one belongs to the same turn, because libuv reads one
socket several times in a row.

If an unrelated read counts as the same turn, it costs a pause. If the same turn counted as a new
one, it would cost the others 20 ms each time.
"""

LOOP_TURN_NS_MAX = 50_000_000
"""The most work for clients before the loop handles its other events."""


class WorkBudget(Protocol):
    """The part of one loop turn that the sessions of a listener share."""

    def is_spent(self, now_ns: int) -> bool:
        """Return True if no more work may begin in this turn."""


class UnlimitedBudget:
    """A budget that is never spent, for connections that never wait for others."""

    def is_spent(self, now_ns: int) -> bool:
        return False


class TurnBudget:
    """The budget that all client sessions share."""

    __slots__ = ("_end_ns", "_is_open", "_limit_ns", "_soon", "_turn_ns")

    def __init__(
        self, turn_ns: Callable[[], int], soon: Soon, limit_ns: int = LOOP_TURN_NS_MAX
    ) -> None:
        self._turn_ns = turn_ns
        self._soon = soon
        self._limit_ns = limit_ns
        self._is_open = False
        self._end_ns = 0

    def is_spent(self, now_ns: int) -> bool:
        """Return True if no more work may begin in this turn."""
        if not self._is_open:
            self._is_open = True
            self._end_ns = now_ns + self._limit_ns
            self._soon(self._renew)
            return False
        return now_ns > self._end_ns

    def _renew(self) -> None:
        self._is_open = False
