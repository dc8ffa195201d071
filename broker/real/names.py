"""Resolves host names outside of the event loop, and caches the answers.

A resolver can take half a minute. Some names, such as those of containers, exist only while their
machine runs. So a connection attempt waits only briefly for the resolver if the name was resolved
before, and not at all if the caller asks for that. A failed lookup does not remove the cached
addresses.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from broker.real.workers import Worker

WAIT_S_MAX = 0.2
"""The longest wait in seconds for the resolver if an earlier answer is cached.

A broker has half a second in total to reconnect.
"""

FIRST_WAIT_S_MAX = 2.0
"""The longest wait in seconds for the resolver if no answer is cached."""

NAMES_MAX = 256
"""The largest number of cached names. Beyond it, the oldest answer is removed."""


class ResolvedAddress(NamedTuple):
    """One address of a name for any port, in the form that `socket` needs."""

    family: int
    sockaddr: tuple[Any, ...]

    def at(self, port: int) -> tuple[Any, ...]:
        """Return the socket address with this port."""
        return (self.sockaddr[0], port, *self.sockaddr[2:])


Resolve = Callable[..., Sequence[tuple[Any, ...]]]
"""The type of `socket.getaddrinfo`."""


class Names:
    """The host names that one process uses."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, resolve: Resolve = socket.getaddrinfo
    ) -> None:
        self._loop = loop
        self._resolve = resolve
        self._known: dict[str, Sequence[ResolvedAddress]] = {}
        self._lookups: dict[str, asyncio.Future[Exception | None]] = {}

    async def find(self, host: str, *, asks_resolver: bool) -> Sequence[ResolvedAddress]:
        """Return the addresses of a host name or of a literal address; empty if unknown.

        Raises OSError if this machine could not ask, for example without a free descriptor, and no
        earlier answer is cached.
        """
        if literal := _literal(host):
            return literal
        if asks_resolver:
            wait_s = WAIT_S_MAX if host in self._known else FIRST_WAIT_S_MAX
            lookup = self.look_up(host)
            await asyncio.wait([lookup], timeout=wait_s)
            error = lookup.result() if lookup.done() else None
            if error is not None and host not in self._known:
                raise error
        return self._known.get(host, ())

    def look_up(self, host: str) -> asyncio.Future[Exception | None]:
        """Resolve a name, or join the lookup in progress.

        The future always ends without an exception. Its result is the error if this machine could
        not ask the resolver; an answer that the name is unknown is no error.
        """
        lookup = self._lookups.get(host)
        if lookup is not None:
            return lookup
        lookup = self._lookups[host] = self._loop.create_future()
        # Each lookup has its own thread, because a slow name must not delay another one.
        worker = Worker(self._loop, "resolver")

        def over(error: Exception | None = None) -> None:
            del self._lookups[host]
            worker.stop(0)
            if not lookup.done():
                is_unable = isinstance(error, OSError) and not isinstance(error, socket.gaierror)
                lookup.set_result(error if is_unable else None)

        def done(found: Sequence[ResolvedAddress]) -> None:
            self._remember(host, found)
            over()

        worker.run(lambda: self._ask(host), done, over)
        return lookup

    def _ask(self, host: str) -> Sequence[ResolvedAddress]:
        """Ask the resolver, in the thread.

        Raises socket.gaierror if the name is unknown, OSError if this machine could not ask.
        """
        try:
            answer = self._resolve(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        except UnicodeError as error:
            # The name is invalid. For example, it has a label of more than 63 characters.
            text = f"{host!r} is not a valid host name: {error}"
            raise socket.gaierror(socket.EAI_NONAME, text) from error
        return [ResolvedAddress(family, sockaddr) for family, _, _, _, sockaddr in answer]

    def _remember(self, host: str, found: Sequence[ResolvedAddress]) -> None:
        self._known.pop(host, None)
        self._known[host] = found
        while len(self._known) > NAMES_MAX:
            del self._known[next(iter(self._known))]


def _literal(host: str) -> Sequence[ResolvedAddress]:
    """Return the address if the host is a literal address, else an empty sequence."""
    for family, ending in ((socket.AF_INET, ()), (socket.AF_INET6, (0, 0))):
        try:
            socket.inet_pton(family, host)
        except (OSError, UnicodeError):
            continue
        return [ResolvedAddress(family, (host, 0, *ending))]
    # Only getaddrinfo knows IPv6 addresses with a zone, such as fe80::1%eth0, and the short forms
    # of IPv4, such as 127.1. It needs a free descriptor even for them.
    try:
        answer = socket.getaddrinfo(
            host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except (OSError, UnicodeError):
        return ()
    return [ResolvedAddress(family, sockaddr) for family, _, _, _, sockaddr in answer]
