"""Connections by address: at most one each, made when needed, made again after a wait.

Floor: client. A `Link` shares one attempt among all who wait for it and spaces attempts by a
back-off; it does not repeat requests, which is up to those who know whether they may be repeated.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from protocol.client.backoff import Backoff
from protocol.client.connection import IN_FLIGHT_MAX, RESPONSE_BYTES_MAX, Connection
from protocol.client.errors import BrokerUnreachable, ClientClosed, ClientError, ConnectionLost

CONNECT_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """What all connections of one client have in common."""

    client_id: str
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    response_bytes_max: int = RESPONSE_BYTES_MAX
    in_flight_max: int = IN_FLIGHT_MAX


class Link:
    """The one connection to one address."""

    def __init__(
        self,
        host: str,
        port: int,
        settings: LinkSettings,
        backoff: Backoff,
        clock: Callable[[], int],
    ) -> None:
        self.host = host
        self.port = port
        self._settings = settings
        self._backoff = backoff
        self._clock = clock
        self._retry_at_ms = 0
        self._connection: Connection | None = None
        self._attempt: asyncio.Task[Connection] | None = None
        self._is_closed = False
        self._closed_by: ClientError = ClientClosed(f"the link to {host}:{port} was closed")

    @property
    def ready(self) -> Connection | None:
        """The connection if there is one, without waiting."""
        if self._connection is not None and self._connection.is_closed:
            self._connection = None
        return self._connection

    @property
    def is_backing_off(self) -> bool:
        """Whether the last attempt failed so recently that the next one has to wait."""
        return self.ready is None and self._clock() < self._retry_at_ms

    async def get(self) -> Connection:
        """The connection, made now if need be.

        Raises BrokerUnreachable when the attempt fails, also for those who joined it late.
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
            # A waiter that gives up must not take the attempt away from the others.
            return await asyncio.shield(self._attempt)
        except asyncio.CancelledError:
            if _is_cancelled(asyncio.current_task()):
                raise
            # It is the attempt that was cancelled, by `close`, and not its waiter.
            raise self._gone() from None

    async def close(self, error: ClientError | None = None) -> None:
        """End the connection and the attempt that may be under way.

        Whoever waits for an answer gets `error` (ClientClosed by default).
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
        """For whoever waits for a connection, and so has sent nothing."""
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
            )
        except BrokerUnreachable:
            self._retry_at_ms = self._clock() + self._backoff.next_ms()
            raise
        self._backoff.reset()
        # A broker that takes connections and drops them at once is spaced out as well.
        self._retry_at_ms = self._clock() + self._backoff.base_ms
        self._connection = connection
        return connection

    def _attempt_ended(self, attempt: "asyncio.Task[Connection]") -> None:
        self._attempt = None
        if not attempt.cancelled():
            # Seen here even if every waiter has left, so that asyncio does not complain.
            attempt.exception()


def _is_cancelled(task: "asyncio.Task[Any] | None") -> bool:
    return task is not None and task.cancelling() > 0
