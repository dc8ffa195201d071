"""Incoming connections: binds sockets and accepts connections.

Sockets are bound before recovery begins, so that a port in use stops the start at once. They listen
only when requests can be served.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from time import perf_counter_ns
from typing import NamedTuple, TypeVar

from broker.config import BROKER_LISTENER, Listener
from broker.metrics.warnings import Warnings
from broker.real.certificates import Certificates
from broker.real.connection import SocketLink
from broker.real.handshakes import Handshakes
from broker.real.link_certificates import LinkCertificates
from broker.real.link_refusals import LinkRefusals
from broker.real.silence import end_when_silent
from broker.real.tls_engine import TlsEngine, TlsError
from broker.real.tls_link import TlsLink
from broker.real.warmer import Warmer
from broker.world import PortTaken, Receiver

logger = logging.getLogger(__name__)

BACKLOG = 512


def bind(setting: str, host: str, port: int) -> socket.socket:
    """Return a bound socket that does not yet listen. Raises PortTaken if it cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # `::` means all addresses, also those of IPv4, whatever the system's default is.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(taken_text(setting, host, port)) from error
        if error.errno == errno.EADDRNOTAVAIL:
            text = f"{setting}: this machine does not have the address {host}"
            raise PortTaken(text) from error
        raise PortTaken(f"{setting}: cannot bind {host}:{port}: {error.strerror}") from error
    return bound


def taken_text(setting: str, host: str, port: int) -> str:
    """Return the error message for a port in use."""
    return f"port {port} on {host} ({setting}) is in use{_holder(port)}"


def _holder(port: int) -> str:
    """Return ` by process …` if the system names the process that uses the port, else an empty
    string."""
    # Import psutil here, because only a failed start needs it.
    import psutil

    try:
        for one in psutil.net_connections(kind="tcp"):
            address = one.laddr
            if one.status == psutil.CONN_LISTEN and one.pid and address and address.port == port:
                return f" by process {one.pid} ({psutil.Process(one.pid).name()})"
    except psutil.Error:
        pass
    return ""


class AcceptedLink(SocketLink):
    """A connection that a client or another broker has opened."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        receiver: Receiver,
        warmer: Warmer,
        frame_bytes_max: int,
        unread_bytes_max: int,
        warnings: Warnings,
    ) -> None:
        super().__init__(loop, receiver, warmer, frame_bytes_max, unread_bytes_max)
        self._warnings = warnings

    def _unlinked(self, error: OSError) -> None:
        self._warnings.warn(logger, "connection not accepted", peer=self.peer, reason=error)


class AcceptedTlsLink(TlsLink, AcceptedLink):
    """A connection over TLS that a client has opened."""


class AcceptedBrokerLink(AcceptedTlsLink):
    """A connection over TLS that another broker has opened. It records its failures in `refusals`,
    so the receiver does not log them."""

    refusals: LinkRefusals

    def note_first_bytes(self) -> None:
        self.refusals.linked(self.peer_id, self.peer_host)

    def note_failure(self, error: TlsError) -> str:
        self.refusals.accepted(self.peer_host, error)
        return ""


Secured = TypeVar("Secured", bound=AcceptedTlsLink)


class BrokerLinks(NamedTuple):
    """The certificates of the connections between brokers, and the record of refused
    connections."""

    certificates: LinkCertificates
    refusals: LinkRefusals


class SocketListening:
    """One named listener: a bound socket and its accepted connections."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        address: Listener,
        take: Callable[[], Receiver],
        warmer: Warmer,
        frame_bytes_max: int,
        unread_bytes_max: int,
        warnings: Warnings,
        silence_ms_max: int = 0,
        certificates: Certificates | None = None,
        links: BrokerLinks | None = None,
    ) -> None:
        """Bind the socket. Raises PortTaken if it cannot be bound.

        A connection ends if the other side's kernel does not answer for `silence_ms_max`. 0 means
        the kernel's default, which is minutes. A listener with TLS needs `certificates`, or `links`
        if it is for other brokers.
        """
        self._loop = loop
        self._setting = f"listener {name}"
        self._address = address
        self._take = take
        self._warmer = warmer
        self._warnings = warnings
        self._frame_bytes_max = frame_bytes_max
        self._unread_bytes_max = unread_bytes_max
        self._bound = bind(self._setting, address.host, address.port)
        if silence_ms_max:
            # Accepted sockets inherit this option.
            end_when_silent(self._bound, silence_ms_max)
        self._links = links if address.has_tls and name == BROKER_LISTENER else None
        self._certificates = certificates if address.has_tls else None
        self._handshakes = Handshakes(perf_counter_ns, loop.call_soon, loop.call_later)
        self._server: asyncio.Server | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_closed = False

    def open(self) -> None:
        """Start listening. Raises PortTaken if another process already listens on the port."""
        try:
            self._bound.listen(BACKLOG)
        except OSError as error:
            raise PortTaken(
                taken_text(self._setting, self._address.host, self._address.port)
            ) from error
        # Connections that are made before the loop runs `_serve` wait in the kernel.
        self._opening = self._loop.create_task(self._serve())

    async def _serve(self) -> None:
        link: Callable[[], AcceptedLink] = self._link
        if self._links is not None:
            link = self._broker_link
        elif self._certificates is not None:
            link = self._tls_link
        server = await self._loop.create_server(link, sock=self._bound, backlog=BACKLOG)
        if self._is_closed:
            server.close()
        self._server = server

    def _link(self) -> AcceptedLink:
        return AcceptedLink(
            self._loop,
            self._take(),
            self._warmer,
            self._frame_bytes_max,
            self._unread_bytes_max,
            self._warnings,
        )

    def _tls_link(self) -> AcceptedTlsLink:
        assert self._certificates is not None
        return self._secured(AcceptedTlsLink, self._certificates.for_client())

    def _broker_link(self) -> AcceptedBrokerLink:
        assert self._links is not None
        link = self._secured(AcceptedBrokerLink, self._links.certificates.from_broker())
        link.refusals = self._links.refusals
        return link

    def _secured(self, kind: type[Secured], engine: TlsEngine) -> Secured:
        link = kind(
            self._loop,
            self._take(),
            self._warmer,
            self._frame_bytes_max,
            self._unread_bytes_max,
            self._warnings,
        )
        link.secure(engine, self._handshakes)
        return link

    def close(self) -> None:
        """Accept no more connections."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        elif self._opening is None:
            self._bound.close()
