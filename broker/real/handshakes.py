"""The handshakes of one TLS listener: few at a time, and a part of each turn of the loop only.

Room: real. A handshake costs about a millisecond, and every program that reaches the port can begin
one. So a listener works on `UNDER_WAY_MAX` handshakes at a time. Further connections wait unread,
while their time limit runs (`tls_link`). A connection takes its place with its first bytes, so
silent ones take none. While others wait, a place is held for at most `PLACE_NS_MAX`: peers that
begin handshakes and leave them cannot keep out the others. After `TURN_NS_MAX` of one turn, the
rest waits for the next turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.budget import TurnBudget
from broker.world import Soon

UNDER_WAY_MAX = 32
TURN_NS_MAX = 20_000_000
PLACE_NS_MAX = 1_000_000_000


class ShakingLink(Protocol):
    """A connection whose handshake is not complete."""

    def hold(self) -> None:
        """Read nothing more until `shake_on`."""

    def shake_on(self) -> None:
        """Continue the handshake with the received bytes, and with reading."""

    def give_way(self) -> None:
        """Close, because others wait for the place."""


class Handshakes:
    """The places of one listener's handshakes, and the line for them."""

    def __init__(
        self,
        turn_ns: Callable[[], int],
        soon: Soon,
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """`later` calls after some seconds."""
        self._turn_ns = turn_ns
        self._soon = soon
        self._later = later
        self._budget = TurnBudget(turn_ns, soon, TURN_NS_MAX)
        # Dictionaries, because they keep the order in which the connections came.
        self._under_way: dict[ShakingLink, int] = {}
        """By link, when it took its place."""
        self._line: dict[ShakingLink, None] = {}
        self._postponed: dict[ShakingLink, None] = {}
        self._is_scheduled = False
        self._looks_later = False

    @property
    def under_way(self) -> int:
        """The number of handshakes that have a place."""
        return len(self._under_way)

    @property
    def waiting(self) -> int:
        """The number of connections that wait for a place."""
        return len(self._line)

    def step(self, link: ShakingLink) -> None:
        """Continue the handshake of a connection that has received bytes, now or later."""
        if link not in self._under_way:
            if len(self._under_way) >= UNDER_WAY_MAX:
                self._line[link] = None
                link.hold()
                self._free_places()
                return
            self._under_way[link] = self._turn_ns()
        if self._budget.is_spent(self._turn_ns()):
            self._postpone(link)
        else:
            link.shake_on()

    def leave(self, link: ShakingLink) -> None:
        """Give up the place of a handshake that is complete or has failed."""
        self._line.pop(link, None)
        self._postponed.pop(link, None)
        if link not in self._under_way:
            return
        del self._under_way[link]
        if self._line:
            following = next(iter(self._line))
            del self._line[following]
            self._under_way[following] = self._turn_ns()
            self._postpone(following)

    def _free_places(self) -> None:
        """Close the handshakes that have held their places for too long, while others wait."""
        while self._line:
            oldest, since_ns = next(iter(self._under_way.items()))
            left_ns = since_ns + PLACE_NS_MAX - self._turn_ns()
            if left_ns > 0:
                if not self._looks_later:
                    self._looks_later = True
                    self._later(left_ns / 1e9, self._look)
                return
            oldest.give_way()

    def _look(self) -> None:
        self._looks_later = False
        self._free_places()

    def _postpone(self, link: ShakingLink) -> None:
        self._postponed[link] = None
        link.hold()
        if not self._is_scheduled:
            self._is_scheduled = True
            self._soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        due, self._postponed = self._postponed, {}
        for link in due:
            # An earlier one of this turn can have ended it.
            if link in self._under_way:
                self.step(link)
