"""Has a webhook told what alerts have changed: one message at a time, again after a failure.

The driver of `alerts.digest`. While a message is on its way, and as long as the other side does not
take any, changes gather; the next message tells them together.
"""

import asyncio
import logging
import random
from collections.abc import Callable

from monitor.alert import Digest
from monitor.alert_message import Body, body_of
from monitor.alerts import Alerts
from monitor.webhook import WebhookFailed
from protocol.client.backoff import Backoff
from protocol.log import fields

RETRY_MS = (5_000, 300_000)

logger = logging.getLogger(__name__)


class Notifier:
    """`send` posts a body and raises WebhookFailed; it runs in a thread.

    `page` is the address of the monitor's own page, `where` whom messages go to, as people may
    read it.
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

    def poke(self, now_ms: int, cluster: str) -> None:
        """Send what there is to tell, unless something is on its way or it is too early again."""
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
        """Wait for the message that is on its way."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _deliver(self, digest: Digest, body: Body) -> None:
        try:
            await asyncio.to_thread(self._send, body)
        except WebhookFailed as error:
            self.problem = f"alerts are not delivered: {error}"
            wait_ms = self._backoff.next_ms()
            self._retry_at_ms = digest.at_ms + wait_ms
            logger.warning("alerts not delivered", extra=fields(why=error, again_in_ms=wait_ms))
            return
        self._alerts.told(digest)
        self._backoff.reset()
        self.problem, self.told_at_ms = None, digest.at_ms
