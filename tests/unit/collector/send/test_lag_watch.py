"""Requests for the stream's progress are sent only while files wait, and one at a time."""

import asyncio
from collections.abc import Awaitable, Callable

from collector.config.settings import READER_GROUP
from collector.send.lag_watch import ASK_MS, LagWatch
from collector.send.lag_windows import LagWindows, ReadProgress
from protocol.client.errors import ClientError
from protocol.types import TopicPartition

PLACE = TopicPartition("t", 0)


class Rig:
    """A lag watch with its windows, and brokers that answer when the test decides."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.windows = LagWindows()
        self.questions: list[list[TopicPartition]] = []
        self.answer: asyncio.Future[ReadProgress] = asyncio.Future()
        self.due_when_told: list[int | None] = []
        self.watch = LagWatch(self, self.windows, lambda: self.now_ms, self._told)

    def _told(self) -> None:
        self.due_when_told.append(self.watch.deadline_ms(self.now_ms))

    async def progress_of(
        self, group: str, places: list[TopicPartition]
    ) -> dict[TopicPartition, ReadProgress]:
        assert group == READER_GROUP
        self.questions.append(places)
        return dict.fromkeys(places, await self.answer)

    def waits(self) -> bool:
        """Return True if an old file must wait because of a live file that writes to the same
        partition."""
        self.windows.wrote_live(PLACE, "live", self.now_ms)
        return not self.windows.may_go_on(PLACE, "old", self.now_ms)

    async def step(self) -> None:
        self.watch.step(self.now_ms)
        await asyncio.sleep(0)

    async def answered(self, answer: ReadProgress | Exception) -> None:
        if isinstance(answer, Exception):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)
        for _ in range(3):
            await asyncio.sleep(0)
        self.answer = asyncio.Future()


def played(play: Callable[[Rig], Awaitable[None]]) -> None:
    async def run() -> None:
        await play(Rig())

    asyncio.run(run())


def test_no_broker_is_asked_while_no_file_waits() -> None:
    async def play(rig: Rig) -> None:
        await rig.step()
        assert rig.questions == []
        assert rig.watch.deadline_ms(rig.now_ms) is None

    played(play)


def test_an_answer_lets_the_file_go_on_and_the_next_question_comes_later() -> None:
    async def play(rig: Rig) -> None:
        assert rig.waits()
        await rig.step()
        await rig.step()
        assert rig.questions == [[PLACE]], "one at a time"
        assert rig.watch.deadline_ms(rig.now_ms) is None, "the answer wakes"
        await rig.answered(ReadProgress(7, 7))
        assert rig.due_when_told == [rig.now_ms + ASK_MS], "who is woken knows when to come again"
        assert not rig.waits()
        await rig.step()
        assert len(rig.questions) == 1
        rig.now_ms += ASK_MS
        await rig.step()
        assert len(rig.questions) == 2
        rig.watch.stop()

    played(play)


def test_without_an_answer_it_is_asked_again() -> None:
    async def play(rig: Rig) -> None:
        assert rig.waits()
        await rig.step()
        await rig.answered(ClientError("away"))
        assert rig.waits()
        rig.now_ms += ASK_MS
        await rig.step()
        assert len(rig.questions) == 2
        rig.watch.stop()

    played(play)


def test_a_fault_of_ours_is_not_passed_over() -> None:
    async def play(rig: Rig) -> None:
        found: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: found.append(context["exception"]))
        assert rig.waits()
        await rig.step()
        fault = ZeroDivisionError()
        await rig.answered(fault)
        assert found == [fault]

    played(play)
