"""Create the topics that templates name, when a file first writes to them.

The feeder says which files wait for a topic. If the brokers refuse a topic, only the files of that
topic keep waiting, and its creation is retried.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from collector.config.settings import RETRY_MS
from protocol.background import report_failure
from protocol.client.errors import ClientError
from protocol.errors import ApiError
from protocol.log import fields

logger = logging.getLogger(__name__)


class Waiting(Protocol):
    """An object that has files waiting for topics. The feeder implements it."""

    @property
    def wanted_topics(self) -> list[str]: ...

    def topic_made(self, topic: str) -> None: ...


class Makes(Protocol):
    """An object that creates topics. `producer.Brokers` implements it.

    Raises ClientError or ApiError.
    """

    async def make_topics(self, names: Collection[str]) -> None: ...


class TopicMaker:
    """Creates topics.

    `problems` gives the reason for each awaited topic that does not exist yet.
    """

    def __init__(
        self,
        brokers: Makes,
        waiting: Waiting,
        clock: Callable[[], int],
        on_made: Callable[[], None],
    ):
        self.problems: dict[str, str] = {}
        self.waiting_since_ms: int | None = None
        """The time since when files have waited for a topic; None if no file waits."""
        self._brokers = brokers
        self._waiting = waiting
        self._clock = clock
        self._on_made = on_made
        self._making: asyncio.Task[None] | None = None
        self._retry_at_ms: dict[str, int] = {}

    def step(self, now_ms: int) -> None:
        """Create the wanted topics, except topics that were refused a moment ago."""
        wanted = self._waiting.wanted_topics
        if not wanted:
            self.waiting_since_ms = None
            self._forget(())
            return
        if self.waiting_since_ms is None:
            self.waiting_since_ms = now_ms
        self._forget(wanted)
        due = [topic for topic in wanted if self._retry_at_ms.get(topic, now_ms) <= now_ms]
        if due and self._making is None:
            self._making = asyncio.create_task(self._make(due))
            self._making.add_done_callback(self._done)

    @property
    def deadline_ms(self) -> int | None:
        """The time at which `step` must be called even if nothing else happens."""
        return None if self._making is not None else min(self._retry_at_ms.values(), default=None)

    def stop(self) -> None:
        """Cancel the request that is under way."""
        if self._making is not None:
            self._making.cancel()

    async def _make(self, topics: list[str]) -> None:
        try:
            if not await self._is_made(topics) and len(topics) > 1:
                # A refused topic must not prevent the creation of the others.
                for topic in topics:
                    await self._is_made([topic])
        finally:
            self._making = None
        self._on_made()

    async def _is_made(self, topics: list[str]) -> bool:
        try:
            await self._brokers.make_topics(topics)
        except (ClientError, ApiError) as error:
            for topic in topics:
                self._retry_at_ms[topic] = self._clock() + RETRY_MS[1]
                self.problems[topic] = str(error)
            logger.warning(
                "could not create topics, trying again",
                extra=fields(topics=topics, reason=str(error)),
            )
            return False
        for topic in topics:
            self._retry_at_ms.pop(topic, None)
            self.problems.pop(topic, None)
            self._waiting.topic_made(topic)
        return True

    def _forget(self, wanted: Collection[str]) -> None:
        for topic in [topic for topic in self._retry_at_ms if topic not in wanted]:
            del self._retry_at_ms[topic]
            self.problems.pop(topic, None)

    def _done(self, task: "asyncio.Task[None]") -> None:
        report_failure(task, "creation of topics failed")
