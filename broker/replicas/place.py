"""A broker's standing in its cluster, as far as its leaderships depend on it.

Room: replicas.
"""

from __future__ import annotations

from typing import Protocol

from broker.world import Clock


class BrokerPlace(Protocol):
    """This broker's standing in its cluster, as far as its leaderships depend on it."""

    @property
    def lived_ms(self) -> int:
        """The time by which a follower's lag is measured: without the stalls of this process."""

    @property
    def may_read(self) -> bool:
        """Whether this broker may answer reads as a leader, because no other broker can have become
        leader (decision 0057).
        """


class Alone:
    """The standing of a broker without a cluster."""

    may_read = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @property
    def lived_ms(self) -> int:
        return self._clock.monotonic_ms()
