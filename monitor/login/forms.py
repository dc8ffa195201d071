"""Forms that a page of this site sent, and no others."""

import asyncio
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

BODY_BYTES_MAX = 64 * 1024
BODY_S = 10.0
FORM_TYPE = "application/x-www-form-urlencoded"


class NotFromHere(Exception):
    """The error for a request to change something that no page of this site sent."""


async def posted(request: Request) -> dict[str, str]:
    """Return the fields of a form that a page of this site sent. Raise NotFromHere for any other
    request.

    A browser names the origin of a form (Origin), or at least says that the form came from the same
    site (Sec-Fetch-Site). A request with neither header did not come from a form of this site.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    hosts = {request.headers.get("host"), request.headers.get("x-forwarded-host")} - {None}
    is_ours = site == "same-origin" if origin is None else _host_of(origin) in hosts
    if not is_ours or site not in (None, "same-origin"):
        raise NotFromHere("the form was not sent by a page of this site: open the page again")
    if request.headers.get("content-type", "").partition(";")[0].strip() != FORM_TYPE:
        raise NotFromHere(f"found another content type, expected {FORM_TYPE}")
    try:
        async with asyncio.timeout(BODY_S):
            body = await _body(request)
    except TimeoutError:
        raise NotFromHere(f"the form did not arrive within {BODY_S:.0f} s: send it again") from None
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict"))
    except ValueError as error:
        raise NotFromHere("the form is not in UTF-8: open the page again") from error


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise NotFromHere(f"the form is too large, expected at most {BODY_BYTES_MAX} bytes")
    return body


def _host_of(origin: str) -> str:
    """Return the host and the port of an origin; an empty text if it is not an address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
