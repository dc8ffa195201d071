"""A very small HTTP server for `/healthz`, `/status` and `/metrics` of one part.

It uses asyncio without a framework, because a broker must stay small. It supports only GET, with
one request per connection. The request size, the time to send the request, the time to take the
answer, and the number of connections are limited. Connections beyond the limit are closed at once.
`status` and `metrics` are called in the loop and must not block.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from protocol.log import fields
from protocol.status import PartState, PartStatus

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 5.0
DISCARDED_BYTES_MAX = 256 * 1024
CONNECTIONS_MAX = 32

_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to one HTTP request."""

    code: int
    content_type: str
    body: bytes

    def encode(self) -> bytes:
        """Return head and body as bytes. The connection is closed after they are sent."""
        allow = "Allow: GET\r\n" if self.code == 405 else ""
        head = (
            f"HTTP/1.1 {self.code} {_REASONS[self.code]}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\n"
            f"{allow}Cache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode("ascii") + self.body


class StatusServer:
    """Serves the status of one part. With `port` 0 it listens on any free port.

    After the start, `port` is the real port.
    """

    def __init__(
        self,
        host: str,
        port: int,
        status: Callable[[], PartStatus],
        metrics: Callable[[], str | bytes],
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self.host = host
        self.port = port
        self._status = status
        self._metrics = metrics
        self._request_timeout_s = request_timeout_s
        self._connections_max = connections_max
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start to listen. Raises OSError if the address is not available."""
        self._server = await asyncio.start_server(
            self._accept, self.host, self.port, limit=REQUEST_BYTES_MAX
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and close open connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= self._connections_max:
            writer.transport.abort()
            return
        # Create the task here, because asyncio would report the cancellation of its own task as an
        # error.
        task = asyncio.create_task(self._serve_connection(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            answer = await self._answer_one(reader)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                writer.write(answer.encode())
                await writer.drain()
                writer.write_eof()
                # Closing with unread bytes would reset the connection, and the answer would be
                # lost.
                await _discard(reader, DISCARDED_BYTES_MAX)
        except (OSError, TimeoutError):
            logger.debug("status connection ended early")
        except Exception:
            logger.exception("status connection failed")
        finally:
            writer.transport.abort()

    async def _answer_one(self, reader: asyncio.StreamReader) -> HttpAnswer:
        try:
            async with asyncio.timeout(self._request_timeout_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            return _text(408, "the request did not arrive in time")
        except asyncio.LimitOverrunError:
            return _text(431, f"the request is larger than {REQUEST_BYTES_MAX} bytes")
        except asyncio.IncompleteReadError:
            return _text(400, "the request is not complete")
        return self.answer(head)

    def answer(self, head: bytes) -> HttpAnswer:
        """Return the answer to the head of one request.

        An exception in `status` or `metrics` becomes 500.
        """
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _text(400, "not an HTTP/1 request")
        method, target, _ = words
        if method != b"GET":
            return _text(405, "only GET is served here")
        path = target.partition(b"?")[0]
        try:
            return self._answer_path(path)
        except Exception:
            logger.exception("status request failed", extra=fields(path=path.decode("latin-1")))
            return _text(500, "the part could not describe itself; its log says why")

    def _answer_path(self, path: bytes) -> HttpAnswer:
        if path == b"/healthz":
            status = self._status()
            if not status.ready:
                return _text(503, status.reason_not_ready())
            # The part works, so a restart would not help, but something is wrong.
            if status.state is PartState.DEGRADED:
                return _text(200, status.reason_degraded())
            return _text(200, "ok")
        if path == b"/status":
            return HttpAnswer(200, _JSON, self._status().encode())
        if path == b"/metrics":
            text = self._metrics()
            return HttpAnswer(200, _PROMETHEUS, text.encode() if isinstance(text, str) else text)
        return _text(404, "served here: /healthz, /status, /metrics")


def _text(code: int, sentence: str) -> HttpAnswer:
    return HttpAnswer(code, _TEXT, sentence.encode() + b"\n")


async def _discard(reader: asyncio.StreamReader, bytes_max: int) -> None:
    """Read until the peer closes its side, or has sent more than `bytes_max`."""
    while bytes_max > 0 and (chunk := await reader.read(REQUEST_BYTES_MAX)):
        bytes_max -= len(chunk)
