"""Connections by address: at most one per address, opened on demand, with a back-off.

A `NodeLink` shares one connection attempt among all callers. It does not repeat requests, because
only their callers know whether that is safe.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.client.backoff import Backoff
from protocol.client.connection import IN_FLIGHT_MAX, RESPONSE_BYTES_MAX, Connection
from protocol.client.errors import (
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    ConnectionLost,
    EntryRefused,
)
from protocol.client.login import ClientLogin
from protocol.client.tls import ClientTls

CONNECT_TIMEOUT_MS = 10_000

REFUSED_BACKOFF_MS = (500, 30_000)
"""The first and the longest wait after a refusal. Until an operator changes a password or a
certificate, each attempt costs the broker a handshake and cannot succeed."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The common settings of all connections of one client."""

    client_id: str
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    response_bytes_max: int = RESPONSE_BYTES_MAX
    in_flight_max: int = IN_FLIGHT_MAX
    tls: ClientTls | None = None
    login: ClientLogin | None = None


class NodeLink:
    """The only connection to one address."""

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
        self._refused_backoff = Backoff(*REFUSED_BACKOFF_MS, backoff.rng)
        self.refusal: EntryRefused | None = None
        """The error of the last attempt, if the broker refused the login or was not trusted."""
        self._clock = clock
        self.retry_at_ms = 0
        """The time before which no connection is attempted."""
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
        return self.ready is None and self._clock() < self.retry_at_ms

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

    def time_out_error(self) -> BrokerUnreachable:
        """Return the error for an attempt that took too long."""
        return BrokerUnreachable(f"{self.host}:{self.port} did not accept a connection in time")

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
        wait_ms = self.retry_at_ms - self._clock()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
        tls = self._settings.tls
        try:
            connection = await Connection.open(
                self.host,
                self.port,
                client_id=self._settings.client_id,
                timeout_ms=self._settings.connect_timeout_ms,
                response_bytes_max=self._settings.response_bytes_max,
                in_flight_max=self._settings.in_flight_max,
                tls=None if tls is None else tls.context(),
                login=self._settings.login,
            )
        except EntryRefused as error:
            self.refusal = error
            self.retry_at_ms = self._clock() + self._refused_backoff.next_ms()
            raise
        except BrokerUnreachable:
            self.refusal = None
            self.retry_at_ms = self._clock() + self._backoff.next_ms()
            raise
        self.refusal = None
        self._backoff.reset()
        self._refused_backoff.reset()
        # The back-off also applies to a broker that accepts connections and closes them at once.
        self.retry_at_ms = self._clock() + self._backoff.base_ms
        self._connection = connection
        return connection

    def _attempt_ended(self, attempt: "asyncio.Task[Connection]") -> None:
        self._attempt = None
        if not attempt.cancelled():
            # Retrieve the exception even if all callers have left, so that asyncio does not
            # complain.
            attempt.exception()


def refusal_of(links: Collection[NodeLink]) -> EntryRefused | None:
    """Return why a broker refused the last attempt to connect; None if one of the links is
    connected, or if no broker has refused one."""
    if any(one.ready is not None for one in links):
        return None
    return next((one.refusal for one in links if one.refusal is not None), None)


def joined_reasons(reasons: Sequence[BrokerUnreachable]) -> BrokerUnreachable:
    """Return the error for links of which none has a connection: an EntryRefused if every link was
    refused."""
    text = "; ".join(dict.fromkeys(map(str, reasons))) or "no broker answered in time"
    refused = reasons and all(isinstance(one, EntryRefused) for one in reasons)
    return EntryRefused(text) if refused else BrokerUnreachable(text)


def _is_cancelled(task: "asyncio.Task[Any] | None") -> bool:
    return task is not None and task.cancelling() > 0
