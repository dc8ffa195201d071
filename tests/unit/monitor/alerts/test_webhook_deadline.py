"""A slow webhook delays no other message, and every message to it ends at a deadline."""

import asyncio
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from monitor.alerts.core import Alerts
from monitor.alerts.message import Body
from monitor.alerts.notifier import CLOSE_S, RETRY_MS, UNANSWERED_MAX, Notifier
from monitor.alerts.webhook import Webhook, WebhookFailed, WebhookUnanswered
from monitor.state.alert import Kind, Observed, Rule, Unit
from tests.harness.wait import wait_until

DEADLINE_S = 0.5
PATIENCE_S = 5.0
"""A call that takes longer has no deadline."""


@contextmanager
def receiver(first: bytes, drip: bytes) -> Iterator[str]:
    """Run a server that sends `first` after the first bytes arrive, and then repeats `drip`
    forever."""
    is_over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(peer: socket.socket) -> None:
        with peer, suppress(OSError):
            peer.recv(65_536)
            peer.sendall(first)
            while drip and not is_over.wait(0.05):
                peer.sendall(drip)
            is_over.wait()

    def serve() -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                threading.Thread(target=talk, args=(peer,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}/s3cret"
    finally:
        is_over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def failure_of(url: str) -> WebhookFailed:
    """Return the error of a message to this address. Check that the error comes in time, and that
    the sending thread ends."""
    began_s = time.monotonic()
    with pytest.raises(WebhookFailed) as found:
        Webhook(url, timeout_s=DEADLINE_S).send({"text": "x"})
    assert time.monotonic() - began_s < PATIENCE_S
    assert "s3cret" not in str(found.value)
    wait_until(
        lambda: not any(one.name == "webhook" for one in threading.enumerate()),
        PATIENCE_S,
        "the end of the thread that waited for the answer",
    )
    return found.value


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        pytest.param(b"", b"", id="silence"),
        pytest.param(b"", b"H", id="the status line drips"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX-A: ", b"a", id="a header drips"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", b"X-A: a\r\n", id="headers without end"),
        pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n", id="continue, forever"),
    ],
)
def test_an_answer_that_drips_ends_with_the_deadline(first: bytes, drip: bytes) -> None:
    with receiver(first, drip) as address:
        error = failure_of(f"http://{address}")
    # http.client gives up by its own limit after a hundred headers.
    if "got more than" not in str(error):
        assert isinstance(error, WebhookUnanswered)
        assert "no answer within 0.5 s (monitor.alerts.timeout)" in str(error)


def test_a_refusal_whose_text_drips_is_a_refusal() -> None:
    head = b"HTTP/1.1 503 Away\r\nContent-Length: 300\r\n\r\n"
    with receiver(head, b"x") as address:
        error = failure_of(f"http://{address}")
    assert not isinstance(error, WebhookUnanswered)
    assert str(error).endswith("answered 503")


def test_an_answer_whose_body_drips_was_an_answer() -> None:
    with receiver(b"HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n", b"x") as address:
        assert Webhook(f"http://{address}", timeout_s=DEADLINE_S).send({}) == 200


def test_a_handshake_that_never_ends_has_taken_no_message() -> None:
    with receiver(b"\x16\x03\x03\x40\x00", b"\x02") as address:
        error = failure_of(f"https://{address}")
    assert not isinstance(error, WebhookUnanswered)


def test_a_receiver_that_reads_nothing_has_not_the_whole_message() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/s3cret"
        with pytest.raises(WebhookFailed) as found:
            Webhook(url, timeout_s=DEADLINE_S).send({"text": "x" * (64 << 20)})
    assert not isinstance(found.value, WebhookUnanswered)


def test_an_answer_within_the_deadline_is_waited_for() -> None:
    with receiver(b"HTTP/1.1 200 OK\r\n", b"\r\n") as address:
        assert Webhook(f"http://{address}", timeout_s=PATIENCE_S).send({}) == 200


RULE = Rule("lag", Kind.LAG, 5, Unit.OFFSETS, for_ms=0, clear_ms=0)


class Late:
    """A webhook that receives each message but answers only after the deadline."""

    def __init__(self) -> None:
        self.bodies: list[Body] = []
        self.is_late = True

    def send(self, body: Body) -> None:
        self.bodies.append(body)
        if self.is_late:
            raise WebhookUnanswered("h gives no answer")

    def told(self, subject: str) -> int:
        """Return how many received alerts were about the subject."""
        rows = [row for body in self.bodies for row in body["alerts"]]  # type: ignore[attr-defined]
        return sum(row["subject"] == subject for row in rows)


def notifier_of(alerts: Alerts, send: object) -> Notifier:
    return Notifier(
        alerts, send, repeat_ms=10**9, page="", where="h", chance=random.Random(1)  # type: ignore[arg-type]
    )  # fmt: skip


def test_what_was_taken_late_is_not_sent_for_ever() -> None:
    async def story() -> None:
        late = Late()
        alerts = Alerts((RULE,))
        notifier = notifier_of(alerts, late.send)
        now_ms = 0
        subjects = ["a"]

        async def looks(count: int) -> None:
            nonlocal now_ms
            for _ in range(count):
                now_ms += 2 * RETRY_MS[1]
                alerts.look({"lag": [Observed(one, 9.0) for one in subjects]}, now_ms)
                notifier.poke(now_ms, "c")
                await notifier.close()

        await looks(2)
        subjects.append("b")
        await looks(3 * UNANSWERED_MAX)
        assert (late.told("a"), late.told("b")) == (UNANSWERED_MAX, UNANSWERED_MAX)
        assert notifier.problem, "the page goes on saying so"
        late.is_late = False
        subjects.append("c")
        await looks(2)
        assert (late.told("a"), late.told("c")) == (UNANSWERED_MAX, 1)
        assert not notifier.problem
        late.is_late = True
        subjects.clear()
        await looks(3 * UNANSWERED_MAX)
        assert late.told("a") == 2 * UNANSWERED_MAX, "that it is over has its own tries"

    asyncio.run(story())


def test_a_receiver_that_is_away_is_sent_to_until_it_is_back() -> None:
    async def story() -> None:
        sent: list[Body] = []

        def away(body: Body) -> None:
            sent.append(body)
            raise WebhookFailed("refused")

        alerts = Alerts((RULE,))
        notifier = notifier_of(alerts, away)
        for look in range(1, 3 * UNANSWERED_MAX + 1):
            alerts.look({"lag": [Observed("a", 9.0)]}, look * 2 * RETRY_MS[1])
            notifier.poke(look * 2 * RETRY_MS[1], "c")
            await notifier.close()
        assert len(sent) == 3 * UNANSWERED_MAX

    asyncio.run(story())


def test_a_stop_does_not_wait_for_a_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.alerts.notifier.CLOSE_S", 0.1)
    held = threading.Event()

    async def story() -> None:
        alerts = Alerts((RULE,))
        notifier = notifier_of(alerts, lambda body: held.wait())
        alerts.look({"lag": [Observed("a", 9.0)]}, 1_000)
        notifier.poke(1_000, "c")
        await notifier.close()

    began_s = time.monotonic()
    asyncio.run(story())
    assert time.monotonic() - began_s < PATIENCE_S, "nor does the end of the loop"
    held.set()
    assert CLOSE_S < PATIENCE_S
