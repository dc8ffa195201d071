"""Limits the handshakes of one TLS listener: their number, and their time in one iteration of the
event loop.

A handshake costs about a millisecond, and every program that reaches the port can begin one. So a
listener works on at most `UNDER_WAY_MAX` handshakes at a time. Further connections are not read
until a slot is free, and their own time limit runs in the meantime (`tls_link`). A connection takes
a slot when its first bytes arrive, so silent connections take none. While connections wait, a
handshake can keep its slot for at most `PLACE_NS_MAX`, so abandoned handshakes cannot keep out
other peers. When the handshakes have used `TURN_NS_MAX` of one iteration, the remaining ones
continue in the next iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.budget import TurnBudget
from broker.world import Soon

UNDER_WAY_MAX = 32
TURN_NS_MAX = 20_000_000
PLACE_NS_MAX = 1_000_000_000
"""The time in nanoseconds after which a handshake must give its slot to a waiting connection."""


class HandshakingLink(Protocol):
    """A connection whose handshake is not complete."""

    def pause_handshake(self) -> None:
        """Read nothing more until `continue_handshake` is called."""

    def continue_handshake(self) -> None:
        """Continue the handshake with the received bytes, and read more."""

    def reject_handshake(self) -> None:
        """Close the connection, because other connections wait for its slot."""


class Handshakes:
    """The slots of one listener for handshakes, and the connections that wait for a slot."""

    def __init__(
        self,
        turn_ns: Callable[[], int],
        soon: Soon,
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """`later(seconds, call)` calls a function after a time."""
        self._turn_ns = turn_ns
        self._soon = soon
        self._later = later
        self._budget = TurnBudget(turn_ns, soon, TURN_NS_MAX)
        # Dictionaries keep the order in which the connections came.
        self._under_way: dict[HandshakingLink, int] = {}
        """The time in nanoseconds at which each link took its slot."""
        self._waiting: dict[HandshakingLink, None] = {}
        self._postponed: dict[HandshakingLink, None] = {}
        self._is_scheduled = False
        self._has_timer = False

    @property
    def under_way(self) -> int:
        """The number of handshakes that have a slot."""
        return len(self._under_way)

    @property
    def waiting(self) -> int:
        """The number of connections that wait for a slot."""
        return len(self._waiting)

    def step(self, link: HandshakingLink) -> None:
        """Continue the handshake of a connection that has received bytes, now or later."""
        if link not in self._under_way:
            if len(self._under_way) >= UNDER_WAY_MAX:
                self._waiting[link] = None
                link.pause_handshake()
                self._free_places()
                return
            self._under_way[link] = self._turn_ns()
        if self._budget.is_spent(self._turn_ns()):
            self._postpone(link)
        else:
            link.continue_handshake()

    def leave(self, link: HandshakingLink) -> None:
        """Free the slot of a handshake that is complete or has failed."""
        self._waiting.pop(link, None)
        self._postponed.pop(link, None)
        if link not in self._under_way:
            return
        del self._under_way[link]
        if self._waiting:
            following = next(iter(self._waiting))
            del self._waiting[following]
            self._under_way[following] = self._turn_ns()
            self._postpone(following)

    def _free_places(self) -> None:
        """Close handshakes that have kept their slots for too long, while connections wait."""
        while self._waiting:
            oldest, since_ns = next(iter(self._under_way.items()))
            left_ns = since_ns + PLACE_NS_MAX - self._turn_ns()
            if left_ns > 0:
                if not self._has_timer:
                    self._has_timer = True
                    self._later(left_ns / 1e9, self._check_again)
                return
            oldest.reject_handshake()

    def _check_again(self) -> None:
        self._has_timer = False
        self._free_places()

    def _postpone(self, link: HandshakingLink) -> None:
        self._postponed[link] = None
        link.pause_handshake()
        if not self._is_scheduled:
            self._is_scheduled = True
            self._soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        due, self._postponed = self._postponed, {}
        for link in due:
            # The handshake of another link can have closed this link in the meantime.
            if link in self._under_way:
                self.step(link)
