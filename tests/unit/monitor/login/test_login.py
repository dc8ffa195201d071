"""The page with `monitor.login: users`: what is open, logins and logouts, and roles."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from monitor.login import checking, forms, gate
from monitor.login.people import PageRole
from monitor.login.sessions import IDLE_MS_MAX, ORDERS_IDLE_MS_MAX
from tests.unit.monitor.login.page_rig import (
    ADA,
    BEA,
    HERE,
    PASSWORD,
    TOKEN,
    Rig,
    hidden,
    log_in,
    log_out,
    page,
    person,
)

COOKIE = "mill"
RESET = {"group": "g", "topics": "", "to": "start"}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with page(tmp_path) as found:
        yield found


def paths_of(router: Any) -> set[str]:
    """Return the paths of an application and of the routers in it."""
    found: set[str] = set()
    for one in router.routes:
        inner = getattr(one, "original_router", None)
        found |= {one.path} if inner is None else paths_of(inner)
    return found


def test_everything_but_health_login_and_static_files_needs_a_login(rig: Rig) -> None:
    """Each route of the application is asked, so a new route cannot be forgotten."""
    client = rig.client()
    paths = paths_of(rig.app) | {"/none", "/api/none", "/staticx", "/login/x"}
    assert {"/metrics", "/status", "/events", "/api/v1/lag", "/topics", "/admin"} <= paths
    assert client.get("/healthz").text == "ok\n"
    assert client.get("/static/mill.css").status_code == 200
    assert client.get("/login").status_code == 200
    for path in sorted(paths - {"/healthz", "/login", "/static"}):
        for method in ("GET", "POST", "OPTIONS"):
            answer = client.request(method, path.replace("{operation}", "create-topic"))
            assert answer.status_code in (303, 401), (method, path)
            for told in ("logs.access", "broker-1", "millrace-stream"):
                assert told not in answer.text, (method, path)
    assert client.post("/static/mill.css").status_code == 401


def test_a_program_gets_401_and_a_person_the_form_with_the_way_back(rig: Rig) -> None:
    client = rig.client()
    for path in ("/api/v1/lag", "/metrics", "/status", "/events"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    answer = client.get("/topics?q=a%20b")
    assert answer.headers["location"] == "/login?next=/topics%3Fq%3Da%2520b"
    form = client.get(answer.headers["location"])
    assert hidden(form, "next") == "/topics?q=a%20b"
    back = log_in(client, next=hidden(form, "next"))
    assert (back.status_code, back.headers["location"]) == (303, "/topics?q=a%20b")


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)", "x",
        "", "//[", "http://[x", "///evil.example", "/\t/evil.example",
    ],
)  # fmt: skip
def test_no_login_leads_to_another_site(rig: Rig, target: str) -> None:
    client = rig.client()
    assert hidden(client.get("/login", params={"next": target}), "next") == "/"
    assert log_in(client, next=target).headers["location"] == "/"


def test_a_person_logs_in_sees_the_pages_and_logs_out(rig: Rig) -> None:
    client = rig.client()
    answer = log_in(client)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/;" in cookie
    shown = client.get("/")
    assert "Signed in as <b>ada</b>" in shown.text
    assert shown.headers["cache-control"] == "no-store"
    assert client.get("/api/v1/lag").status_code == 200
    assert log_out(client).headers["location"] == "/login"
    assert COOKIE not in client.cookies
    assert client.get("/api/v1/lag").status_code == 401


def test_over_https_the_cookie_belongs_to_this_host_alone(tmp_path: Path) -> None:
    with page(tmp_path) as rig:
        client = rig.client(base="https://127.0.0.1:8090")
        cookie = log_in(client).headers["set-cookie"]
        assert cookie.startswith("__Host-mill=") and "Secure" in cookie and "Domain" not in cookie
        assert client.get("/").status_code == 200
        key = client.cookies["__Host-mill"]
        other = rig.client(base="https://127.0.0.1:8090")
        other.cookies.set(COOKIE, key)
        assert other.get("/").status_code == 303, "a cookie that another site could set"


def test_pitfall_41_a_key_that_was_planted_is_not_used(rig: Rig) -> None:
    """A stranger who plants a cookie before the login does not share the session (OWASP)."""
    client, stranger = rig.client(), rig.client("203.0.113.9")
    log_in(stranger, "bea")
    planted = stranger.cookies[COOKIE]
    client.cookies.set(COOKIE, planted, domain="127.0.0.1")
    log_in(client)
    assert client.get("/").text.count("<b>ada</b>") == 1
    assert client.cookies[COOKIE] != planted
    assert stranger.get("/").status_code == 303, "a login ends the session that it replaces"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": HERE, "Sec-Fetch-Site": "cross-site"},
        {"Origin": HERE, "Content-Type": "text/plain"},
    ],
)
def test_pitfall_41_login_and_logout_accept_forms_of_this_site_only(
    rig: Rig, headers: dict[str, str]
) -> None:
    client = rig.client()
    words = {"name": "ada", "password": PASSWORD}
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    body = "&".join(f"{key}={value}" for key, value in words.items())
    answer = client.post("/login", content=body, headers=kind | headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    log_in(client)
    secret = hidden(client.get("/"), "form_secret")
    body = f"form_secret={secret}"
    assert client.post("/logout", content=body, headers=kind | headers).status_code == 403
    other = client.post("/logout", data={"form_secret": "x"}, headers={"Origin": HERE})
    assert other.status_code == 403
    assert client.get("/").status_code == 200


def test_a_form_that_does_not_arrive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise clients without a login could keep connections for ever."""
    monkeypatch.setattr(forms, "BODY_S", 0.01)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("the client sends nothing")

    async def scene() -> None:
        kind = (b"content-type", forms.FORM_TYPE.encode())
        sent = {
            "type": "http",
            "method": "POST",
            "headers": [(b"sec-fetch-site", b"same-origin"), kind],
        }
        async with asyncio.timeout(20):
            with pytest.raises(forms.NotFromHere, match="did not arrive"):
                await forms.posted(Request(sent, receive))

    asyncio.run(scene())


