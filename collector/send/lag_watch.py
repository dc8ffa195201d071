"""Asks how far the stream has read, as long as files wait for its progress.

`lag_windows` decides which partitions to ask about, and uses the answers. Without an answer files
wait, until `lag_windows` lets them continue.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from collector.config.settings import READER_GROUP
from collector.send.lag_windows import LagWindows, ReadProgress
from protocol.background import report_failure
from protocol.client.errors import ClientError
from protocol.errors import ApiError
from protocol.log import fields
from protocol.types import TopicPartition

ASK_MS = 50

logger = logging.getLogger(__name__)


class ProgressSource(Protocol):
    """A source of the committed offsets of a group. `producer.Brokers` implements it."""

    async def progress_of(
        self, group: str, places: list[TopicPartition]
    ) -> dict[TopicPartition, ReadProgress]: ...


class LagWatch:
    """Asks for the progress of the stream at least ASK_MS apart, with one request at a time.

    It calls `on_answer` after each answer.
    """

    def __init__(
        self,
        brokers: ProgressSource,
        windows: LagWindows,
        clock: Callable[[], int],
        on_answer: Callable[[], None],
    ):
        self._brokers = brokers
        self._windows = windows
        self._clock = clock
        self._on_answer = on_answer
        self._asking: asyncio.Task[None] | None = None
        self._due_ms = 0

    def step(self, now_ms: int) -> None:
        """Ask for the progress if files wait and ASK_MS have passed."""
        if self._asking is not None or now_ms < self._due_ms:
            return
        places = self._windows.to_ask(now_ms)
        if places:
            self._due_ms = now_ms + ASK_MS
            self._windows.asked(places, now_ms)
            self._asking = asyncio.create_task(self._ask(places))
            self._asking.add_done_callback(self._done)

    def deadline_ms(self, now_ms: int) -> int | None:
        """Return when to call `step` even if nothing else happens."""
        is_idle = self._asking is not None or not self._windows.to_ask(now_ms)
        return None if is_idle else self._due_ms

    def stop(self) -> None:
        """Cancel the request that is under way."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self, places: list[TopicPartition]) -> None:
        try:
            found = await self._brokers.progress_of(READER_GROUP, places)
        except (ClientError, ApiError) as error:
            logger.debug(
                "could not read the progress of the stream", extra=fields(reason=str(error))
            )
        else:
            self._windows.told(found, self._clock())
        finally:
            self._asking = None
        self._on_answer()

    def _done(self, task: "asyncio.Task[None]") -> None:
        report_failure(task, "asking for progress failed")
