"""Posts messages to the address that the configuration names; the monitor's only way out.

Nothing of a request or of an answer decides where to: redirects are not followed. The address may
be a secret, so no text here holds more of it than its host.
"""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import IO
from urllib.parse import urlsplit

from protocol.log import escape
from protocol.status import VERSION

TIMEOUT_S = 3.0
ANSWER_BYTES_MAX = 300


class WebhookFailed(Exception):
    """The other side did not take a message; the text says why, without the address."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """An answer that names another address is a failure."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        """No request follows."""


class Webhook:
    """One address; every call is one POST that waits for its answer."""

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._url = url
        self._token = token
        self._timeout_s = timeout_s
        self._opener = urllib.request.build_opener(_NoRedirects())
        self.host = urlsplit(url).netloc

    def send(self, body: Mapping[str, object]) -> int:
        """Post a message; the status of the answer. Raises WebhookFailed unless that is 2xx."""
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": f"millrace-monitor/{VERSION}",
        }
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = json.dumps(body, ensure_ascii=False).encode()
        request = urllib.request.Request(self._url, data, headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                said = _said(error)
            raise WebhookFailed(f"{self.host} answered {error.code}{said}") from error
        except urllib.error.URLError as error:
            raise WebhookFailed(f"{self.host} gives no answer: {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            raise WebhookFailed(f"{self.host} gives no answer: {error!r}") from error


def _said(error: urllib.error.HTTPError) -> str:
    """The beginning of what came with a refusal, on one line."""
    try:
        text = error.read(ANSWER_BYTES_MAX).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return ""
    return f": {escape(text)}" if text else ""
