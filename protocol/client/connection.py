"""One TCP connection to one broker: sends requests and matches responses in order.

It is the only module of the client that uses a socket. A request costs one future and one timer,
but no task. Invariants: responses come in the order of the requests. When a connection ends, all
waiting requests fail once. After a time-out the connection is closed, because the late response
would block all others.
"""

import asyncio
import logging
import os
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from protocol.client.errors import (
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    ConnectionLost,
    EntryRefused,
    RequestTimedOut,
    raise_for,
)
from protocol.client.login import ClientLogin
from protocol.client.tls import reason_of
from protocol.client.versions import CLIENT_SOFTWARE_NAME, FIRST_API_VERSIONS_VERSION, Versions
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.log import fields
from protocol.messages.api import ApiKey, response_class
from protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.headers import decode_response_header, encode_request_chunks
from protocol.security.address import bracketed
from protocol.status import VERSION
from protocol.wire.frame import FrameBuffer
from protocol.wire.schema import Message

RESPONSE_BYTES_MAX = 100 << 20
IN_FLIGHT_MAX = 64
CORRELATION_ID_MAX = 2**31 - 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ByVersion:
    """A request whose fields depend on the negotiated version."""

    api_key: ApiKey
    build: Callable[[int], Message]


class _Waiting:
    """One request that has been sent, and the future for its response."""

    __slots__ = (
        "api_key",
        "correlation_id",
        "future",
        "holds_room",
        "response_class",
        "timer",
        "version",
    )

    def __init__(
        self, correlation_id: int, api_key: int, version: int, future: "asyncio.Future[Any]"
    ) -> None:
        self.correlation_id = correlation_id
        self.api_key = api_key
        self.version = version
        self.response_class = response_class(api_key)
        self.future = future
        self.timer: asyncio.TimerHandle | None = None
        self.holds_room = False


