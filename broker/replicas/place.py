"""The facts about a broker's membership in its cluster on which its leaderships depend."""

from __future__ import annotations

from typing import Protocol

from broker.world import Clock


class BrokerPlace(Protocol):
    """The facts about this broker's membership on which its leaderships depend."""

    @property
    def lived_ms(self) -> int:
        """The time in milliseconds by which a follower's lag is measured, without the stalls of
        this process."""

    @property
    def may_read(self) -> bool:
        """True if this broker may answer reads as a leader, because no other broker can have become
        leader (decision 0057)."""


class Alone:
    """The facts for a broker that is configured alone. No other broker can become leader."""

    may_read = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @property
    def lived_ms(self) -> int:
        return self._clock.monotonic_ms()
