"""Serves the application: in the clear on the loopback, or over TLS, and on the mill's own socket.

uvicorn serves each connection. If the page has a certificate, this module accepts the connections.
The first byte of a connection shows whether the client speaks TLS. A client without TLS gets a
short answer that names https. A client must complete its first request within ten seconds, and the
numbers of handshakes and of open connections are limited, in all and for each address.
"""

import asyncio
import logging
import socket
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE

from monitor.login.logins import OWN_KEY
from monitor.login.throttle import network_of
from monitor.tls import PageCertificate
from protocol.control import short_path
from protocol.descriptors import raise_descriptor_limit
from protocol.log import fields

TLS_HANDSHAKE = b"\x16"
FIRST_REQUEST_S = 10.0
GREETINGS_MAX = 200
GREETINGS_OF_ONE_MAX = 20
CONNECTIONS_MAX = 1_000
CONNECTIONS_OF_ONE_MAX = 200
DESCRIPTORS_WANTED = 4_096
"""More than all connections need together, so that the monitor can still open its files and reach
the brokers."""

ACCEPT_AGAIN_S = 1.0
ACCEPTED_AT_ONCE = 32
BACKLOG = 256
DRAINED_BYTES_MAX = 64 * 1024
DRAINED_S = 2.0
SOCKET_MODE = 0o600

logger = logging.getLogger("monitor")


class OwnRequests:
    """Marks the requests of the mill's own socket. Only the mill's account can open it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request with the mark."""
        await self._app({**scope, OWN_KEY: True}, receive, send)


