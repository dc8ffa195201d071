"""Where clients come in: bound sockets and accepted connections.

Floor: real. A listener's name decides which addresses its clients are told. Sockets are bound
before anything is recovered, so that a port in use stops the start at once, and listen only when
everything can be served.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING

from broker.config import Listener
from broker.sessions.connection import Connection
from broker.sessions.sessions import Connections

if TYPE_CHECKING:
    from broker.node.services import Services
    from broker.sessions.dispatch import Dispatcher

BACKLOG = 512


class PortTaken(Exception):
    """A listener's address cannot be had; the message names it, the setting, and the holder."""


def bind(setting: str, host: str, port: int) -> socket.socket:
    """A socket bound to the address but not listening yet. Raises PortTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(taken_text(setting, host, port)) from error
        raise PortTaken(f"{setting}: cannot bind {host}:{port}: {error.strerror}") from error
    return bound


def taken_text(setting: str, host: str, port: int) -> str:
    """The sentence about a port in use."""
    return f"port {port} on {host} ({setting}) is in use{_holder(port)}"


def _holder(port: int) -> str:
    """` by process …` where the system tells, else nothing."""
    # Imported here because only a start that fails needs it.
    import psutil

    try:
        for one in psutil.net_connections(kind="tcp"):
            address = one.laddr
            if one.status == psutil.CONN_LISTEN and one.pid and address and address.port == port:
                return f" by process {one.pid} ({psutil.Process(one.pid).name()})"
    except psutil.Error:
        pass
    return ""


class ClientListener:
    """One named listener: accepts connections and hands them what they need."""

    def __init__(
        self,
        name: str,
        address: Listener,
        bound: socket.socket,
        services: Services,
        dispatcher: Dispatcher,
        connections: Connections,
    ) -> None:
        self.name = name
        self.address = address
        self.services = services
        self.dispatcher = dispatcher
        self._bound = bound
        self._connections = connections
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Begin to listen. Raises PortTaken when somebody else was quicker."""
        try:
            self._server = await self.services.loop.create_server(
                lambda: Connection(self), sock=self._bound, backlog=BACKLOG
            )
        except OSError as error:
            setting = f"listener {self.name}"
            raise PortTaken(taken_text(setting, self.address.host, self.address.port)) from error

    def close(self) -> None:
        """Accept no more."""
        if self._server is not None:
            self._server.close()
        else:
            self._bound.close()

    def admit(self, connection: Connection) -> str:
        """Take a new connection in; else the reason why not."""
        refusal = self._connections.admit(connection, self.services.clock.monotonic_ms())
        if refusal:
            self.services.metrics.connections_refused += 1
        else:
            self.services.metrics.connections_total += 1
        return refusal

    def spoke(self, connection: Connection) -> None:
        """A connection has sent its first byte."""
        self._connections.spoke(connection)

    def account(self, added_bytes: int) -> str:
        """Note a change in what one connection holds; else the limit that it breaks."""
        return self._connections.account(added_bytes)

    def released(self, connection: Connection) -> None:
        """A connection has ended."""
        self._connections.release(connection)
