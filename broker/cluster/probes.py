"""Probes whether a silent broker is dead: one connection attempt to its listener.

Room: cluster. The kernel of the other machine accepts a connection even if the process stands
still. So only a refused connection shows that the process is gone. A probe does not use the name
resolver, because the names of containers disappear with them and a lost name server must not fence
any broker.

`controller/suspicion` draws the conclusions: for `controller/liveness` about brokers, and for
`leader_watch` about the leader that a voter follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from broker.controller.suspicion import ProbeVerdict
from broker.world import Address, End, Link, World

VERDICTS: Mapping[End, ProbeVerdict] = MappingProxyType(
    {
        End.REFUSED: ProbeVerdict.REFUSED,
        # The connection existed for a moment, so the other machine, or a device in front of it, has
        # accepted it.
        End.RESET: ProbeVerdict.ACCEPTED,
        End.EOF: ProbeVerdict.ACCEPTED,
        End.TIMED_OUT: ProbeVerdict.SILENT,
        End.UNREACHABLE: ProbeVerdict.UNREACHABLE,
        # The attempt could not even be made, so it proves as little as an unknown name.
        End.UNRESOLVED: ProbeVerdict.UNRESOLVED,
        End.CLOSED: ProbeVerdict.UNRESOLVED,
    }
)
"""What the end of a connection attempt shows about the broker at that address."""

VerdictCallback = Callable[[ProbeVerdict], None]


class Probes:
    """The probes under way."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._under_way: dict[_Dialled, None] = {}

    def start(self, address: Address | None, told: VerdictCallback) -> None:
        """Probe an address and call `told` once with the verdict, after this returns.

        Without an address (None) the probe cannot be made; the verdict is UNRESOLVED.
        """
        if address is None:
            self._world.soon(told, ProbeVerdict.UNRESOLVED)
            return
        dialled = _Dialled(partial(self._over, told))
        self._under_way[dialled] = None
        dialled.link = self._world.dial(address, dialled, asks_resolver=False)

    def close(self) -> None:
        """Stop all probes without a verdict."""
        under_way, self._under_way = self._under_way, {}
        for dialled in under_way:
            dialled.close()

    def _over(self, told: VerdictCallback, dialled: _Dialled, verdict: ProbeVerdict) -> None:
        # A probe that was closed before it connected gives no verdict.
        if dialled in self._under_way:
            del self._under_way[dialled]
            told(verdict)


class _Dialled:
    """The receiver of one probe's link. The probe sends nothing and receives nothing."""

    def __init__(self, over: Callable[[_Dialled, ProbeVerdict], None]) -> None:
        self.link: Link | None = None
        self._over = over

    def linked(self, link: Link) -> None:
        """The connection was accepted."""
        link.close()
        self._over(self, ProbeVerdict.ACCEPTED)

    def take(self, frames: Iterator[memoryview]) -> None:
        """Ignore frames, because the probe sent no request."""

    def drained(self) -> None:
        """Do nothing, because the probe sent nothing."""

    def ended(self, end: End, reason: str = "") -> None:
        """The connection could not be made; `end` says why."""
        self.close()
        self._over(self, VERDICTS[end])

    def close(self) -> None:
        """Stop this probe."""
        if self.link is not None:
            self.link.close()