class PageServer(uvicorn.Server):
    """uvicorn's server with the mill's own socket, and with TLS if there is a certificate."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: ASGIApp,
        *,
        own_socket: Path | None,
        serves_own: bool,
        certificate: PageCertificate | None,
        name: str = "",
    ) -> None:
        super().__init__(config)
        self._app = app
        self._own_socket = own_socket
        self._serves_own = serves_own
        self._certificate = certificate
        self._name = name

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and listen."""
        await super().startup([] if self._certificate is not None else sockets)
        self.started = False
        try:
            await self._listen()
        except OSError as error:
            logger.error("the monitor cannot listen", extra=fields(why=error))
            for server in self.servers:
                server.close()
            await self.lifespan.shutdown()
            sys.exit(STARTUP_FAILURE)
        self.started = True

    async def _listen(self) -> None:
        """Listen on the mill's own socket and with TLS. Raise OSError."""
        if self._own_socket is not None:
            # Remove the socket that a killed monitor has left, because commands use the socket if
            # it exists.
            self._own_socket.unlink(missing_ok=True)
            if self._serves_own:
                self.servers.append(await self._listen_own(self._own_socket))
        if self._certificate is not None:
            door = TlsDoor(self, self._certificate, self._name)
            door.listen()
            self.servers.append(door)  # type: ignore[arg-type]  # it is closed like a server

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, and remove the mill's own socket."""
        await super().shutdown(sockets)
        if self._own_socket is not None:
            self._own_socket.unlink(missing_ok=True)

    def connection(
        self, config: uvicorn.Config, on_lost: Callable[[], None] | None = None
    ) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        base: Any = config.http_protocol_class

        class PageConnection(base):  # type: ignore[misc]  # uvicorn chooses the class
            """A connection that ends if no request arrives, and reports its end."""

            def connection_made(self, transport: asyncio.Transport) -> None:
                super().connection_made(transport)
                asyncio.get_running_loop().call_later(FIRST_REQUEST_S, self.end_if_silent)

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                if on_lost is not None:
                    on_lost()

            def end_if_silent(self) -> None:
                if self.cycle is None:
                    self.transport.abort()

        found: asyncio.Protocol = PageConnection(
            config=config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return found

    async def _listen_own(self, path: Path) -> asyncio.base_events.Server:
        config = uvicorn.Config(
            OwnRequests(self._app),
            log_config=None,
            access_log=False,
            lifespan="off",
            proxy_headers=False,
            server_header=False,
        )
        config.load()
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(path) as name:
            link.bind(name)
        # No client can connect before the server listens, so no other account can connect before
        # the mode is set.
        path.chmod(SOCKET_MODE)
        loop = asyncio.get_running_loop()
        return await loop.create_unix_server(lambda: self.connection(config), sock=link)


class TlsDoor:
    """Accepts connections, and passes those with TLS to uvicorn."""

    def __init__(self, server: PageServer, certificate: PageCertificate, name: str) -> None:
        self._server = server
        self._certificate = certificate
        self._name = name
        self._sockets: list[socket.socket] = []
        self._greetings: set[asyncio.Task[None]] = set()
        self._greeted: Counter[str] = Counter()
        self._open: Counter[str] = Counter()

    def listen(self) -> None:
        """Listen at the configured address. Raise OSError."""
        raise_descriptor_limit(DESCRIPTORS_WANTED)
        host, port = self._server.config.host, self._server.config.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = host == "::" and socket.has_dualstack_ipv6()
        link = socket.create_server(
            (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both
        )
        link.setblocking(False)
        asyncio.get_running_loop().add_reader(link.fileno(), self._accept, link)
        self._sockets.append(link)

    def close(self) -> None:
        """Stop listening, and drop the connections that uvicorn does not serve yet."""
        for link in self._sockets:
            asyncio.get_running_loop().remove_reader(link.fileno())
            link.close()
        self._sockets = []
        for task in self._greetings:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait for the tasks of the connections that uvicorn does not serve yet."""
        await asyncio.gather(*self._greetings, return_exceptions=True)

    def _accept(self, link: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, address = link.accept()
            except (BlockingIOError, ConnectionAbortedError):
                # There are no more, or the client has gone.
                return
            except OSError as error:
                self._pause(link, error)
                return
            connection.setblocking(False)
            network = network_of(str(address[0]))
            if not self._has_place(network):
                connection.close()
                continue
            self._greeted[network] += 1
            task = asyncio.ensure_future(self._greet(connection, network))
            self._greetings.add(task)
            task.add_done_callback(self._greetings.discard)

    def _pause(self, link: socket.socket, error: OSError) -> None:
        """Accept no connections for a moment, because the system has no descriptors or memory left
        and would report the same connection again at once."""
        logger.warning("the page cannot accept a connection", extra=fields(why=error))
        loop = asyncio.get_running_loop()
        loop.remove_reader(link.fileno())
        loop.call_later(ACCEPT_AGAIN_S, self._resume, link)

    def _resume(self, link: socket.socket) -> None:
        if link in self._sockets:
            asyncio.get_running_loop().add_reader(link.fileno(), self._accept, link)

    def _has_place(self, network: str) -> bool:
        return (
            len(self._greetings) < GREETINGS_MAX
            and self._greeted[network] < GREETINGS_OF_ONE_MAX
            and self._open.total() < CONNECTIONS_MAX
            and self._open[network] < CONNECTIONS_OF_ONE_MAX
        )

    async def _greet(self, connection: socket.socket, network: str) -> None:
        """Do the handshake with a client, or answer a client without TLS."""
        is_passed_on = False
        try:
            async with asyncio.timeout(FIRST_REQUEST_S):
                first = await _first_byte(connection)
                if first == TLS_HANDSHAKE:
                    is_passed_on = True
                    await self._secure(connection, network)
                elif first:
                    await self._name_https(connection)
        except OSError as error:
            # TimeoutError and ssl.SSLError are OSErrors. Scanners make too many of them for a line
            # in the log each.
            logger.debug("a connection to the page has failed", extra=fields(why=error))
        finally:
            _count_down(self._greeted, network)
            if not is_passed_on:
                connection.close()

    async def _secure(self, connection: socket.socket, network: str) -> None:
        self._open[network] += 1
        made = False

        def protocol() -> asyncio.Protocol:
            return self._server.connection(
                self._server.config, lambda: _count_down(self._open, network)
            )

        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                protocol,
                connection,
                ssl=self._certificate.context(),
                ssl_handshake_timeout=FIRST_REQUEST_S,
            )
            made = True
        finally:
            if not made:
                _count_down(self._open, network)

    async def _name_https(self, connection: socket.socket) -> None:
        """Answer a client without TLS, and read what it sends, so that it gets the answer."""
        port = self._server.config.port
        body = f"This page is served over HTTPS only: https://{self._name}:{port}/\n".encode()
        head = (
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, head.encode() + body)
        connection.shutdown(socket.SHUT_WR)
        left = DRAINED_BYTES_MAX
        async with asyncio.timeout(DRAINED_S):
            while left > 0 and (chunk := await loop.sock_recv(connection, 4096)):
                left -= len(chunk)


async def _first_byte(connection: socket.socket) -> bytes:
    """Wait for the first byte of a connection, and return it without taking it from the socket."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def note() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(connection.fileno(), note)
    try:
        await readable
    finally:
        loop.remove_reader(connection.fileno())
    return connection.recv(1, socket.MSG_PEEK)


def _count_down(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
