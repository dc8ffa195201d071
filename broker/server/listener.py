"""Where clients come in: bound sockets, accepted connections, and the limits on them.

Floor: server. A listener's name decides which addresses its clients are told. Sockets are bound
before anything is recovered, so that a port in use stops the start at once, and listen only when
everything can be served.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from typing import TYPE_CHECKING

from broker.config import Listener
from broker.server.connection import Connection

if TYPE_CHECKING:
    from broker.server.dispatch import Dispatcher
    from broker.server.services import Services

BACKLOG = 512

FIRST_BYTE_MS_MAX = 10_000
"""A connection that says nothing at all is none of our clients'."""

FRAME_MS_MAX = 30_000
"""From a frame's first byte to its last."""

SHRINK_AFTER_MS = 5_000
"""A connection silent for so long gives its read buffer back."""


BUFFER_BYTES_MAX = 512 << 20
"""What unfinished and waiting requests of all connections may take together."""


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


class Connections:
    """All open connections of the broker, whatever listener they came in by."""

    def __init__(self, count_max: int, per_host_max: int) -> None:
        self.open: dict[Connection, None] = {}
        self._count_max = count_max
        self._per_host_max = per_host_max
        self._per_host: Counter[str] = Counter()
        self.buffer_bytes = 0

    def limit(self, count_max: int, per_host_max: int) -> None:
        """Set the limits anew; connections that are open stay."""
        self._count_max, self._per_host_max = count_max, per_host_max

    def admit(self, connection: Connection) -> str:
        """Take a connection in; else the limit that it breaks."""
        host = connection.peer_host
        if len(self.open) >= self._count_max:
            return f"max.connections {self._count_max} is reached"
        if self._per_host[host] >= self._per_host_max:
            return f"max.connections.per.ip {self._per_host_max} is reached"
        self.open[connection] = None
        self._per_host[host] += 1
        return ""

    def account(self, added_bytes: int) -> str:
        """Note a change in what a connection holds; the limit if that is too much for all."""
        self.buffer_bytes += added_bytes
        if added_bytes > 0 and self.buffer_bytes > BUFFER_BYTES_MAX:
            return f"requests of all connections take more than {BUFFER_BYTES_MAX} bytes"
        return ""

    def release(self, connection: Connection) -> None:
        """Count a connection out."""
        if connection in self.open:
            del self.open[connection]
            host = connection.peer_host
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]

    def sweep(self, now_ms: int, idle_ms_max: int) -> None:
        """Close the connections whose time is over, and take memory from the silent ones."""
        for connection in list(self.open):
            silent_ms = now_ms - connection.last_active_ms
            if connection.frame_since_ms and now_ms - connection.frame_since_ms > FRAME_MS_MAX:
                connection.close(f"a request took longer than {FRAME_MS_MAX} ms to arrive")
            elif not connection.has_spoken and silent_ms > FIRST_BYTE_MS_MAX:
                connection.close(f"nothing was sent for {FIRST_BYTE_MS_MAX} ms")
            elif silent_ms > idle_ms_max and (connection.is_idle or connection.is_stalled):
                connection.close("connections.max.idle.ms is over", is_logged=False)
            elif silent_ms > SHRINK_AFTER_MS:
                connection.shrink()


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
        refusal = self._connections.admit(connection)
        if refusal:
            self.services.metrics.connections_refused += 1
        else:
            self.services.metrics.connections_total += 1
        return refusal

    def account(self, added_bytes: int) -> str:
        """Note a change in what one connection holds; else the limit that it breaks."""
        return self._connections.account(added_bytes)

    def released(self, connection: Connection) -> None:
        """A connection has ended."""
        self._connections.release(connection)
