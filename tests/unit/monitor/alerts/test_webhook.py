"""Outgoing webhook messages: their text, which responses count as success, and what happens after a
failure."""

import asyncio
import random
import threading
from dataclasses import replace

import pytest

from monitor.alerts.core import Alerts
from monitor.alerts.message import LISTED_MAX, TEXT_CHARACTERS_MAX, Body, body_of, trial_body
from monitor.alerts.notifier import RETRY_MS, Notifier
from monitor.alerts.webhook import ANSWER_BYTES_MAX, Webhook, WebhookFailed
from monitor.state.alert import Alert, Digest, Kind, Observed, Rule, Unit
from tests.harness.hook import hook
from tests.harness.ports import free_port

PAGE = "http://127.0.0.1:8090"
ALERT = Alert("lag", Kind.LAG, "team/x", 1_000, "7 wait", "/groups/team%2Fx", 7.0)
RULE = Rule("lag", Kind.LAG, 5, Unit.OFFSETS, for_ms=0, clear_ms=0)
MINUTE_MS = 60_000


def test_a_message_tells_what_opened_and_what_is_over() -> None:
    over = replace(ALERT, subject="b", text="9 wait", closed_at_ms=5_000)
    body = body_of(Digest(6_000, (ALERT,), (over,)), PAGE, "cluster-1")
    assert body["schema"] == "alerts/1"
    assert body["text"] == "✕ lag: 7 wait\n● lag: is over: 9 wait"
    assert body["cluster"] == "cluster-1"
    alerts = body["alerts"]
    assert isinstance(alerts, list)
    assert alerts[0] == {
        "id": "lag/team/x/1000",
        "state": "open",
        "rule": "lag",
        "on": "lag",
        "subject": "team/x",
        "text": "7 wait",
        "value": 7.0,
        "opened_at": "1970-01-01T00:00:01Z",
        "closed_at": None,
        "page": "http://127.0.0.1:8090/groups/team%2Fx",
    }
    assert (alerts[1]["state"], alerts[1]["closed_at"]) == ("closed", "1970-01-01T00:00:05Z")


def test_a_message_has_a_bound() -> None:
    many = tuple(replace(ALERT, subject=str(n), text="x" * 9_999) for n in range(LISTED_MAX + 9))
    body = body_of(Digest(6_000, many, ()), PAGE, "c")
    alerts = body["alerts"]
    assert isinstance(alerts, list)
    assert (len(alerts), body["more"]) == (LISTED_MAX, 9)
    assert len(alerts[0]["text"]) == TEXT_CHARACTERS_MAX
    assert str(body["text"]).endswith("and 9 more")


def test_a_message_is_posted_with_its_token() -> None:
    with hook() as other:
        webhook = Webhook(other.url, "t0ken")
        assert webhook.send(trial_body(1_000, PAGE, "c", ["lag"])) == 204
    assert other.posts[0]["alerts"] == []
    assert "test of the alerts of Millrace" in other.posts[0]["text"]
    assert (other.paths, other.tokens) == (["/hook/s3cret"], ["Bearer t0ken"])


@pytest.mark.parametrize("status", [199, 301, 302, 307, 308, 400, 404, 500])
def test_only_a_2xx_is_success_and_redirects_are_not_followed(status: int) -> None:
    with hook() as elsewhere, hook(statuses=[status], text="no\x1b[31m!") as other:
        other.location = elsewhere.url
        with pytest.raises(WebhookFailed) as found:
            Webhook(other.url).send({})
    assert elsewhere.paths == []
    text = str(found.value)
    assert "s3cret" not in text, "the address may be the secret"
    assert "\x1b" not in text
    if status >= 400:
        assert f"answered {status}: no\\x1b[31m!" in text


def test_a_receiver_that_does_not_answer_is_a_failure_with_a_reason() -> None:
    url = f"http://127.0.0.1:{free_port()}/s3cret"
    with pytest.raises(WebhookFailed, match="gives no answer") as found:
        Webhook(url).send({})
    assert "refused" in str(found.value)
    assert "s3cret" not in str(found.value)
    with (
        hook(silent=threading.Event()) as other,
        pytest.raises(WebhookFailed, match="no answer within"),
    ):
        Webhook(other.url, timeout_s=0.2).send({})


