"""Limits the time that the event loop works for clients in one iteration: for one connection, and
for all.

This module is pure. Each connection has its own budget (`sessions`), but a hundred busy connections
would together delay all others by a hundred times that time. So all client connections share one
more budget. Work that exceeds it waits for the next iteration. In between, the loop handles every
socket, timer and finished fsync. Other brokers have no budget, so they never wait for clients.

A session that has used its time pauses reading until no whole frame is left in its buffer. Without
the pause libuv would read the same socket up to 32 times in a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.world import Soon

SESSION_TURN_NS_MAX = 20_000_000
"""The longest time in nanoseconds that one session works before others are served."""

TURN_GAP_NS = 2_000_000
"""If the next read of a session comes within this time in nanoseconds after a read, both share one
time limit, because libuv reads one socket several times in a row.

If an unrelated read is included by mistake, the session only pauses too early. If each read in a
row got its own time limit, each would delay the other connections by 20 ms.
"""

LOOP_TURN_NS_MAX = 50_000_000
"""The longest time in nanoseconds that the loop works for clients before it handles its other
events."""


class WorkBudget(Protocol):
    """The work time in one iteration of the loop that the sessions of a listener share."""

    def is_spent(self, now_ns: int) -> bool:
        """Return True if no more work may begin in this iteration of the loop."""


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
        """Return True if no more work may begin in this iteration of the loop."""
        if not self._is_open:
            self._is_open = True
            self._end_ns = now_ns + self._limit_ns
            self._soon(self._renew)
            return False
        return now_ns > self._end_ns

    def _renew(self) -> None:
        self._is_open = False
