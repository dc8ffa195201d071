"""Delivers alerts to a webhook: one message at a time, with retries.

It asks `Alerts.digest` for the next message. Changes that happen while a message is being sent or
retried are all in the next message.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable

from monitor.alerts.core import Alerts
from monitor.alerts.daemon_thread import in_daemon_thread
from monitor.alerts.message import Body, body_of
from monitor.alerts.webhook import WebhookFailed, WebhookUnanswered
from monitor.state.alert import Alert, Digest
from protocol.client.backoff import Backoff
from protocol.log import fields

RETRY_MS = (5_000, 300_000)
CLOSE_S = 2.0
"""The longest time that a stop waits for a message on its way. The next process sends it again."""

UNANSWERED_MAX = 5
"""The most times that an alert is sent to a receiver that never answers in time."""

logger = logging.getLogger(__name__)


class Notifier:
    """Delivers digests with `send`, which runs in a thread.

    `send` posts a body within a deadline or raises WebhookFailed. `page` is the address of the
    monitor's own page. `where` is the name of the receiver in texts for people.
    """

    def __init__(
        self,
        alerts: Alerts,
        send: Callable[[Body], object],
        *,
        repeat_ms: int,
        page: str,
        where: str,
        chance: random.Random,
    ) -> None:
        self.problem: str | None = None
        self.told_at_ms: int | None = None
        self.where = where
        self._alerts = alerts
        self._send = send
        self._repeat_ms = repeat_ms
        self._page = page
        self._backoff = Backoff(*RETRY_MS, chance)
        self._retry_at_ms = 0
        self._task: asyncio.Task[None] | None = None
        self._unanswered: Counter[tuple[str, str, int, bool]] = Counter()

    def poke(self, now_ms: int, cluster: str) -> None:
        """Send the changes, unless a message is being sent or the next retry is not due."""
        if self._task is not None:
            if not self._task.done():
                return
            self._task.result()
        if now_ms < self._retry_at_ms:
            return
        digest = self._alerts.digest(now_ms, self._repeat_ms)
        if digest is not None:
            body = body_of(digest, self._page, cluster)
            self._task = asyncio.create_task(self._deliver(digest, body), name="alerts")

    async def close(self) -> None:
        """Wait a moment for the message that is being sent, then stop waiting; its daemon thread
        does not delay the exit.
        """
        if self._task is not None:
            _, late = await asyncio.wait({self._task}, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _deliver(self, digest: Digest, body: Body) -> None:
        try:
            await asyncio.wrap_future(in_daemon_thread(lambda: self._send(body), "alerts"))
        except WebhookFailed as error:
            self.problem = f"alerts are not delivered: {error}"
            wait_ms = self._backoff.next_ms()
            self._retry_at_ms = digest.at_ms + wait_ms
            logger.warning(
                "alerts not delivered, trying again", extra=fields(why=error, again_in_ms=wait_ms)
            )
            if isinstance(error, WebhookUnanswered):
                self._give_up_on_unanswered(digest)
            return
        self._alerts.told(digest)
        self._backoff.reset()
        self._unanswered.clear()
        self.problem, self.told_at_ms = None, digest.at_ms

    def _give_up_on_unanswered(self, digest: Digest) -> None:
        """Mark the alerts of a digest as delivered after enough messages without an answer.

        The receiver can have accepted each of those messages.
        """
        self._unanswered.update(map(_identity, (*digest.opened, *digest.closed)))
        opened = tuple(filter(self._is_given_up, digest.opened))
        closed = tuple(filter(self._is_given_up, digest.closed))
        if opened or closed:
            self._alerts.told(Digest(digest.at_ms, opened, closed))
            for alert in (*opened, *closed):
                del self._unanswered[_identity(alert)]
            logger.warning(
                "webhook did not answer in time, so its alerts are not sent again",
                extra=fields(alerts=len(opened) + len(closed), tries=UNANSWERED_MAX),
            )

    def _is_given_up(self, alert: Alert) -> bool:
        return self._unanswered[_identity(alert)] >= UNANSWERED_MAX


def _identity(alert: Alert) -> tuple[str, str, int, bool]:
    return alert.rule, alert.subject, alert.opened_at_ms, alert.is_open
