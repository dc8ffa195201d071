"""Administration on the page: it is off unless allowed, accepts only its own forms, and logs and
executes each order once."""

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from httpx import Response

from monitor.admin.operating import OperationFailed, Operator, Orders, Reader
from monitor.admin.operations import Effect, Plan
from monitor.admin.orders import ElectLeaders, Order, ResetOffsets
from monitor.admin.pages import COOKIE
from monitor.config.settings import MonitorSection, MonitorSettings
from monitor.history.recorder import open_recorder
from monitor.http import create_app
from monitor.login.forms import BODY_BYTES_MAX
from monitor.sampling.sampler import Sampler
from protocol.security.cluster_security import ClusterEntry
from protocol.types import TopicPartition
from tests.harness.wait import wait_until
from tests.unit.monitor.test_http import Addresses, Script, never, some_reading

TOKEN = "the-token-of-this-mill"
HERE = "http://127.0.0.1:8090"
HOSTILE = "<img src=x onerror=alert(1)>"
RESET = {"group": "g", "topics": "", "to": "start"}


class Scripted:
    """A double of the cluster. The test can change `plan` between two requests."""

    def __init__(self) -> None:
        self.plan = Plan(
            ElectLeaders("logs"), "Moves things", (Effect("logs-0", "broker 1", "broker 2"),),
            basis=(1,), offsets={TopicPartition("logs", 0): 7},
        )  # fmt: skip
        self.done: list[Plan] = []
        self.fault: str | None = None
        self.readers: list[Reader] = []

    async def look(self, order: Order, readers: Iterable[Reader]) -> Plan:
        self.readers = list(readers)
        return replace(self.plan, order=order)

    async def carry_out(self, plan: Plan) -> str:
        self.done.append(plan)
        if self.fault is not None:
            raise OperationFailed(self.fault)
        return "done"


class Desk:
    """A user at the page, with a client and the scripted cluster."""

    def __init__(self, client: TestClient, orders: Scripted) -> None:
        self.client = client
        self.orders = orders
        self.form_secret = ""

    def post(self, path: str, words: dict[str, str], **headers: str) -> Response:
        fields = {"form_secret": self.form_secret} | words
        answer: Response = self.client.post(path, data=fields, headers={"Origin": HERE} | headers)
        return answer

    def enter(self, who: str = "Ada") -> None:
        answer = self.post("/admin/enter", {"who": who, "token": TOKEN})
        assert answer.status_code == 200, answer.text
        self.form_secret = hidden(answer, "form_secret")

    def events(self) -> list[str]:
        rows = self.client.get("/api/v1/events").json()["data"]
        return [row["text"] for row in rows if row["kind"] == "admin"]


def hidden(answer: Response, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]+)"', answer.text)
    assert found is not None, answer.text
    return found[1]


def app_of(folder: Path, orders: Orders | None, *, is_allowed: bool = True) -> TestClient:
    settings = MonitorSettings(
        section=MonitorSection(admin=is_allowed), bootstrap_servers="127.0.0.1:9092",
        data_dir="data", parts={}, token=TOKEN if is_allowed else None,
    )  # fmt: skip
    recorder = open_recorder(folder, settings.section.retain_ms, "millrace-stream")
    sampler = Sampler(settings, Script(some_reading()), lambda: 10_000, recorder)
    app = create_app(
        settings, sampler, started_at_ms=0, clock_ms=lambda: 10_000, on_failure=never,
        orders=orders,
    )  # fmt: skip
    return TestClient(app, base_url=HERE)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    orders = Scripted()
    with app_of(tmp_path, orders) as client:
        wait_until(lambda: client.get("/healthz").status_code == 200, 10, "the first snapshot")
        yield Desk(client, orders)


