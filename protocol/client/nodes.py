"""Connections by address: at most one per address, opened on demand, with a back-off.

A `NodeLink` shares one connection attempt among all callers. It does not repeat requests, because
only their callers know whether that is safe.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from protocol.client.backoff import Backoff
from protocol.client.connection import IN_FLIGHT_MAX, RESPONSE_BYTES_MAX, Connection
from protocol.client.errors import BrokerUnreachable, ClientClosed, ClientError, ConnectionLost
from protocol.client.login import ClientLogin, LoginRefused

CONNECT_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The common settings of all connections of one client."""

    client_id: str
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    response_bytes_max: int = RESPONSE_BYTES_MAX
    in_flight_max: int = IN_FLIGHT_MAX
    tls: ssl.SSLContext | None = None
    login: ClientLogin | None = None


class NodeLink:
    """The only connection to one address."""

    def __init__(
        self,
        host: str,
        port: int,
        settings: LinkSettings,
        backoff: Backoff,
        login_backoff: Backoff,
        clock: Callable[[], int],
    ) -> None:
        """Describe the link. `login_backoff` has the waits after refused logins."""
        self.host = host
        self.port = port
        self._settings = settings
        self._backoff = backoff
        self._login_backoff = login_backoff
        self._clock = clock
        self._retry_at_ms = 0
        self._connection: Connection | None = None
        self._attempt: asyncio.Task[Connection] | None = None
        self._is_closed = False
        self._closed_by: ClientError = ClientClosed(f"the link to {host}:{port} was closed")

    @property
    def ready(self) -> Connection | None:
        """The open connection; None if it would have to be opened first."""
        if self._connection is not None and self._connection.is_closed:
            self._connection = None
        return self._connection

    @property
    def is_backing_off(self) -> bool:
        """True if the last connection attempt failed so recently that the next one must wait."""
        return self.ready is None and self._clock() < self._retry_at_ms

    async def get(self) -> Connection:
        """Return the connection, and open it if needed.

        Raises BrokerUnreachable if the attempt fails, also to callers that joined the attempt late.
        """
        connection = self.ready
        if connection is not None:
            return connection
        if self._is_closed:
            raise self._gone()
        if self._attempt is None:
            self._attempt = asyncio.create_task(self._connect())
            self._attempt.add_done_callback(self._attempt_ended)
        try:
            # If this caller is cancelled, the attempt must continue for other callers.
            return await asyncio.shield(self._attempt)
        except asyncio.CancelledError:
            if _is_cancelled(asyncio.current_task()):
                raise
            # `close` has cancelled the attempt, and this caller itself was not cancelled.
            raise self._gone() from None

    async def close(self, error: ClientError | None = None) -> None:
        """Close the connection, and stop an attempt that is under way.

        Waiting requests fail with `error` (by default ClientClosed).
        """
        self._is_closed = True
        self._closed_by = error or self._closed_by
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.gather(self._attempt, return_exceptions=True)
        if self._connection is not None:
            self._connection.close(self._closed_by)
            self._connection = None

    def _gone(self) -> ClientError:
        """Return the error for callers that wait for a connection. They have sent nothing."""
        kind = type(self._closed_by)
        return (BrokerUnreachable if kind is ConnectionLost else kind)(*self._closed_by.args)

    async def _connect(self) -> Connection:
        wait_ms = self._retry_at_ms - self._clock()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
        try:
            connection = await Connection.open(
                self.host,
                self.port,
                client_id=self._settings.client_id,
                timeout_ms=self._settings.connect_timeout_ms,
                response_bytes_max=self._settings.response_bytes_max,
                in_flight_max=self._settings.in_flight_max,
                tls=self._settings.tls,
                login=self._settings.login,
            )
        except LoginRefused:
            # A wrong password stays wrong for longer than a broker stays away, and each login costs
            # the broker more than a connection.
            self._retry_at_ms = self._clock() + self._login_backoff.next_ms()
            raise
        except BrokerUnreachable:
            self._retry_at_ms = self._clock() + self._backoff.next_ms()
            raise
        self._backoff.reset()
        self._login_backoff.reset()
        # The back-off also applies to a broker that accepts connections and closes them at once.
        self._retry_at_ms = self._clock() + self._backoff.base_ms
        self._connection = connection
        return connection

    def _attempt_ended(self, attempt: "asyncio.Task[Connection]") -> None:
        self._attempt = None
        if not attempt.cancelled():
            # Retrieve the exception even if all callers have left, so that asyncio does not
            # complain.
            attempt.exception()


def _is_cancelled(task: "asyncio.Task[Any] | None") -> bool:
    return task is not None and task.cancelling() > 0
