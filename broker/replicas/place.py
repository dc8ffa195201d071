"""A broker's place in its cluster, as far as what it leads depends on it.

Floor: replicas.
"""

from __future__ import annotations

from typing import Protocol

from broker.world import Clock


class Place(Protocol):
    """This broker's place in its cluster, as far as what it leads depends on it."""

    @property
    def lived_ms(self) -> int:
        """The time by which followers are late, the stalls of this process left out."""

    @property
    def may_read(self) -> bool:
        """Whether what it leads may be told to readers: nobody can lead it by now but this broker
        (decision 0057)."""


class Alone:
    """The place of a broker that is the only one."""

    may_read = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @property
    def lived_ms(self) -> int:
        return self._clock.monotonic_ms()