def test_where_it_is_not_allowed_there_is_no_route_and_no_link(tmp_path: Path) -> None:
    with app_of(tmp_path, None, is_allowed=False) as client:
        wait_until(lambda: client.get("/healthz").status_code == 200, 10, "the first snapshot")
        for path in ("/admin", "/admin/create-topic"):
            assert client.get(path).status_code == 404
        for path in ("/admin/enter", "/admin/create-topic", "/admin/create-topic/confirm"):
            words = {"token": "", "who": "Eve"}
            assert client.post(path, data=words, headers={"Origin": HERE}).status_code == 404
        for path in ("/", "/topics", "/topics/logs.access", "/brokers", "/groups/millrace-stream"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert "/admin" not in answer.text, path


def test_links_stand_where_the_things_are(desk: Desk) -> None:
    for path, link in (
        ("/", 'href="/admin"'),
        ("/topics", 'href="/admin/create-topic"'),
        ("/topics/logs.access", 'href="/admin/delete-records?topic=logs.access"'),
        ("/groups/millrace-stream", 'href="/admin/reset-offsets?group=millrace-stream"'),
        ("/brokers", 'href="/admin/elect-leaders"'),
    ):
        assert link in desk.client.get(path).text, path


def test_no_form_is_shown_before_the_user_has_entered(desk: Desk) -> None:
    answer = desk.client.get("/admin/create-topic")
    assert answer.status_code == 401
    assert 'name="token"' in answer.text
    assert desk.post("/admin/create-topic", {"topic": "t"}).status_code == 403
    wrong = desk.post("/admin/enter", {"who": "Eve", "token": "guess"})
    assert wrong.status_code == 403
    assert "not the token" in wrong.text
    assert COOKIE not in desk.client.cookies
    assert desk.orders.done == []


def test_the_cookie_is_for_this_site_alone(desk: Desk) -> None:
    answer = desk.client.post(
        "/admin/enter", data={"who": "Ada", "token": TOKEN}, headers={"Origin": HERE},
        follow_redirects=False,
    )  # fmt: skip
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie


def test_a_plan_is_shown_then_confirmed_by_name_and_noted(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.enter()
    shown = desk.post("/admin/reset-offsets", RESET)
    assert shown.status_code == 200
    assert "nothing is done yet" in shown.text
    for text in ("logs-0", "broker 1", "broker 2", "Moves things: 1 change<", 'mono">g<'):
        assert text in shown.text
    assert desk.orders.done == []
    ticket = hidden(shown, "ticket")
    wrong = desk.post("/admin/reset-offsets/confirm", {"ticket": ticket, "name": "h"})
    assert wrong.status_code == 403
    assert desk.orders.done == []
    with caplog.at_level(logging.WARNING):
        done = desk.post("/admin/reset-offsets/confirm", {"ticket": ticket, "name": "g"})
    assert done.status_code == 200
    assert "● Moves things: done" in done.text
    assert [one.offsets for one in desk.orders.done] == [{TopicPartition("logs", 0): 7}]
    assert isinstance(desk.orders.done[0].order, ResetOffsets)
    twice = desk.post("/admin/reset-offsets/confirm", {"ticket": ticket, "name": "g"})
    assert twice.status_code == 403
    assert len(desk.orders.done) == 1
    assert desk.events() == [
        "Ada (testclient): Moves things, 1 change: done",
        "Ada (testclient): Moves things, 1 change: begun",
    ]
    logged = [
        one.__dict__["mill_fields"]
        for one in caplog.records
        if one.getMessage() == "change made on the page"
    ]
    assert [one["result"] for one in logged] == ["begun", "done"]
    assert all(one["who"] == "Ada (testclient)" for one in logged)
    assert all("logs-0: broker 1 → broker 2" in one["effects"] for one in logged)


def test_a_cluster_that_changed_after_the_plan_is_looked_at_again(desk: Desk) -> None:
    desk.enter()
    ticket = hidden(desk.post("/admin/reset-offsets", RESET), "ticket")
    desk.orders.plan = replace(desk.orders.plan, basis=(2,))
    answer = desk.post("/admin/reset-offsets/confirm", {"ticket": ticket, "name": "g"})
    assert answer.status_code == 409
    assert "has changed since the plan was made, so nothing was done" in answer.text
    assert desk.orders.done == []
    again = desk.post(
        "/admin/reset-offsets/confirm", {"ticket": hidden(answer, "ticket"), "name": "g"}
    )
    assert again.status_code == 200
    assert len(desk.orders.done) == 1


def test_a_refused_plan_has_no_way_to_be_confirmed(desk: Desk) -> None:
    desk.enter()
    ticket = hidden(desk.post("/admin/reset-offsets", RESET), "ticket")
    desk.orders.plan = replace(desk.orders.plan, refusal="it has members: export-1")
    answer = desk.post("/admin/reset-offsets", RESET)
    assert answer.status_code == 409
    assert "Refused: it has members: export-1" in answer.text
    assert 'name="ticket"' not in answer.text
    # A member that joins between the plan and the confirmation must make the confirmation fail.
    late = desk.post("/admin/reset-offsets/confirm", {"ticket": ticket, "name": "g"})
    assert late.status_code == 409
    assert desk.orders.done == []


def test_what_fails_is_said_and_noted(desk: Desk) -> None:
    desk.enter()
    desk.orders.fault = "no broker answers"
    ticket = hidden(desk.post("/admin/reset-offsets", RESET), "ticket")
    answer = desk.post("/admin/reset-offsets/confirm", {"ticket": ticket, "name": "g"})
    assert answer.status_code == 502
    assert "✕ Moves things: failed: no broker answers" in answer.text
    assert desk.events()[0].endswith(": failed: no broker answers")


def test_what_cannot_be_noted_is_not_done(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    from monitor.history.store import Store

    desk.enter()
    ticket = hidden(desk.post("/admin/reset-offsets", RESET), "ticket")

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Store, "note", full)
    answer = desk.post("/admin/reset-offsets/confirm", {"ticket": ticket, "name": "g"})
    assert answer.status_code == 503
    assert "the history cannot be written" in answer.text
    assert desk.orders.done == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": HERE, "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {},
        {"Origin": HERE, "Content-Type": "text/plain"},
    ],
)
def test_a_form_of_another_site_orders_nothing(desk: Desk, headers: dict[str, str]) -> None:
    desk.enter()
    shown = desk.post("/admin/reset-offsets", RESET)
    words = {"form_secret": desk.form_secret, "ticket": hidden(shown, "ticket"), "name": "g"}
    answer = desk.client.post("/admin/reset-offsets/confirm", data=words, headers=headers)
    assert answer.status_code == 403
    assert desk.orders.done == []
    # The same form from the monitor's own page is accepted, even if the browser sends no Origin
    # header.
    here = {"Sec-Fetch-Site": "same-origin"}
    assert desk.client.post(
        "/admin/reset-offsets/confirm", data=words, headers=here
    ).status_code == 200  # fmt: skip


