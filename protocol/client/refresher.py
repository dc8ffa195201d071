"""Sends one metadata request at a time, shared by all callers that wait.

A call during a request either gets the answer of that request, or is included in the next request.
Failures are retried with a back-off while any caller waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

from protocol.client.backoff import Backoff
from protocol.client.errors import (
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    EntryRefused,
    is_transient,
)
from protocol.errors import ApiError
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.wire.schema import Message

REQUEST_TIMEOUT_MS = 10_000


class _Question:
    """One caller's request for metadata of topics. `topics` None means all topics."""

    __slots__ = ("allow_creation", "answered", "topics")

    def __init__(
        self,
        topics: Collection[str] | None,
        allow_creation: bool,
        answered: "asyncio.Future[None] | None",
    ) -> None:
        self.topics = topics
        self.allow_creation = allow_creation
        self.answered = answered

    @property
    def is_waited_for(self) -> bool:
        return self.answered is not None and not self.answered.done()


class Refresher:
    """Sends requests with `ask_any`, and passes each answer and its topics to `take`."""

    def __init__(
        self,
        ask_any: Callable[[Message, int], Awaitable[Any]],
        take: Callable[[MetadataResponse, Collection[str] | None], None],
        backoff: Backoff,
    ) -> None:
        self._ask_any = ask_any
        self._take = take
        self._backoff = backoff
        self._questions: list[_Question] = []
        self._asked: list[_Question] = []
        self._task: asyncio.Task[None] | None = None
        self._aside: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.last_error: Exception | None = None

    async def ask(
        self, topics: Collection[str] | None, allow_creation: bool, timeout_ms: int | None
    ) -> None:
        """Wait until an answer for these topics was passed to `take`.

        After `timeout_ms` raise BrokerUnreachable with the last reason. Raise permanent errors at
        once (UnsupportedVersion, ApiError), and EntryRefused.
        """
        if self._is_closed:
            raise ClientClosed("this client of the cluster is closed")
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(_Question(topics, allow_creation, answered))
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await answered
        except TimeoutError as error:
            reason = self.last_error or "no answer in time"
            raise BrokerUnreachable(f"no metadata within {timeout_ms} ms: {reason}") from error

    def ask_later(self, topics: Collection[str] | None) -> None:
        """Refresh these topics once. No caller waits for the answer."""
        if not self._is_closed:
            self._add(_Question(topics, False, None))

    def run_aside(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a short coroutine in the background; `close` waits for it."""
        task = asyncio.create_task(coroutine)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    async def close(self) -> None:
        """Close the refresher. Waiting callers get ClientClosed."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*self._aside, return_exceptions=True)
        self._settle([*self._asked, *self._questions], ClientClosed("the client was closed"))

    def _add(self, question: _Question) -> None:
        for asked in self._asked:
            if _covers(asked, question):
                # The request that is under way answers this question too.
                self._asked.append(question)
                return
        self._questions.append(question)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        while self._questions:
            self._asked, self._questions = self._questions, []
            topics = _union(self._asked)
            try:
                response = await self._ask_any(
                    _request(topics, any(q.allow_creation for q in self._asked)),
                    REQUEST_TIMEOUT_MS,
                )
            except (ClientError, ApiError) as error:
                self.last_error = error
                if not is_transient(error) or isinstance(error, EntryRefused):
                    self._settle(self._asked, error)
                    self._asked = []
                    continue
                self._questions[:0] = [q for q in self._asked if q.is_waited_for]
                self._asked = []
                if self._questions:
                    await asyncio.sleep(self._backoff.next_ms() / 1000)
                continue
            self._backoff.reset()
            self._take(response, topics)
            self._settle(self._asked, None)
            self._asked = []

    def _settle(self, questions: list[_Question], error: Exception | None) -> None:
        for question in questions:
            if question.answered is None or question.answered.done():
                continue
            if error is None:
                question.answered.set_result(None)
            else:
                question.answered.set_exception(type(error)(*error.args))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            # This is a bug in the client. Raise the exception in the waiting callers, because
            # otherwise they would wait forever.
            questions = [*self._asked, *self._questions]
            self._asked, self._questions = [], []
            for question in questions:
                if question.is_waited_for and question.answered is not None:
                    question.answered.set_exception(error)
        elif self._questions:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._ended)


def _covers(asked: _Question, question: _Question) -> bool:
    if question.allow_creation and not asked.allow_creation:
        return False
    if asked.topics is None:
        return True
    return question.topics is not None and set(question.topics) <= set(asked.topics)


def _union(questions: list[_Question]) -> Collection[str] | None:
    topics: dict[str, None] = {}
    for question in questions:
        if question.topics is None:
            return None
        topics.update(dict.fromkeys(question.topics))
    return tuple(topics)


def _request(topics: Collection[str] | None, allow_creation: bool) -> MetadataRequest:
    wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=allow_creation)
