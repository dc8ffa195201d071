"""The application behind a login: every request needs an identity, except for a few addresses."""

import asyncio
import zlib
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from monitor.login.logins import (
    EVENTS,
    IDENTITY_KEY,
    OWN_KEY,
    STREAMS_MAX,
    TRUSTED_KEY,
    Logins,
    Visitor,
)
from monitor.login.proxies import SECRET_HEADER, Proxies, without_forwarded

OPEN_PATHS = ("/healthz", "/login")
STATIC = "/static/"
FOR_PROGRAMS = ("/api/", "/metrics", "/status", EVENTS)
READS = ("GET", "HEAD")
VALID_EVERY_S = 0.5


class ForwardedHeaders:
    """Believes the headers `X-Forwarded-…` of the proxies of `monitor.proxies`, and drops those of
    all other clients."""

    def __init__(self, app: ASGIApp, proxies: Proxies) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request with headers that can be believed."""
        if scope["type"] in ("http", "websocket"):
            scope = self._checked(scope)
        await self._app(scope, receive, send)

    def _checked(self, scope: Scope) -> Scope:
        client, headers = scope.get("client"), scope["headers"]
        if client is None or scope.get(OWN_KEY) or not self._proxies.has(client[0]):
            return {**scope, "headers": without_forwarded(headers)}
        kept = [(key, value) for key, value in headers if key != SECRET_HEADER]
        scheme = "https" if self._proxies.is_https(headers) else scope.get("scheme", "http")
        address = self._proxies.client_of(client[0], headers)
        return {
            **scope,
            "headers": kept,
            "client": (address, 0),
            "scheme": scheme,
            TRUSTED_KEY: headers,
        }


class Gate:
    """Refuses requests without an identity, and those of an identity that sends too many."""

    def __init__(self, app: ASGIApp, logins: Logins, root: str) -> None:
        self._app = app
        self._logins = logins
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request, path = Request(scope), scope["path"]
        identity = self._logins.identify(request)
        scope[IDENTITY_KEY] = identity
        is_static = path.startswith(STATIC) and scope["method"] in READS
        if path in OPEN_PATHS or is_static:
            await self._app(scope, receive, send)
            return
        if identity is None:
            await self._stranger(request)(scope, receive, send)
        elif not self._logins.may_ask(identity):
            await _too_many("requests")(scope, receive, send)
        elif path == EVENTS:
            await self._stream(identity, scope, receive, send)
        else:
            await self._app(scope, receive, _unstored(send))

    def _stranger(self, request: Request) -> Response:
        """Return the answer to a request without an identity. It is the same for all addresses."""
        path = request.url.path
        if path.startswith(FOR_PROGRAMS) or "authorization" in request.headers:
            text = "log in, or send a token: Authorization: Bearer mill_…"
            return JSONResponse({"detail": text}, 401, headers={"WWW-Authenticate": "Bearer"})
        if not self._logins.has_form:
            text = "this page is only reachable through its proxy, for people with a role"
            return PlainTextResponse(f"{text}\n", 403)
        if request.method not in READS:
            return PlainTextResponse("your session has ended: log in again\n", 401)
        query = f"?{request.url.query}" if request.url.query else ""
        wanted = quote(f"{path}{query}", safe="/")
        return RedirectResponse(f"{self._root}/login?next={wanted}", 303)

    async def _stream(self, identity: Visitor, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request for the endless stream, and end the stream with the session."""
        use = self._logins.use_of(identity)
        if use.streams >= STREAMS_MAX:
            await _too_many("open pages")(scope, receive, send)
            return
        use.streams += 1
        task = asyncio.ensure_future(self._app(scope, receive, send))
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=VALID_EVERY_S)
                if not identity.is_valid():
                    break
        finally:
            use.streams -= 1
            was_cut = task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if was_cut:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif (error := task.exception()) is not None:
            raise error


def mark_of(identity: Visitor | None) -> str:
    """Return a mark of the identity for the ETag of a page, because a page shows its name."""
    if identity is None:
        return ""
    text = f"{identity.name} {identity.role} {identity.kind}"
    return f"-{zlib.crc32(text.encode()):08x}"


def _too_many(what: str) -> Response:
    return PlainTextResponse(f"too many {what}: wait a moment\n", 429, headers={"Retry-After": "1"})


def _unstored(send: Send) -> Send:
    """Return a `send` that forbids caches to store the answer, so that a browser does not show it
    after the logout."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [one for one in message["headers"] if one[0].lower() != b"cache-control"]
            message = {**message, "headers": [*headers, (b"cache-control", b"no-store")]}
        await send(message)

    return sending