def test_a_form_without_its_secret_or_too_long_orders_nothing(desk: Desk) -> None:
    desk.enter()
    secret, desk.form_secret = desk.form_secret, "guess"
    assert desk.post("/admin/reset-offsets", RESET).status_code == 403
    desk.form_secret = secret
    long = desk.post("/admin/reset-offsets", {**RESET, "topics": "t" * BODY_BYTES_MAX})
    assert long.status_code == 403
    assert "expected at most" in long.text


def test_faults_of_words_are_named_and_the_words_stay(desk: Desk) -> None:
    desk.enter()
    answer = desk.post("/admin/reset-offsets", {"group": HOSTILE, "topics": "", "to": "soon"})
    assert answer.status_code == 400
    assert "to: found" in answer.text
    assert HOSTILE not in answer.text
    assert "&lt;img" in answer.text
    prefilled = desk.client.get("/admin/alter-topic", params={"topic": HOSTILE}).text
    assert HOSTILE not in prefilled
    assert 'value="&lt;img' in prefilled


def test_readers_are_told_of_a_deletion(desk: Desk) -> None:
    desk.enter()
    desk.post("/admin/delete-records", {"topic": "logs.access", "below": "end", "partitions": ""})
    assert desk.orders.readers == [("millrace-stream", 0, 7), ("millrace-stream", 1, 4)]


def test_leaving_ends_it(desk: Desk) -> None:
    desk.enter()
    assert desk.post("/admin/leave", {}).status_code == 200
    assert desk.client.get("/admin/create-topic").status_code == 401


def test_its_pages_have_a_strict_policy_and_are_not_cached(desk: Desk) -> None:
    desk.enter()
    answers = [desk.client.get("/admin"), desk.client.get("/admin/create-topic"),
               desk.post("/admin/reset-offsets", RESET)]  # fmt: skip
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store"
        assert TOKEN not in answer.text
        page = Addresses()
        page.feed(answer.text)
        assert page.inline == []
        assert all(address.startswith(("/", "#")) for address in page.found)
        assert answer.text.count("<h1>") == 1


def test_the_real_operator_says_that_no_broker_answers(tmp_path: Path) -> None:
    with app_of(tmp_path, Operator(ClusterEntry("127.0.0.1:1"), "millrace-stream")) as client:
        wait_until(lambda: client.get("/healthz").status_code == 200, 10, "the first snapshot")
        desk = Desk(client, Scripted())
        desk.enter()
        answer = desk.post("/admin/elect-leaders", {"topic": ""})
        assert answer.status_code == 503
        assert "127.0.0.1:1" in answer.text
