"""Probes whether a broker that does not answer is dead, by one connection attempt to its listener.

The kernel of the other machine accepts a connection even if the process is stopped. So only a
refused connection shows that the process is gone. A probe does not resolve host names: the name of
a container disappears with the container, and the failure of a name server must not fence any
broker.

`controller/suspicion` draws the conclusions. `controller/liveness` uses it for brokers, and
`leader_watch` for the leader that a voter follows.
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
        # The connection was accepted and then closed. So the other machine, or a device in front of
        # it, is reachable.
        End.RESET: ProbeVerdict.ACCEPTED,
        End.EOF: ProbeVerdict.ACCEPTED,
        End.TIMED_OUT: ProbeVerdict.SILENT,
        End.UNREACHABLE: ProbeVerdict.UNREACHABLE,
        # The attempt could not be made, so it proves no more than an unknown host name.
        End.UNRESOLVED: ProbeVerdict.UNRESOLVED,
        End.CLOSED: ProbeVerdict.UNRESOLVED,
    }
)
"""The verdict about the broker at an address, by the end of the connection attempt."""

VerdictCallback = Callable[[ProbeVerdict], None]


class Probes:
    """The probes in progress."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._under_way: dict[_ProbeReceiver, None] = {}

    def start(self, address: Address | None, notify: VerdictCallback) -> None:
        """Probe an address. Call `notify` once with the verdict, after this method returns.

        Without an address (None) the verdict is UNRESOLVED.
        """
        if address is None:
            self._world.soon(notify, ProbeVerdict.UNRESOLVED)
            return
        receiver = _ProbeReceiver(partial(self._ended, notify))
        self._under_way[receiver] = None
        receiver.link = self._world.dial(address, receiver, asks_resolver=False)

    def close(self) -> None:
        """Stop all probes. They give no verdict."""
        under_way, self._under_way = self._under_way, {}
        for receiver in under_way:
            receiver.close()

    def _ended(
        self, notify: VerdictCallback, receiver: _ProbeReceiver, verdict: ProbeVerdict
    ) -> None:
        # A probe that `close` has stopped gives no verdict.
        if receiver in self._under_way:
            del self._under_way[receiver]
            notify(verdict)


class _ProbeReceiver:
    """Handles the result of one probe: the connection is accepted, or it fails.

    A probe only connects. It sends no request and ignores all data.
    """

    def __init__(self, over: Callable[[_ProbeReceiver, ProbeVerdict], None]) -> None:
        self.link: Link | None = None
        self._ended = over

    def linked(self, link: Link) -> None:
        """Report that the connection was accepted."""
        link.close()
        self._ended(self, ProbeVerdict.ACCEPTED)

    def take(self, frames: Iterator[memoryview]) -> None:
        """Ignore frames, because the probe sent no request."""

    def drained(self) -> None:
        """Do nothing, because the probe sent nothing."""

    def ended(self, end: End, reason: str = "") -> None:
        """Report that the connection could not be made. `end` says why."""
        self.close()
        self._ended(self, VERDICTS[end])

    def close(self) -> None:
        """Stop this probe."""
        if self.link is not None:
            self.link.close()
