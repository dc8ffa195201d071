"""Posts messages to the webhook's address in the configuration.

The monitor sends nothing to any other foreign server. Redirects are not followed, so no answer can
change the address. The address can be a secret, so error texts name only its host.

An exchange (one request and its answer) has one deadline. The time-out of a socket limits only
single reads, so a receiver that sends a byte a second would never reach it. So the exchange runs in
its own thread, and `send` shuts the connection down when the deadline has passed.
"""

import http.client
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import IO, Any
from urllib.parse import urlsplit

from monitor.alerts.daemon_thread import in_daemon_thread
from protocol.log import escape
from protocol.status import VERSION

TIMEOUT_S = 10.0
"""The time limit of a whole exchange: name lookup, connection, request and answer."""

ANSWER_BYTES_MAX = 300


class WebhookFailed(Exception):
    """The error when the receiver did not accept a message.

    Its text says why, without the address.
    """


class WebhookUnanswered(WebhookFailed):
    """The error when the whole message was sent but no answer came in time.

    The receiver can have accepted the message.
    """


class Webhook:
    """One address; every call is one POST that waits for its answer."""

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._url = url
        self._token = token
        self._timeout_s = timeout_s
        self.host = urlsplit(url).netloc

    def send(self, body: Mapping[str, object]) -> int:
        """Post a message and return the status of the answer, or raise WebhookFailed.

        A status other than 2xx is a failure. The call never takes longer than `timeout_s`.
        """
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": f"millrace-monitor/{VERSION}",
        }
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = json.dumps(body, ensure_ascii=False).encode()
        request = urllib.request.Request(self._url, data, headers, method="POST")
        exchange = _Exchange()
        answer = in_daemon_thread(lambda: self._post(request, exchange), "webhook")
        try:
            return answer.result(self._timeout_s)
        except TimeoutError:
            exchange.cut()
            raise self._too_late(exchange) from None

    def _post(self, request: urllib.request.Request, exchange: "_Exchange") -> int:
        opener = urllib.request.build_opener(_NoRedirects(), _Http(exchange), _Https(exchange))
        try:
            with opener.open(request, timeout=self._timeout_s) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            exchange.refused_with = error.code
            with error:
                said = _said(error)
            raise WebhookFailed(f"{self.host} answered {error.code}{said}") from error
        except urllib.error.URLError as error:
            raise WebhookFailed(f"{self.host} gives no answer: {error.reason}") from error
        except TimeoutError as error:
            raise self._too_late(exchange) from error
        except (OSError, http.client.HTTPException) as error:
            raise WebhookFailed(f"{self.host} gives no answer: {error!r}") from error

    def _too_late(self, exchange: "_Exchange") -> WebhookFailed:
        if exchange.refused_with is not None:
            return WebhookFailed(f"{self.host} answered {exchange.refused_with}")
        limit = f"{self._timeout_s:g} s (monitor.alerts.timeout)"
        if exchange.is_sent:
            return WebhookUnanswered(
                f"{self.host} gives no answer within {limit}; it can have received the message"
            )
        return WebhookFailed(f"{self.host} accepts no connection within {limit}")


class _Exchange:
    """The state of one exchange, and its connection, which `cut` shuts down from another thread."""

    def __init__(self) -> None:
        self.is_sent = False
        self.refused_with: int | None = None
        self._lock = threading.Lock()
        self._is_cut = False
        self._socket: socket.socket | None = None

    def connect(self, *args: Any, **keys: Any) -> socket.socket:
        """Connect as `socket.create_connection` does."""
        found = socket.create_connection(*args, **keys)
        with self._lock:
            if self._is_cut:
                found.close()
                raise TimeoutError("the message has reached its time limit")
            # TLS moves the descriptor to another object, so keep a duplicate that `cut` can shut
            # down.
            self._socket = found.dup()
        return found

    def cut(self) -> None:
        """Shut the connection down, so that the thread that reads from it ends."""
        with self._lock:
            self._is_cut = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
                self._socket.close()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler for urllib that treats a redirect as a failure."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        """Follow no redirect."""


class _TrackedConnection(http.client.HTTPConnection):
    """An HTTP connection that reports its progress to an exchange."""

    def __init__(self, exchange: _Exchange, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self._exchange = exchange
        # `connect` calls this function before it opens a tunnel or TLS, so the deadline can end
        # these steps too.
        self._create_connection = exchange.connect

    def getresponse(self) -> http.client.HTTPResponse:
        """Record that the whole message has been sent, then read the answer."""
        self._exchange.is_sent = True
        return super().getresponse()


class _TrackedTlsConnection(_TrackedConnection, http.client.HTTPSConnection):
    """An HTTPS connection that reports its progress to an exchange."""


class _Http(urllib.request.HTTPHandler):
    """A handler for urllib that opens HTTP connections for an exchange."""

    def __init__(self, exchange: _Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Post over plain HTTP."""
        return self.do_open(partial(_TrackedConnection, self._exchange), req)


class _Https(urllib.request.HTTPSHandler):
    """A handler for urllib that opens HTTPS connections, with the CA certificates of the system."""

    def __init__(self, exchange: _Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Post over TLS."""
        return self.do_open(partial(_TrackedTlsConnection, self._exchange), req)


def _said(error: urllib.error.HTTPError) -> str:
    """Return the beginning of the body of a refusal, on one line."""
    try:
        text = error.read(ANSWER_BYTES_MAX).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return ""
    return f": {escape(text)}" if text else ""