class Connection(asyncio.BufferedProtocol):
    """The connection object; `open` creates it. All methods run in the loop that opened it."""

    def __init__(
        self,
        peer: str,
        client_id: str,
        *,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self.peer: str = peer
        self.client_id = client_id
        self.in_flight_max = in_flight_max
        self.versions = Versions(peer, {})
        self.is_closed = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_secured = False
        self._frames = FrameBuffer(response_bytes_max)
        self._correlation_id = 0
        self._waiting: deque[_Waiting] = deque()
        self._room = asyncio.Semaphore(in_flight_max)
        self._lost: ClientError = ConnectionLost(f"{peer} closed the connection")
        self._writable: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_ms: int,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        in_flight_max: int = IN_FLIGHT_MAX,
        tls: ssl.SSLContext | None = None,
        login: ClientLogin | None = None,
    ) -> "Connection":
        """Connect, over TLS if there is a context for it, negotiate versions, and log in.

        Raises BrokerUnreachable if that does not succeed within `timeout_ms`.
        """
        peer = f"{bracketed(host)}:{port}"
        connection = cls(
            peer, client_id, response_bytes_max=response_bytes_max, in_flight_max=in_flight_max
        )
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                # A dot at the end of a name is only for the lookup: certificates do not have it.
                name = None if tls is None else host.removesuffix(".")
                await loop.create_connection(
                    lambda: connection, host, port, ssl=tls, server_hostname=name
                )
                await connection._negotiate(timeout_ms)
                if login is not None:
                    await login.log_in(connection, timeout_ms)
        except TimeoutError as error:
            connection.close()
            raise BrokerUnreachable(f"{peer} did not answer within {timeout_ms} ms") from error
        except ssl.SSLCertVerificationError as error:
            raise EntryRefused(f"{peer}: {reason_of(error)}") from error
        except (OSError, UnicodeError) as error:
            # A host name that cannot be encoded raises UnicodeError.
            raise BrokerUnreachable(f"{peer}: {_reason(error)}") from error
        except (ConnectionLost, ApiError) as error:
            connection.close()
            is_plain = tls is None and isinstance(error, ConnectionLost)
            hint = "; if this listener uses TLS, set cluster.security" if is_plain else ""
            raise BrokerUnreachable(f"{peer} refused the connection: {error}{hint}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    # --- requests -----------------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        """The number of requests that wait for responses."""
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        """True if `send` can be called.

        `send` may have twice as many requests in flight as `request`.
        """
        return len(self._waiting) < 2 * self.in_flight_max

    def send(self, request: Message | ByVersion, *, timeout_ms: int) -> "asyncio.Future[Any]":
        """Send a request at once. The future gets the response message.

        Requests are sent in the order of the calls. The caller must check `has_room`. Raises
        UnsupportedVersion, or the ConnectionLost or ClientClosed of a connection that has ended.
        The future fails with ConnectionLost or RequestTimedOut.
        """
        assert self.has_room
        waiting = _Waiting(
            self._next_correlation_id(),
            request.api_key,
            self.versions.choose(request.api_key),
            self._loop.create_future(),
        )
        self._write(request, waiting.version, waiting.correlation_id)
        waiting.timer = self._loop.call_later(
            timeout_ms / 1000, self._on_timeout, waiting, timeout_ms
        )
        self._waiting.append(waiting)
        return waiting.future

    def send_unanswered(self, request: Message | ByVersion) -> None:
        """Send a request that gets no response (Produce with acks 0)."""
        version = self.versions.choose(request.api_key)
        self._write(request, version, self._next_correlation_id())

    async def request(self, request: Message | ByVersion, *, timeout_ms: int) -> Any:
        """Send a request as soon as there is room, and return the response. Raises the errors of
        `send`.

        The wait for room is part of the time-out.
        """
        deadline = self._loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                await self._room.acquire()
        except TimeoutError as error:
            raise RequestTimedOut(
                f"{self.in_flight_max} earlier requests to {self.peer} are still unanswered"
            ) from error
        left_ms = max(1, round((deadline - self._loop.time()) * 1000))
        try:
            future = self.send(request, timeout_ms=left_ms)
        except BaseException:
            self._room.release()
            raise
        # The response releases the room when it arrives, even if the caller has been cancelled.
        self._waiting[-1].holds_room = True
        return await future

    def close(self, error: ClientError | None = None) -> None:
        """Close the connection. Waiting requests fail with `error` (by default ClientClosed)."""
        self._end(error or ClientClosed(f"the connection to {self.peer} was closed"))

    @property
    def is_writable(self) -> bool:
        """True if the network keeps up with the written data. `send_unanswered` requires this."""
        return self._writable is None

    async def wait_writable(self) -> None:
        """Return when the network has taken most of the written data, or the
        connection has ended.
        """
        if self._writable is not None:
            await asyncio.shield(self._writable)

    async def wait_closed(self) -> None:
        """Return when the connection has ended for any reason."""
        await asyncio.shield(self._ended)

    # --- called by asyncio --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop when the connection is established."""
        # Use a cast, because transports of other event loops have these methods but not the base
        # class.
        self._transport = cast(asyncio.Transport, transport)
        self._is_secured = transport.get_extra_info("sslcontext") is not None
        if self.is_closed:
            self._transport.abort()

    def pause_writing(self) -> None:
        """Called by the loop when more data is written than the network takes."""
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Called by the loop when most of the written data is sent."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next read. Called by the loop."""
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Handle every complete response. Called by the loop after a read."""
        try:
            for frame in self._frames.received(nbytes):
                self._on_frame(frame)
                if self.is_closed:
                    return
        except WireError as error:
            logger.warning(
                "broker sent a malformed response; closing the connection",
                extra=fields(peer=self.peer, error=error),
            )
            self._end(ConnectionLost(f"{self.peer} sent a malformed response: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop when the connection has ended."""
        if exc is not None:
            self._end(ConnectionLost(f"the connection to {self.peer} broke: {exc}"))
        else:
            self._end(ConnectionLost(f"{self.peer} closed the connection"))

    # --- internals ----------------------------------------------------------------------------

    async def _negotiate(self, timeout_ms: int) -> None:
        everything = range(2**15)
        self.versions = Versions(
            self.peer, {ApiKey.API_VERSIONS: everything[: FIRST_API_VERSIONS_VERSION + 1]}
        )
        request = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=VERSION
        )
        response: ApiVersionsResponse = await self.send(request, timeout_ms=timeout_ms)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            self.versions = Versions(self.peer, {ApiKey.API_VERSIONS: everything[:1]})
            response = await self.send(request, timeout_ms=timeout_ms)
        raise_for(response.error_code)
        self.versions = Versions.of_response(self.peer, response)

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & CORRELATION_ID_MAX
        return self._correlation_id

    def _write(self, request: Message | ByVersion, version: int, correlation_id: int) -> None:
        if self.is_closed:
            raise self._lost
        assert self._transport is not None
        if isinstance(request, ByVersion):
            request = request.build(version)
        chunks = encode_request_chunks(request, version, correlation_id, self.client_id)
        if self._is_secured:
            # Pass all chunks in one call, because each write would become a separate TLS record.
            self._transport.writelines(chunks)
            return
        for chunk in chunks:
            self._transport.write(chunk)

    def _on_frame(self, frame: memoryview) -> None:
        if not self._waiting:
            raise WireError("the broker sent a response although no request waits for one")
        waiting = self._waiting[0]
        version = waiting.version
        correlation_id, position = decode_response_header(frame, waiting.api_key, version)
        if correlation_id != waiting.correlation_id:
            raise WireError(
                f"the broker answered request {correlation_id}, expected {waiting.correlation_id}"
            )
        answer: Message | None = None
        if waiting.api_key == ApiKey.API_VERSIONS and _is_unsupported_version(frame):
            # An answer with this error is encoded in version 0, and some brokers encode the rest of
            # it incorrectly. Only the code is needed.
            answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        elif not waiting.future.done():
            # Copy a frame with records: they are slices of the read buffer, which is reused.
            body = bytes(frame) if waiting.response_class.has_records else frame
            # Extra bytes at the end are ignored as in Java's client, because librdkafka's mock
            # sends one extra byte.
            answer, _ = waiting.response_class.decode(body, version, position)
        self._waiting.popleft()
        self._leave(waiting)
        if not waiting.future.done():
            waiting.future.set_result(answer)

    def _leave(self, waiting: _Waiting) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        if waiting.holds_room:
            self._room.release()

    def _on_timeout(self, waiting: _Waiting, timeout_ms: int) -> None:
        name = ApiKey(waiting.api_key).name
        text = f"{self.peer} did not answer {name} within {timeout_ms} ms"
        if not waiting.future.done():
            waiting.future.set_exception(RequestTimedOut(text))
        self._end(ConnectionLost(f"connection closed after a time-out: {text}"))

    def _end(self, error: ClientError) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._lost = error
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            waiting = self._waiting.popleft()
            self._leave(waiting)
            if not waiting.future.done():
                waiting.future.set_exception(_again(error))
        self.resume_writing()
        if not self._ended.done():
            self._ended.set_result(None)


def _reason(error: OSError | UnicodeError) -> str:
    """Return the system's error text, because asyncio's own text repeats the peer's name."""
    if isinstance(error, ssl.SSLError) or (isinstance(error, ConnectionError) and not error.args):
        return reason_of(error)
    number = error.errno if isinstance(error, OSError) else None
    # Negative error numbers come from the address lookup and have their own text.
    return os.strerror(number) if number is not None and number > 0 else str(error)


def _again(error: ClientError) -> ClientError:
    """Return a new exception of the same kind, because one object raised in many places mixes
    tracebacks."""
    return type(error)(*error.args)


def _is_unsupported_version(frame: memoryview) -> bool:
    """Return whether an ApiVersions response in any version starts with error code 35."""
    code = int.from_bytes(frame[4:6], "big", signed=True)
    return code == ErrorCode.UNSUPPORTED_VERSION
