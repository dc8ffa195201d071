"""The collector creates all topics for which files wait in one request. A refused topic delays only
its own files."""

import asyncio
from collections.abc import Collection

from collector.config.settings import RETRY_MS
from collector.send.topic_maker import TopicMaker
from protocol.errors import ApiError, ErrorCode


class Brokers:
    """Brokers that create all topics except those that the test refuses."""

    def __init__(self, *refused: str):
        self.refused = set(refused)
        self.asked: list[list[str]] = []

    async def make_topics(self, names: Collection[str]) -> None:
        self.asked.append(list(names))
        if self.refused.intersection(names):
            raise ApiError(ErrorCode.POLICY_VIOLATION, "one too many")


class Files:
    """The files that wait for their topics."""

    def __init__(self, *topics: str):
        self.wanted_topics = list(topics)
        self.made: list[str] = []

    def topic_made(self, topic: str) -> None:
        self.made.append(topic)
        self.wanted_topics.remove(topic)


class Scene:
    def __init__(self, brokers: Brokers, files: Files):
        self.now_ms = 1_000
        self.woken = 0
        self.maker = TopicMaker(brokers, files, lambda: self.now_ms, self._woken)

    def _woken(self) -> None:
        self.woken += 1

    async def step(self, now_ms: int) -> None:
        """Take one step, and wait until its requests have been answered."""
        self.now_ms = now_ms
        self.maker.step(now_ms)
        before = self.woken
        while self.maker.deadline_ms is None and self.woken == before and self._is_making():
            await asyncio.sleep(0)

    def _is_making(self) -> bool:
        return self.maker._making is not None


def test_all_that_are_wanted_are_made_in_one_request() -> None:
    async def play() -> None:
        brokers, files = Brokers(), Files("a", "b")
        scene = Scene(brokers, files)
        await scene.step(1_000)
        assert (brokers.asked, files.made, scene.woken) == ([["a", "b"]], ["a", "b"], 1)
        await scene.step(1_001)
        assert (len(brokers.asked), scene.maker.waiting_since_ms) == (1, None)

    asyncio.run(play())


def test_one_that_is_refused_is_told_and_asked_for_again_while_others_are_made() -> None:
    async def play() -> None:
        brokers, files = Brokers("b"), Files("a", "b", "c")
        scene = Scene(brokers, files)
        await scene.step(1_000)
        assert files.made == ["a", "c"]
        assert list(scene.maker.problems) == ["b"]
        assert "one too many" in scene.maker.problems["b"]
        assert scene.maker.waiting_since_ms == 1_000
        assert scene.maker.deadline_ms == 1_000 + RETRY_MS[1]
        count = len(brokers.asked)
        files.wanted_topics.append("d")
        await scene.step(1_001)
        assert brokers.asked[count:] == [["d"]]
        brokers.refused.clear()
        await scene.step(1_000 + RETRY_MS[1])
        assert files.made == ["a", "c", "d", "b"]
        assert scene.maker.problems == {}

    asyncio.run(play())


def test_a_topic_that_no_file_needs_any_more_is_no_problem() -> None:
    async def play() -> None:
        brokers, files = Brokers("b"), Files("b")
        scene = Scene(brokers, files)
        await scene.step(1_000)
        files.wanted_topics.clear()
        await scene.step(1_001)
        assert scene.maker.problems == {}
        assert scene.maker.deadline_ms is None

    asyncio.run(play())