class Line:
    """A double of the webhook. It stores messages in a list, or fails."""

    def __init__(self) -> None:
        self.sent: list[Body] = []
        self.is_down = False

    def send(self, body: Body) -> None:
        self.sent.append(body)
        if self.is_down:
            raise WebhookFailed("h gives no answer")


class Rig:
    """The alerts of one group, and a notifier that sends messages about them."""

    def __init__(self) -> None:
        self.alerts = Alerts((RULE,))
        self.line = Line()
        self.notifier = Notifier(
            self.alerts,
            self.line.send,
            repeat_ms=60 * MINUTE_MS,
            page=PAGE,
            where="h",
            chance=random.Random(1),
        )

    def problem(self) -> str | None:
        """Return the problem that the monitor reports about the webhook."""
        return self.notifier.problem

    async def see(self, lag: float, now_ms: int) -> int:
        """Evaluate a reading and send what is due. Return the number of messages sent so far."""
        self.alerts.look({"lag": [Observed("g", lag, f"{lag:.0f} wait")]}, now_ms)
        self.notifier.poke(now_ms, "c")
        await self.notifier.close()
        return len(self.line.sent)


def test_a_change_leaves_once() -> None:
    async def story() -> None:
        rig = Rig()
        assert await rig.see(1, 1_000) == 0
        assert await rig.see(9, 2_000) == 1
        assert await rig.see(9, 3_000) == 1
        assert rig.notifier.told_at_ms == 2_000
        assert await rig.see(0, 4_000) == 2
        assert rig.line.sent[1]["text"] == "● lag: is over: 9 wait"

    asyncio.run(story())


def test_a_failure_is_said_tried_again_later_and_then_forgotten() -> None:
    async def story() -> None:
        rig = Rig()
        rig.line.is_down = True
        assert await rig.see(9, 1_000) == 1
        assert rig.problem() == "alerts are not delivered: h gives no answer"
        assert await rig.see(9, 1_000 + RETRY_MS[0] // 2) == 1, "not at once"
        assert await rig.see(9, 1_000 + 2 * RETRY_MS[0]) == 2
        rig.line.is_down = False
        assert await rig.see(12, 1_000 + 2 * RETRY_MS[1]) == 3
        assert rig.problem() is None
        assert rig.line.sent[2]["text"] == "✕ lag: 12 wait"
        assert await rig.see(12, 2_000 + 2 * RETRY_MS[1]) == 3

    asyncio.run(story())


def test_one_message_at_a_time_is_on_its_way() -> None:
    async def story() -> None:
        rig = Rig()
        held = threading.Event()
        sent: list[Body] = []

        def slow(body: Body) -> None:
            sent.append(body)
            held.wait()

        rig.notifier._send = slow
        rig.alerts.look({"lag": [Observed("a", 9.0)]}, 1_000)
        rig.notifier.poke(1_000, "c")
        rig.alerts.look({"lag": [Observed("a", 9.0), Observed("b", 9.0)]}, 2_000)
        rig.notifier.poke(2_000, "c")
        held.set()
        await rig.notifier.close()
        assert len(sent) == 1
        rig.notifier.poke(3_000, "c")
        await rig.notifier.close()
        assert len(sent) == 2
        alerts = sent[1]["alerts"]
        assert isinstance(alerts, list)
        assert [one["subject"] for one in alerts] == ["b"]

    asyncio.run(story())


def test_a_fault_of_our_own_is_not_swallowed() -> None:
    async def story() -> None:
        rig = Rig()

        def broken(body: Body) -> None:
            raise KeyError("ours")

        rig.notifier._send = broken
        await rig.see(9, 1_000)
        with pytest.raises(KeyError):
            rig.notifier.poke(2_000, "c")

    asyncio.run(story())


def test_of_a_long_refusal_the_beginning_is_told() -> None:
    with (
        hook(statuses=[500], text="x" * 100_000) as other,
        pytest.raises(WebhookFailed) as found,
    ):
        Webhook(other.url).send({})
    assert str(found.value).endswith(": " + "x" * ANSWER_BYTES_MAX)
