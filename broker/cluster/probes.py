"""Whether a broker that has gone quiet is dead: one dial to its listener, and what that means.

Floor: cluster. The kernel of the other machine answers a dial, also for a process that stands
still: only where it says that nobody listens is the process gone. A probe asks no resolver, for the
names of containers go with them, and a name server that is away must fence nobody.

What follows from a verdict is said by `controller/liveness` for brokers, and by `leader_watch` for
the leader that a voter follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from broker.controller.liveness import Verdict
from broker.world import Address, End, Link, World

VERDICTS: Mapping[End, Verdict] = MappingProxyType(
    {
        End.REFUSED: Verdict.REFUSED,
        # Its kernel, or something before it, knows of a link that has stood.
        End.RESET: Verdict.ACCEPTED,
        End.EOF: Verdict.ACCEPTED,
        End.TIMED_OUT: Verdict.SILENT,
        End.UNREACHABLE: Verdict.UNREACHABLE,
        # That we could not even try says as little as a name without a meaning.
        End.UNRESOLVED: Verdict.UNRESOLVED,
        End.CLOSED: Verdict.UNRESOLVED,
    }
)
"""What a dial that ended so says of whoever should listen there."""

Told = Callable[[Verdict], None]


class Probes:
    """The probes under way."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._under_way: dict[_Dialled, None] = {}

    def start(self, address: Address | None, told: Told) -> None:
        """Try an address, and say once what has become of it, but not before this returns.

        None is an address that nobody has told us: no verdict.
        """
        if address is None:
            self._world.soon(told, Verdict.UNRESOLVED)
            return
        dialled = _Dialled(partial(self._over, told))
        self._under_way[dialled] = None
        dialled.link = self._world.dial(address, dialled, asks_resolver=False)

    def close(self) -> None:
        """End all of them; nobody is told any more."""
        under_way, self._under_way = self._under_way, {}
        for dialled in under_way:
            dialled.close()

    def _over(self, told: Told, dialled: _Dialled, verdict: Verdict) -> None:
        # Not if it was closed before it stood.
        if dialled in self._under_way:
            del self._under_way[dialled]
            told(verdict)


class _Dialled:
    """The receiver of one probe's link: nothing is sent on it, and nothing heard."""

    def __init__(self, over: Callable[[_Dialled, Verdict], None]) -> None:
        self.link: Link | None = None
        self._over = over

    def linked(self, link: Link) -> None:
        """Somebody accepts."""
        link.close()
        self._over(self, Verdict.ACCEPTED)

    def take(self, frames: Iterator[memoryview]) -> None:
        """Nothing was asked."""

    def drained(self) -> None:
        """Nothing was sent."""

    def ended(self, end: End, reason: str = "") -> None:
        """It does not come to a link, for a reason that says something or not."""
        self.close()
        self._over(self, VERDICTS[end])

    def close(self) -> None:
        """Give it up."""
        if self.link is not None:
            self.link.close()