def test_answers_have_no_headers_for_other_sites(rig: Rig) -> None:
    client = rig.client()
    log_in(client)
    for path in ("/", "/api/v1/lag", "/login", "/healthz"):
        answer = client.get(path, headers={"Origin": "https://evil.example"})
        assert not any(name.startswith("access-control") for name in answer.headers)


def test_wrong_names_and_passwords_get_the_same_answer(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = log_in(rig.client("192.0.2.1"), "ada", "wrong-horse-battery")
    unknown = log_in(rig.client("192.0.2.2"), "my-password-by-mistake", PASSWORD)
    assert wrong.status_code == unknown.status_code == 403
    assert wrong.text == unknown.text
    assert "The name or the password is wrong." in wrong.text
    told = [vars(one) for one in caplog.records]
    assert "my-password-by-mistake" not in str(told), "people type passwords into the wrong field"
    assert "wrong-horse-battery" not in str(told) and PASSWORD not in str(told)


def test_an_unknown_name_is_hashed_too(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []

    class Counted:
        def matches(self, password: str) -> bool:
            hashed.append(password)
            return True

    monkeypatch.setattr(checking, "UNKNOWN", Counted())
    assert log_in(rig.client(), "stranger", PASSWORD).status_code == 403
    assert hashed == [PASSWORD]


def test_wrong_passwords_make_this_address_wait_and_no_other(rig: Rig) -> None:
    client = rig.client()
    for wait_s in (1, 2, 4):
        assert log_in(client, "ada", "wrong-horse-battery").status_code == 403
        waits = log_in(client)
        assert waits.status_code == 429
        assert waits.headers["retry-after"] == str(wait_s)
        assert f"try again in {wait_s} s" in waits.text
        rig.now_ms += wait_s * 1_000
    assert log_in(rig.client("192.0.2.8")).status_code == 303, "the user is not locked"
    assert log_in(client).status_code == 303


def test_more_than_twenty_logins_at_once_are_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = rig.client()
    with monkeypatch.context() as full:
        full.setattr(checking, "WAITING_MAX", 0)
        for _ in range(3):
            answer = log_in(client)
            assert answer.status_code == 429
            assert "Too many people log in at this moment" in answer.text
    assert log_in(client).status_code == 303, "a password that was not checked is not wrong"


def test_hashes_are_limited_to_five_a_second(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "UNKNOWN", ADA.password)
    codes = [log_in(rig.client(f"192.0.2.{n}"), "x").status_code for n in range(30)]
    assert codes == [403] * 20 + [429] * 10
    rig.now_ms += 1_000
    codes = [log_in(rig.client(f"192.0.3.{n}"), "x").status_code for n in range(8)]
    assert codes == [403] * 5 + [429] * 3


def test_requests_of_a_session_are_limited_and_those_of_others_are_not(rig: Rig) -> None:
    client, other = rig.client(), rig.client("192.0.2.8")
    log_in(client)
    log_in(other, "bea")
    codes = [client.get("/api/v1/lag").status_code for _ in range(80)]
    assert codes == [200] * 60 + [429] * 20
    assert other.get("/api/v1/lag").status_code == 200
    assert client.get("/static/mill.css").status_code == 200
    rig.now_ms += 1_000
    assert client.get("/api/v1/lag").status_code == 200


def test_a_change_of_the_people_is_in_force_at_once(rig: Rig) -> None:
    client, bea = rig.client(), rig.client("192.0.2.8")
    log_in(client)
    log_in(bea, "bea")
    rig.people(ADA)
    assert bea.get("/").status_code == 303
    assert client.get("/").status_code == 200
    rig.people(person("ada", PageRole.VIEWER))
    assert client.get("/").status_code == 303
    rig.people(person("ada", PageRole.OPERATOR, "another-horse-battery"), BEA)
    assert log_in(client).status_code == 403
    rig.now_ms += 1_000
    assert log_in(client, "ada", "another-horse-battery").status_code == 303


@pytest.mark.parametrize("content", [None, b"half", b'{"version": 1, "rows": [{}]}'])
def test_without_a_readable_file_the_page_stays_shut(rig: Rig, content: bytes | None) -> None:
    client = rig.client()
    log_in(client)
    (rig.folder / "users").unlink()
    if content is not None:
        (rig.folder / "users").write_bytes(content)
    assert client.get("/").status_code == 303
    assert log_in(client).status_code == 403


def test_a_file_that_could_not_be_read_for_a_moment_is_read_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = rig.client()
    with monkeypatch.context() as full:

        def too_many(path: Path) -> bytes:
            raise OSError(errno.EMFILE, "too many open files")

        full.setattr(Path, "read_bytes", too_many)
        rig.people(ADA)
        assert log_in(client).status_code == 403
    rig.now_ms += 1_000
    assert log_in(client).status_code == 303


def test_a_session_at_rest_ends_and_a_page_that_refreshes_itself_is_at_rest(rig: Rig) -> None:
    client = rig.client()
    log_in(client)
    refreshing = {"Millrace-Refresh": "1"}
    for _ in range(12):
        rig.now_ms += IDLE_MS_MAX // 12
        assert client.get("/", headers=refreshing).status_code == 200
    rig.now_ms += 1
    assert client.get("/", headers=refreshing).status_code == 303


def test_a_stream_that_the_browser_opens_again_does_not_extend_the_session(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = rig.client()
    log_in(client)
    # The test client would wait for the end of a stream.
    monkeypatch.setattr(gate, "STREAMS_MAX", 0)
    rig.now_ms += ORDERS_IDLE_MS_MAX
    assert client.get("/events").status_code == 429
    rig.now_ms += 1
    assert client.get("/admin/reset-offsets").status_code == 401


# --- roles ----------------------------------------------------------------------------------------


def test_a_viewer_sees_the_pages_and_gives_no_orders(rig: Rig) -> None:
    client = rig.client()
    log_in(client, "bea")
    for path in ("/", "/topics", "/groups/millrace-stream", "/brokers"):
        assert "/admin" not in client.get(path).text, path
    assert "You are logged in as a viewer" in client.get("/admin").text
    assert client.get("/admin/create-topic").status_code == 401
    secret = hidden(client.get("/"), "form_secret")
    for path in ("/admin/reset-offsets", "/admin/reset-offsets/confirm", "/admin/enter"):
        words = RESET | {"form_secret": secret, "token": "x", "who": "bea"}
        answer = client.post(path, data=words, headers={"Origin": HERE})
        assert answer.status_code in (403, 405, 422), path
    assert rig.orders.done == []


def test_an_operator_gives_orders_without_the_token_under_the_own_name(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    client = rig.client()
    log_in(client)
    assert 'name="token"' not in client.get("/admin").text
    form = client.get("/admin/reset-offsets")
    words = RESET | {"form_secret": hidden(form, "form_secret")}
    plan = client.post("/admin/reset-offsets", data=words, headers={"Origin": HERE})
    ticket = hidden(plan, "ticket")
    words |= {"ticket": ticket, "name": "g"}
    with caplog.at_level(logging.WARNING):
        done = client.post("/admin/reset-offsets/confirm", data=words, headers={"Origin": HERE})
    assert done.status_code == 200
    assert len(rig.orders.done) == 1
    assert "ada (192.0.2.7)" in str([vars(one) for one in caplog.records])


def test_a_right_that_is_withdrawn_while_an_order_is_under_way_stops_the_order(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = rig.client()
    log_in(client)
    words = RESET | {"form_secret": hidden(client.get("/admin/reset-offsets"), "form_secret")}
    plan = client.post("/admin/reset-offsets", data=words, headers={"Origin": HERE})
    look = rig.orders.look

    async def looking(*arguments: Any) -> Any:
        rig.people(person("ada", PageRole.VIEWER))
        return await look(*arguments)

    monkeypatch.setattr(rig.orders, "look", looking)
    words |= {"ticket": hidden(plan, "ticket"), "name": "g"}
    answer = client.post("/admin/reset-offsets/confirm", data=words, headers={"Origin": HERE})
    assert answer.status_code == 403
    assert rig.orders.done == []


def test_an_operator_at_rest_must_log_in_again_to_give_orders(rig: Rig) -> None:
    client = rig.client()
    log_in(client)
    form = client.get("/admin/reset-offsets")
    words = RESET | {"form_secret": hidden(form, "form_secret")}
    rig.now_ms += ORDERS_IDLE_MS_MAX + 1
    refused = client.post("/admin/reset-offsets", data=words, headers={"Origin": HERE})
    assert refused.status_code == 403
    assert "Log in again" in client.get("/admin").text
    assert client.get("/").status_code == 200
    log_in(client)
    assert client.get("/admin/reset-offsets").status_code == 200


def test_pitfall_41_a_form_of_another_session_orders_nothing(rig: Rig) -> None:
    rig.people(ADA, person("eve", PageRole.OPERATOR))
    client, eve = rig.client(), rig.client("192.0.2.8")
    log_in(client)
    log_in(eve, "eve")
    secret = hidden(eve.get("/"), "form_secret")
    words = RESET | {"form_secret": secret}
    answer = client.post("/admin/reset-offsets", data=words, headers={"Origin": HERE})
    assert answer.status_code == 403


def test_pages_of_two_people_are_not_taken_for_each_other(rig: Rig) -> None:
    """A browser that asks with the ETag of another person's page gets the page."""
    client = rig.client()
    log_in(client)
    etag = client.get("/").headers["etag"]
    assert client.get("/", headers={"If-None-Match": etag}).status_code == 304
    log_out(client)
    log_in(client, "bea")
    answer = client.get("/", headers={"If-None-Match": etag})
    assert answer.status_code == 200 and "<b>bea</b>" in answer.text


def test_below_a_path_all_addresses_have_it(tmp_path: Path) -> None:
    with page(tmp_path, root="/mill") as rig:
        client = rig.client()
        assert client.get("/mill/topics").headers["location"] == "/mill/login?next=/topics"
        assert 'action="/mill/login"' in client.get("/mill/login").text
        words = {"name": "ada", "password": PASSWORD, "next": "/topics"}
        answer = client.post("/mill/login", data=words, headers={"Origin": HERE})
        assert answer.headers["location"] == "/mill/topics"
        assert client.get("/mill/topics").status_code == 200
        assert client.get("/mill/api/v1/lag", headers={"Authorization": f"Bearer {TOKEN}"})
