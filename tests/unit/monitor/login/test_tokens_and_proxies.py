"""Tokens of scripts, the mill's own requests, and people that a proxy names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Scope

from monitor.login.logins import OWN_KEY, STREAMS_MAX
from monitor.login.people import PageRole, ScriptToken, fingerprint_of
from tests.unit.monitor.login.page_rig import (
    ADA,
    BEA,
    HERE,
    OVER,
    PROXY_SECRET,
    TOKEN,
    Rig,
    hidden,
    log_in,
    log_out,
    page,
)

BEARER = {"Authorization": f"Bearer {TOKEN}"}
PROXY, STRANGER = "127.0.0.9", "192.0.2.7"
NAMED = {
    "X-Forwarded-User": "ada@example.org",
    "X-Forwarded-Groups": "staff,ops",
    "Millrace-Proxy-Secret": PROXY_SECRET,
}
LIMIT_S = 10


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with page(tmp_path) as found:
        yield found


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Rig]:
    with page(tmp_path, "proxy", (PROXY,)) as found:
        yield found


# --- tokens ---------------------------------------------------------------------------------------


def test_a_token_reads_what_programs_read(rig: Rig) -> None:
    client = rig.client()
    for path in ("/api/v1/lag", "/metrics", "/status", "/topics"):
        assert client.get(path, headers=BEARER).status_code == 200, path
    assert "form_secret" not in client.get("/", headers=BEARER).text
    lower = {"Authorization": f"bearer {TOKEN}"}
    assert client.get("/status", headers=lower).status_code == 200


@pytest.mark.parametrize(
    "words",
    ["Bearer", "Bearer ", f"Bearer {OVER}", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", "Bearer x"],
)
def test_a_wrong_or_ended_token_gets_401(rig: Rig, words: str) -> None:
    answer = rig.client().get("/api/v1/lag", headers={"Authorization": words})
    assert answer.status_code == 401


def test_a_cookie_does_not_count_where_a_token_is_sent(rig: Rig) -> None:
    client = rig.client()
    log_in(client)
    assert client.get("/").status_code == 200
    assert client.get("/", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/", headers={"Authorization": "Basic eDp5"}).status_code == 200
    both = [("Authorization", "Basic eDp5"), ("Authorization", "Bearer wrong")]
    assert client.get("/", headers=both).status_code == 401


def test_a_token_in_an_address_is_no_token(rig: Rig) -> None:
    for query in (f"?token={TOKEN}", f"?access_token={TOKEN}", f"?authorization=Bearer%20{TOKEN}"):
        assert rig.client().get(f"/api/v1/lag{query}").status_code == 401


def test_a_token_gives_no_orders(rig: Rig) -> None:
    operator = ScriptToken("grafana", PageRole.OPERATOR, str(fingerprint_of(TOKEN)))
    rig.tokens(operator)
    client = rig.client()
    words = {"group": "g", "topics": "", "to": "start", "form_secret": ""}
    headers = BEARER | {"Origin": HERE}
    assert client.post("/admin/reset-offsets", data=words, headers=headers).status_code == 403
    assert client.get("/admin/reset-offsets", headers=BEARER).status_code == 401


def test_a_removed_and_an_ended_token_are_refused_at_once(rig: Rig) -> None:
    client = rig.client()
    rig.tokens(ScriptToken("grafana", PageRole.VIEWER, str(fingerprint_of(TOKEN)), 20_000))
    assert client.get("/status", headers=BEARER).status_code == 200
    rig.now_ms = 20_000
    assert client.get("/status", headers=BEARER).status_code == 401
    rig.now_ms = 10_000
    assert client.get("/status", headers=BEARER).status_code == 200
    rig.tokens()
    assert client.get("/status", headers=BEARER).status_code == 401


def test_requests_with_a_token_are_limited(rig: Rig) -> None:
    client = rig.client()
    codes = [client.get("/status", headers=BEARER).status_code for _ in range(70)]
    assert codes == [200] * 60 + [429] * 10


# --- the streams of open pages --------------------------------------------------------------------


class Stream:
    """A request for `/events`, made straight to the application. The test client would wait for
    the end of the answer."""

    def __init__(self, rig: Rig, headers: dict[str, str], **more: Any) -> None:
        self.messages: list[Message] = []
        self.began = asyncio.Event()
        self.scope: Scope = {
            "type": "http", "method": "GET", "path": "/events", "raw_path": b"/events",
            "query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1",
            "client": (STRANGER, 1), "server": ("127.0.0.1", 8090),
            "headers": [
                (b"host", b"127.0.0.1:8090"),
                *((name.lower().encode(), value.encode()) for name, value in headers.items()),
            ],
            **more,
        }  # fmt: skip
        self.task = asyncio.ensure_future(rig.app(self.scope, self._receive, self._send))  # type: ignore[operator]

    async def _receive(self) -> Message:
        await asyncio.Event().wait()
        raise AssertionError("the client stays")

    async def _send(self, message: Message) -> None:
        self.messages.append(message)
        self.began.set()

    @property
    def code(self) -> int:
        return int(self.messages[0]["status"])


@pytest.mark.parametrize("what", ["logout", "password", "removal"])
def test_pitfall_41_a_stream_ends_with_its_session(rig: Rig, what: str) -> None:
    client = rig.client()
    log_in(client)

    async def scene() -> Stream:
        stream = Stream(rig, {"Cookie": f"mill={client.cookies['mill']}"})
        async with asyncio.timeout(LIMIT_S):
            await stream.began.wait()
            assert stream.code == 200 and not stream.task.done()
            if what == "logout":
                await asyncio.to_thread(log_out, client)
            elif what == "password":
                rig.people(BEA, type(ADA)("ada", ADA.role, BEA.password))
            else:
                rig.people(BEA)
            await stream.task
        return stream

    last = asyncio.run(scene()).messages[-1]
    assert last["type"] == "http.response.body" and not last["more_body"]


def test_a_stream_ends_with_its_token(rig: Rig) -> None:
    async def scene() -> None:
        stream = Stream(rig, BEARER)
        async with asyncio.timeout(LIMIT_S):
            await stream.began.wait()
            rig.tokens()
            await stream.task

    asyncio.run(scene())


def test_a_session_has_at_most_ten_streams(rig: Rig) -> None:
    async def scene() -> None:
        streams = [Stream(rig, BEARER) for _ in range(STREAMS_MAX + 1)]
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*(one.began.wait() for one in streams))
            assert sorted(one.code for one in streams) == [200] * STREAMS_MAX + [429]
            rig.tokens()
            await asyncio.gather(*(one.task for one in streams))

    asyncio.run(scene())


# --- the mill's own requests ----------------------------------------------------------------------


def test_requests_of_the_mills_own_socket_need_no_login(rig: Rig) -> None:
    async def scene() -> Stream:
        more = {OWN_KEY: True, "client": None, "path": "/status", "raw_path": b"/status"}
        stream = Stream(rig, {}, **more)
        async with asyncio.timeout(LIMIT_S):
            await stream.task
        return stream

    assert asyncio.run(scene()).code == 200


def test_no_header_makes_a_request_one_of_the_mill(rig: Rig) -> None:
    for name in (OWN_KEY, "Millrace-Own", "X-Forwarded-For"):
        assert rig.client().get("/status", headers={name: "1"}).status_code == 401


# --- proxies --------------------------------------------------------------------------------------


def test_a_person_that_the_proxy_names_sees_the_pages_with_the_role_of_a_group(
    proxied: Rig,
) -> None:
    client = proxied.client(PROXY)
    shown = client.get("/", headers=NAMED)
    assert shown.status_code == 200
    assert "Signed in as <b>ada@example.org</b>" in shown.text
    assert "Log out" not in shown.text, "the proxy ends its sessions"
    assert client.get("/admin/reset-offsets", headers=NAMED).status_code == 200
    viewer = NAMED | {"X-Forwarded-Groups": "staff"}
    assert client.get("/", headers=viewer).status_code == 200
    assert client.get("/admin/reset-offsets", headers=viewer).status_code == 401


def test_pitfall_41_the_headers_of_a_stranger_name_no_person(proxied: Rig) -> None:
    """Also a stranger who knows the secret is refused."""
    client = proxied.client(STRANGER)
    assert client.get("/", headers=NAMED).status_code == 403
    assert client.get("/status", headers=NAMED).status_code == 401
    forged = NAMED | {"X-Forwarded-For": PROXY}
    assert client.get("/", headers=forged).status_code == 403


@pytest.mark.parametrize("missing", sorted(NAMED))
def test_pitfall_41_a_request_of_the_proxy_without_one_of_the_headers_is_refused(
    proxied: Rig, missing: str
) -> None:
    headers = {name: value for name, value in NAMED.items() if name != missing}
    assert proxied.client(PROXY).get("/", headers=headers).status_code == 403


def test_pitfall_41_a_doubled_user_is_refused(proxied: Rig) -> None:
    headers = [*NAMED.items(), ("X-Forwarded-User", "root")]
    assert proxied.client(PROXY).get("/", headers=headers).status_code == 403


def test_behind_a_proxy_there_is_no_form_and_scripts_have_tokens(proxied: Rig) -> None:
    client = proxied.client(STRANGER)
    assert log_in(client).status_code == 404
    assert client.get("/api/v1/lag", headers=BEARER).status_code == 200


def test_an_order_behind_a_proxy_needs_a_form_of_this_person(proxied: Rig) -> None:
    client = proxied.client(PROXY)
    words = {"group": "g", "topics": "", "to": "start"}
    headers = NAMED | {"Origin": HERE}
    refused = client.post("/admin/reset-offsets", data=words, headers=headers)
    assert refused.status_code == 403
    secret = hidden(client.get("/admin/reset-offsets", headers=NAMED), "form_secret")
    shown = client.post(
        "/admin/reset-offsets", data=words | {"form_secret": secret}, headers=headers
    )
    assert shown.status_code == 200
    other = NAMED | {"X-Forwarded-User": "eve@example.org", "Origin": HERE}
    stolen = client.post(
        "/admin/reset-offsets", data=words | {"form_secret": secret}, headers=other
    )
    assert stolen.status_code == 403


def test_behind_a_named_proxy_people_wait_by_their_own_address(tmp_path: Path) -> None:
    with page(tmp_path, "users", (PROXY,)) as rig:
        first, second = rig.client(PROXY), rig.client(PROXY)
        first.headers["X-Forwarded-For"] = "203.0.113.9"
        second.headers["X-Forwarded-For"] = "203.0.113.10"
        assert log_in(first, "ada", "wrong-horse-battery").status_code == 403
        assert log_in(first).status_code == 429
        assert log_in(second).status_code == 303


def test_a_proxy_with_https_gets_the_cookie_of_https(tmp_path: Path) -> None:
    with page(tmp_path, "users", (PROXY,)) as rig:
        for address, name in ((PROXY, "__Host-mill="), (STRANGER, "mill=")):
            client = rig.client(address)
            client.headers["X-Forwarded-Proto"] = "https"
            assert log_in(client).headers["set-cookie"].startswith(name)
