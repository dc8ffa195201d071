"""The pages of the login: the form, and the end of a session."""

import hmac
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse

from monitor.login.checking import TooManyLogins
from monitor.login.forms import NotFromHere, posted
from monitor.login.logins import Logins, PageLoginRefused, cookie_name, identity_of

NAME_CHARS_MAX, PASSWORD_CHARS_MAX = 200, 1_024
BUSY = "Too many people log in at this moment: try again in a few seconds."

Render = Callable[[Request, dict[str, Any], int], Response]


def target_of(text: str) -> str:
    """Return the address to show after the login. An address of another site becomes `/`."""
    try:
        parts = urlsplit(text) if text.isprintable() and "\\" not in text else None
    except ValueError:
        return "/"
    if parts is None or parts.scheme or parts.netloc or not parts.path.startswith("/"):
        return "/"
    return "/" if text.startswith("//") else text


def login_routes(logins: Logins, render: Render, root: str) -> APIRouter:
    """Return the routes `/login` and `/logout`. `render` returns the login page."""
    router = APIRouter(include_in_schema=False)

    def shown(
        request: Request, target: str, code: int, fault: str = "", wait_ms: int = 0
    ) -> Response:
        answer = render(request, {"target": target, "fault": fault}, code)
        answer.headers["Cache-Control"] = "no-store"
        if wait_ms:
            answer.headers["Retry-After"] = str(-(-wait_ms // 1_000))
        return answer

    @router.api_route("/login", methods=["GET", "HEAD"])
    def form(request: Request, next: str = "/") -> Response:
        return shown(request, target_of(next), 200)

    @router.post("/login")
    async def log_in(request: Request) -> Response:
        target = "/"
        try:
            words = await posted(request)
            target = target_of(words.get("next", "/"))
            name, password = words.get("name", "").strip(), words.get("password", "")
            if len(name) > NAME_CHARS_MAX or len(password) > PASSWORD_CHARS_MAX:
                raise PageLoginRefused("The name or the password is wrong.")
            key = await logins.log_in(request, name, password)
        except NotFromHere as error:
            return shown(request, target, 403, str(error))
        except PageLoginRefused as error:
            return shown(request, target, 429 if error.wait_ms else 403, str(error), error.wait_ms)
        except TooManyLogins:
            return shown(request, target, 429, BUSY, 1_000)
        answer = RedirectResponse(f"{root}{target}", 303)
        answer.set_cookie(
            cookie_name(request), key, path="/", httponly=True, samesite="strict",
            secure=request.url.scheme == "https",
        )  # fmt: skip
        return answer

    @router.post("/logout")
    async def log_out(request: Request) -> Response:
        identity = identity_of(request)
        session = None if identity is None else identity.session
        try:
            secret = (await posted(request)).get("form_secret", "")
        except NotFromHere as error:
            return PlainTextResponse(f"{error}\n", 403)
        if session is None or not hmac.compare_digest(
            secret.encode(), session.form_secret.encode()
        ):
            return PlainTextResponse("the form belongs to another session\n", 403)
        logins.log_out(request)
        answer = RedirectResponse(f"{root}/login", 303)
        answer.delete_cookie(
            cookie_name(request), path="/", httponly=True, samesite="strict",
            secure=request.url.scheme == "https",
        )  # fmt: skip
        return answer

    return router
