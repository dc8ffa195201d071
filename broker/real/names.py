"""What host names mean: looked up beside the loop, and remembered.

Floor: real. A resolver may take half a minute, or be away with the machine that is asked about: the
names of containers go when they stop. So whoever dials waits for it only a little where the name
was known before, and not at all if he says so; a lookup that fails takes nothing back.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from broker.real.workers import Worker

WAIT_S_MAX = 0.2
"""How long the answer is waited for where an older one is known: a broker has half a second to
reconnect in all."""

FIRST_WAIT_S_MAX = 2.0
"""The same where none is known."""

NAMES_MAX = 256
"""So many names are remembered; beyond that the one that was looked up first is forgotten."""


class Found(NamedTuple):
    """One address of a name, as `socket` wants it, for any port."""

    family: int
    sockaddr: tuple[Any, ...]

    def at(self, port: int) -> tuple[Any, ...]:
        """The socket address with this port."""
        return (self.sockaddr[0], port, *self.sockaddr[2:])


Resolve = Callable[..., Sequence[tuple[Any, ...]]]
"""`socket.getaddrinfo`."""


class Names:
    """All names of one process."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, resolve: Resolve = socket.getaddrinfo
    ) -> None:
        self._loop = loop
        self._resolve = resolve
        self._known: dict[str, Sequence[Found]] = {}
        self._lookups: dict[str, asyncio.Future[None]] = {}

    async def find(self, host: str, *, asks_resolver: bool) -> Sequence[Found]:
        """The addresses of a name, or of an address written out; none where nobody knows."""
        if literal := _literal(host):
            return literal
        if asks_resolver:
            wait_s = WAIT_S_MAX if host in self._known else FIRST_WAIT_S_MAX
            await asyncio.wait([self.look_up(host)], timeout=wait_s)
        return self._known.get(host, ())

    def look_up(self, host: str) -> asyncio.Future[None]:
        """Look a name up, unless that is under way already; done when it has ended in any way."""
        lookup = self._lookups.get(host)
        if lookup is not None:
            return lookup
        lookup = self._lookups[host] = self._loop.create_future()
        # A thread of its own: a name that hangs must not keep another one waiting.
        worker = Worker(self._loop, "resolver")

        def over() -> None:
            del self._lookups[host]
            worker.stop(0)
            if not lookup.done():
                lookup.set_result(None)

        def done(found: Sequence[Found]) -> None:
            self._remember(host, found)
            over()

        worker.run(lambda: self._ask(host), done, lambda error: over())
        return lookup

    def _ask(self, host: str) -> Sequence[Found]:
        """In the thread. Raises OSError."""
        try:
            answer = self._resolve(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        except UnicodeError as error:
            # A name that cannot even be asked for, such as one with a label beyond 63 letters.
            raise OSError(f"{host!r} is no host name: {error}") from error
        return [Found(family, sockaddr) for family, _, _, _, sockaddr in answer]

    def _remember(self, host: str, found: Sequence[Found]) -> None:
        self._known.pop(host, None)
        self._known[host] = found
        while len(self._known) > NAMES_MAX:
            del self._known[next(iter(self._known))]


def _literal(host: str) -> Sequence[Found]:
    """The address itself, where the host is one."""
    try:
        answer = socket.getaddrinfo(
            host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except (OSError, UnicodeError):
        return ()
    return [Found(family, sockaddr) for family, _, _, _, sockaddr in answer]
