"""How long one turn of the loop may work for clients, and for one of them.

Ground floor. Pure. A connection has a budget of its own (`sessions`); a hundred busy ones would
still keep everybody else waiting for a hundred times as long. So all connections of clients share
one more: what does not fit into this turn waits for the next, and in between the loop looks at
every socket, timer and finished sync. Other brokers never wait for clients: they have no budget.

A session whose turn is over pauses reading until no whole frame is left in its buffer. Without the
pause libuv would read the same socket up to 32 times in a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.world import Soon

SESSION_TURN_NS_MAX = 20_000_000
"""Requests of one session that take longer together let the others have a turn in between."""

TURN_GAP_NS = 2_000_000
"""A read that follows so soon belongs to the same turn: libuv reads one socket many times in a row.

A read that merely seems to follow costs a pause; one taken for a new turn would cost the others 20
ms each time.
"""

LOOP_TURN_NS_MAX = 50_000_000
"""After so much work for clients the loop looks around."""


class Budget(Protocol):
    """What the sessions of a listener share of one turn of the loop."""

    def is_spent(self, now_ns: int) -> bool:
        """Whether the turn is over for whoever wants to begin something at this time."""


class NoBudget:
    """For those who never wait for others: it is never spent."""

    def is_spent(self, now_ns: int) -> bool:
        return False


class TurnBudget:
    """Shared by the sessions of all clients."""

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
        """Whether the turn is over for whoever wants to begin something at this time."""
        if not self._is_open:
            self._is_open = True
            self._end_ns = now_ns + self._limit_ns
            self._soon(self._renew)
            return False
        return now_ns > self._end_ns

    def _renew(self) -> None:
        self._is_open = False
