"""A collector with a long commit interval keeps no transaction open while lines gather."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.committer import Committer
from collector.config.settings import BACKFILL_WINDOW, COMMIT_MS
from collector.send.outbox import SendBatch
from collector.send.positions import Records
from collector.timing.rhythm import Rhythm
from protocol.client.producer import BatchMetadata
from tests.unit.collector.world import World

INTERVAL_MS = 5_000
LIMIT = 10_000


class FakeBrokers:
    """Acknowledges and commits everything at once, and counts the lines of each commit."""

    def __init__(self) -> None:
        self.is_open = False
        self.commits: list[int] = []
        self._lines = 0

    def begin(self) -> None:
        assert not self.is_open
        self.is_open = True

    async def send(self, batch: SendBatch) -> "asyncio.Future[BatchMetadata]":
        self._lines += batch.record_count
        future: asyncio.Future[BatchMetadata] = asyncio.get_running_loop().create_future()
        future.set_result(BatchMetadata(*batch.partition, 0, 0))
        return future

    async def send_positions(self, records: Records) -> "list[asyncio.Future[BatchMetadata]]":
        return []

    async def commit(self, timeout_ms: int) -> None:
        self.commits.append(self._lines)
        self.is_open, self._lines = False, 0


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    found.limit = LIMIT
    return found


def committer_of(world: World, brokers: FakeBrokers, interval_ms: int) -> Committer:
    world.feeder.rhythm = Rhythm(1 << 22, interval_ms)
    clock: Callable[[], int] = lambda: world.now_ms  # noqa: E731
    return Committer(
        brokers,  # type: ignore[arg-type]  # only these methods are called
        world.feeder,
        world.positions,
        clock,
        lambda: None,
        lambda error: None,
    )


async def turn(world: World, committer: Committer) -> None:
    """Scan, read and send, as the agent does in one round."""
    world.scan()
    world.feeder.step(world.now_ms)
    await committer.step(world.now_ms)
    while committer.is_ending:
        await asyncio.sleep(0)


def test_a_full_batch_is_sent_before_the_commit_only_at_the_default_interval(world: World) -> None:
    async def play(interval_ms: int) -> bool:
        brokers = FakeBrokers()
        committer = committer_of(world, brokers, interval_ms)
        world.write(1, "a")
        await turn(world, committer)
        world.write(LIMIT // 100 + 10, "a")
        world.now_ms += 1
        await turn(world, committer)
        was_open = brokers.is_open
        world.now_ms += interval_ms
        await turn(world, committer)
        assert brokers.commits == [1, LIMIT // 100 + 10]
        return was_open

    assert asyncio.run(play(COMMIT_MS))
    assert not asyncio.run(play(INTERVAL_MS))


def test_lines_gather_until_the_interval_has_passed(world: World) -> None:
    async def play() -> None:
        brokers = FakeBrokers()
        committer = committer_of(world, brokers, INTERVAL_MS)
        for _ in range(50):
            world.write(1, "a")
            await turn(world, committer)
            assert not brokers.is_open
            world.now_ms += 200
        assert brokers.commits == [1, 25]
        assert committer.deadline_ms == 1_000_000 + 2 * INTERVAL_MS

    asyncio.run(play())


def test_files_that_wait_for_room_do_not_wait_for_the_interval(world: World) -> None:
    """A file waits for room at a number of full batches. Its lines must not wait for memory that
    only a commit can free."""

    async def play() -> None:
        brokers = FakeBrokers()
        committer = committer_of(world, brokers, INTERVAL_MS)
        world.write(1, "a")
        await turn(world, committer)
        lines = 8 * BACKFILL_WINDOW * LIMIT // 100
        world.write(lines, "a")
        for _ in range(20):
            world.now_ms += 1
            await turn(world, committer)
            assert not brokers.is_open
        world.now_ms += INTERVAL_MS
        await turn(world, committer)
        assert sum(brokers.commits) == 1 + lines
        assert len(brokers.commits) > 2

    asyncio.run(play())
